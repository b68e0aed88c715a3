"""Connections are opened straight, through tunnels, and with TLS; what fails is told without names and keys."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import pytest

from proxy.http.client.dialer import Address, Dialer, Proxy, reason_of
from proxy.http.client.response import Fault, TransportError
from tests.forward_proxy import ForwardProxy, forward_proxy
from tests.recorder import recording
from tests.serving import run

SECRET = b"Basic c2VjcmV0OnNlY3JldA=="


class Talk(asyncio.Protocol):
    """Says one thing and hears the rest."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(b"GET /x HTTP/1.1\r\nhost: h\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


def trusting(path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=path)


async def talked(dialer: Dialer, tunnel: bool = False) -> bytes:
    talk = await dialer.open(Talk, tunnel)
    await talk.lost.wait()
    return talk.heard[:15]


def proxied(via: ForwardProxy, authorization: bytes = b"", tls: ssl.SSLContext | None = None) -> Proxy:
    return Proxy(Address("localhost", via.port, tls), authorization)


def test_a_connection_is_opened_straight_with_and_without_tls(certificate: ssl.SSLContext, certified: Path) -> None:
    async def check() -> None:
        async with recording() as plain, recording(tls=certificate) as sealed:
            assert await talked(Dialer(Address("localhost", plain.port), 5)) == b"HTTP/1.1 200 OK"
            assert await talked(Dialer(Address("localhost", sealed.port, trusting(certified)), 5)) == b"HTTP/1.1 200 OK"

    run(check())


@pytest.mark.parametrize("outer", [False, True])
def test_tls_goes_through_a_tunnel_and_ends_at_the_upstream(
    outer: bool, certificate: ssl.SSLContext, certified: Path
) -> None:
    """The proxy itself may speak TLS too: then there is TLS in TLS."""

    async def check() -> None:
        async with recording(tls=certificate) as up, forward_proxy(tls=certificate if outer else None) as via:
            proxy = proxied(via, SECRET, trusting(certified) if outer else None)
            dialer = Dialer(Address("localhost", up.port, trusting(certified)), 5, proxy)
            assert await talked(dialer) == b"HTTP/1.1 200 OK"
            where = b"localhost:%d" % up.port
            asked = b"CONNECT %b HTTP/1.1\r\nhost: %b\r\nproxy-authorization: %b\r\n\r\n" % (where, where, SECRET)
            assert via.heads == [asked]
            assert up.requests[0].header(b"proxy-authorization") == []

    run(check())


def test_plain_requests_go_to_the_proxy_and_other_protocols_through_a_tunnel() -> None:
    async def check() -> None:
        async with recording() as up, forward_proxy() as via:
            dialer = Dialer(Address("127.0.0.1", up.port), 5, proxied(via))
            assert dialer.forwards
            assert await talked(dialer, tunnel=True) == b"HTTP/1.1 200 OK"
            assert via.heads[0].startswith(b"CONNECT 127.0.0.1:%d " % up.port)

    run(check())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answered 407"),
        (b"HTTP/1.1 403 by user@company\r\n\r\nno", "the proxy gave no answer"),  # more than a head: no tunnel
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the proxy gave no answer"),
        (b"x" * 20_000, "the proxy gave no answer"),
    ],
)
def test_a_tunnel_that_is_not_opened_is_told_by_its_status_alone(answer: bytes, told: str) -> None:
    events: list[str] = []

    def report(message: str, **figures: object) -> None:
        events.append(" ".join((message, *map(str, figures.values()))))

    async def check() -> None:
        async with forward_proxy(answer) as via:
            address = Address("models.internal", 443, ssl.create_default_context())
            dialer = Dialer(address, 5, proxied(via, SECRET), report)
            with pytest.raises(TransportError) as raised:
                await dialer.open(Talk)
            assert raised.value.fault is Fault.CONNECT
            assert str(raised.value) == f"No connection to the upstream: {told}."

    run(check())
    assert events == [f"no connection to an upstream models.internal:443 {told}"]


def test_a_wrong_certificate_is_told_without_the_hosts_name(certificate: ssl.SSLContext) -> None:
    async def check() -> None:
        async with recording(tls=certificate) as up:
            with pytest.raises(TransportError, match=r"TLS failed \(CERTIFICATE_VERIFY_FAILED\)") as raised:
                await Dialer(Address("localhost", up.port, ssl.create_default_context()), 5).open(Talk)
            assert "localhost" not in str(raised.value)

    run(check())


def test_a_reason_names_no_address() -> None:
    assert reason_of(ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 443)")) == "Connection refused"
    assert reason_of(OSError("Multiple exceptions: 10.0.0.1, 10.0.0.2")) == "OSError"


def test_an_address_of_version_6_stands_in_brackets() -> None:
    assert str(Address("::1", 80)) == "[::1]:80"
