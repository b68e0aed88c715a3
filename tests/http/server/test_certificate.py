"""The certificate of our own ports: what is served with it, and that it follows its files."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send
from proxy.http.server import certificate as module
from proxy.http.server import serve
from proxy.http.server.certificate import Certificate
from proxy.http.server.protocol import Protocol
from tests.openssl import made, subject_of, trusting
from tests.serving import Client, eventually, get, run, serving


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says by which scheme it was asked."""
    if scope["type"] == "http":
        body = scope["scheme"].encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connected(port: int, trust: ssl.SSLContext, host: str = "localhost") -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=host)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def name_at(port: int, trust: ssl.SSLContext, host: str = "localhost") -> str:
    """The subject of the certificate that a new connection gets."""
    async with connected(port, trust, host) as client:
        await client.send(get(b"/"))
        assert (await client.reply()).body == b"https"
        return subject_of(client.writer.get_extra_info("peercert"))


class Pair:
    """A certificate and its key in files that are replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.chain, self.key = folder, folder / "tls.crt", folder / "tls.key"
        self.chains: list[Path] = []
        self.renew("first")

    def renew(self, name: str, key: str = "") -> None:
        """Puts a new certificate into the files, with the key of another one if that is named."""
        chain, own = made(self._folder, name)
        self.chains.append(chain)
        shutil.copy(chain, self.chain)
        shutil.copy(self._folder / f"{key}.key" if key else own, self.key)

    @property
    def trust(self) -> ssl.SSLContext:
        return trusting(*self.chains)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A pair that is looked at when a test says so: no poll is due for an hour."""
    monkeypatch.setattr(module, "POLL_S", 3600.0)
    return Pair(tmp_path)


def test_requests_come_by_tls_and_negotiate_http_1_1(pair: Pair) -> None:
    async def check() -> None:
        async with serving(app, certificate=Certificate(pair.chain, pair.key)) as server:
            trust = pair.trust
            trust.set_alpn_protocols(["h2", "http/1.1"])
            async with connected(server.ports[0], trust) as client:
                assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
                for _ in range(3):
                    await client.send(get(b"/"))
                    assert (await client.reply()).body == b"https"

    run(check())


def test_M12_new_connections_get_a_renewed_certificate_and_open_ones_stay(pair: Pair) -> None:
    async def check() -> None:
        certificate = Certificate(pair.chain, pair.key)
        async with serving(app, certificate=certificate) as server:
            port = server.ports[0]
            async with connected(port, pair.trust) as open_one:
                pair.renew("second")
                await certificate.poll()
                assert await name_at(port, pair.trust) == "first", "it may still be written"
                await certificate.poll()
                assert await name_at(port, pair.trust) == "second"
                assert await name_at(port, pair.trust, "127.0.0.1") == "second", "a client that names no server"
                await open_one.send(get(b"/"))
                assert (await open_one.reply()).body == b"https"

    run(check())


def test_it_follows_its_files_by_itself_and_at_once_when_it_is_told(pair: Pair) -> None:
    async def check() -> None:
        events: list[str] = []
        certificate = Certificate(pair.chain, pair.key, lambda text, **_: events.append(text))
        async with serving(app, certificate=certificate) as server:
            pair.renew("second")
            certificate.request()
            await eventually(lambda: events == ["the certificate is reloaded"], 30)
            assert await name_at(server.ports[0], pair.trust) == "second"

    run(check())


def test_a_wrong_file_is_told_once_and_the_old_certificate_stays(pair: Pair) -> None:
    async def check() -> None:
        events: list[tuple[str, dict[str, Any]]] = []
        certificate = Certificate(pair.chain, pair.key, lambda text, **figures: events.append((text, figures)))
        async with serving(app, certificate=certificate) as server:
            port = server.ports[0]
            pair.renew("second", key="first")
            for _ in range(4):
                await certificate.poll()
            ((text, figures),) = events
            assert text == "the certificate is not reloaded, the old one stays"
            assert "KEY_VALUES_MISMATCH" in figures["problem"]
            assert await name_at(port, pair.trust) == "first"
            pair.chain.unlink()
            for _ in range(2):
                await certificate.poll()
            assert "No such file" in events[1][1]["problem"]
            assert await name_at(port, pair.trust) == "first"
            pair.renew("third")
            for _ in range(2):
                await certificate.poll()
            assert await name_at(port, pair.trust) == "third"

    run(check())


def test_who_speaks_no_tls_is_disconnected_and_nobody_else_is(pair: Pair) -> None:
    async def check() -> None:
        async with serving(app, certificate=Certificate(pair.chain, pair.key)) as server:
            port = server.ports[0]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get(b"/"))
            assert b"HTTP/1.1" not in await Client(reader, writer).rest()
            writer.close()
            assert await name_at(port, pair.trust) == "first"

    run(check())


def test_files_that_cannot_be_used_are_named(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PLIMSOLL_TLS_CERT and PLIMSOLL_TLS_KEY, .*none.crt: No such file"):
        Certificate(tmp_path / "none.crt", pair.key)
    with pytest.raises(ConfigError, match=r"PLIMSOLL_TLS_CERT, .*tls.crt: no certificate with its key"):
        Certificate(pair.chain)
    with pytest.raises(ConfigError, match="no certificate with its key that can be used"):
        Certificate(*made(tmp_path, "locked", "secret"))


def test_one_file_may_have_both(pair: Pair, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pair.key.read_bytes() + pair.chain.read_bytes())
    assert Certificate(both).context.sni_callback is not None


class Flood:
    """An application whose answer ends when its client has gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not scope["plimsoll.cycle"].disconnected:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


def test_who_reads_nothing_is_disconnected_as_without_tls(pair: Pair) -> None:
    async def check() -> None:
        impatient = type("Impatient", (Protocol,), {"min_rate": 1000.0, "read_seconds": 0.2})
        certificate = Certificate(pair.chain, pair.key)
        async with serving(Flood(), impatient, certificate=certificate) as server:
            async with connected(server.ports[0], pair.trust) as client:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await client.send(get(b"/"))
                await eventually(lambda: server.port.connections, 30)
                await eventually(lambda: not server.port.connections, 30)

    run(check())


def test_who_does_not_finish_the_handshake_is_disconnected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with serving(app, certificate=Certificate(pair.chain, pair.key)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            writer.write(b"\x16\x03\x01")
            assert await Client(reader, writer).rest() == b""
            writer.close()

    monkeypatch.setattr(serve, "HANDSHAKE_SECONDS", 0.3)
    run(check())
