"""What is posted to a collector, and how: headers, encoding, TLS, timeouts."""

from __future__ import annotations

import gzip
import ssl
from pathlib import Path

import pytest

from proxy.config.otel import read_traces
from proxy.errors import ConfigError
from proxy.http.client.egress import DIRECT, Egress
from proxy.upstreams.collector import Collector
from tests.recorder import Peer, Request, Script, answer, recording
from tests.serving import eventually, run


def collector(url: str, egress: Egress = DIRECT, **environ: str) -> Collector:
    """A collector at a URL that is used as it is."""
    settings, problems = read_traces({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url, **environ})
    assert settings is not None and problems == []
    return Collector(settings, egress)


def answering(status: bytes, body: bytes = b"{}", *headers: bytes) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(answer(body, status, headers))

    return script


async def silent(request: Request, peer: Peer) -> None:
    await peer.gone()


def test_an_export_is_a_post_with_the_headers_of_the_settings() -> None:
    async def check() -> None:
        async with recording() as there:
            to = collector(f"http://127.0.0.1:{there.port}/v1/traces", OTEL_EXPORTER_OTLP_HEADERS="X-Key=a%20b")
            assert await to.post(to.packed(b"spans")) == 200
            assert await to.post(to.packed(b"more")) == 200
            await to.close()
            one, two = there.requests
            assert one.head.startswith(b"POST /v1/traces HTTP/1.1\r\n")
            assert one.header(b"content-type") == [b"application/x-protobuf"]
            assert one.header(b"x-key") == [b"a b"]
            assert one.header(b"user-agent")[0].startswith(b"plimsoll/")
            assert one.header(b"content-encoding") == []
            assert (one.body, two.body) == (b"spans", b"more")

    run(check())


def test_json_has_its_own_type_and_gzip_is_declared() -> None:
    async def check() -> None:
        async with recording() as there:
            settings = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
            to = collector(f"http://127.0.0.1:{there.port}/x", DIRECT, **settings)
            assert await to.post(to.packed(b"spans" * 100)) == 200
            await to.close()
            (sent,) = there.requests
            assert sent.header(b"content-type") == [b"application/json"]
            assert sent.header(b"content-encoding") == [b"gzip"]
            assert len(sent.body) < 100 and gzip.decompress(sent.body) == b"spans" * 100

    run(check())


@pytest.mark.parametrize("path", ["", "/", "/v1/traces", "/v1/traces/", "/otel"])
def test_the_url_is_used_as_it_is(path: str) -> None:
    async def check() -> None:
        async with recording() as there:
            to = collector(f"http://127.0.0.1:{there.port}{path}")
            await to.post(b"")
            await to.close()
            assert there.requests[0].target == (path or "/").encode()

    run(check())


@pytest.mark.parametrize("status", [202, 307, 400, 413, 429, 503])
def test_any_response_is_its_status_and_no_redirect_is_followed(status: int) -> None:
    async def check() -> None:
        async with recording(answering(b"%d X" % status, b"x" * 200_000, b"location: /elsewhere")) as there:
            to = collector(f"http://127.0.0.1:{there.port}/v1/traces")
            assert [await to.post(b"a"), await to.post(b"b")] == [status] * 2
            await to.close()
            assert len(there.requests) == 2

    run(check())


def test_no_response_in_time_is_0_and_the_connection_is_given_up() -> None:
    async def check() -> None:
        async with recording(silent) as there:
            to = collector(f"http://127.0.0.1:{there.port}/", OTEL_EXPORTER_OTLP_TIMEOUT="50")
            assert await to.post(b"") == 0
            await eventually(lambda: there.open == 0, 30)
            await to.close()

    run(check())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://no-such-host.invalid/"])
def test_no_connection_is_0(url: str) -> None:
    async def check() -> None:
        to = collector(url)
        assert await to.post(b"") == 0
        await to.close()

    run(check(), 60)


def test_a_certificate_of_the_settings_is_trusted_and_no_other(certified: Path, certificate: ssl.SSLContext) -> None:
    async def check() -> None:
        async with recording(tls=certificate) as there:
            url = f"https://localhost:{there.port}/v1/traces"
            trusting, other = collector(url, Egress(ca=certified)), collector(url)
            assert (await trusting.post(b"spans"), await other.post(b"spans")) == (200, 0)
            await trusting.close()
            await other.close()
            assert [request.body for request in there.requests] == [b"spans"]

    run(check())


def test_files_that_are_none_are_told_by_their_variables() -> None:
    names = ("A_CERTIFICATE", "A_CLIENT_CERTIFICATE", "A_CLIENT_KEY")
    missing = Path("/no/such.pem")
    for url, egress, said in (
        ("https://c", Egress(ca=missing, names=names), "^A_CERTIFICATE, /no/such.pem: No such file"),
        ("https://c", Egress(certificate=missing, names=names), "^A_CLIENT_CERTIFICATE and A_CLIENT_KEY, /no/such.pem"),
        ("https://c", Egress(key=missing, names=names), "^A_CLIENT_KEY needs A_CLIENT_CERTIFICATE"),
        ("http://c", Egress(key=missing, names=names), "^A_CLIENT_CERTIFICATE and A_CLIENT_KEY need an https URL"),
    ):
        with pytest.raises(ConfigError, match=said):
            collector(url, egress)
