"""Which way requests leave: through whose proxy, believing whom, showing what."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.http.client.dialer import Proxy
from proxy.http.client.egress import Egress, bypasses, is_loopback
from proxy.upstreams.upstream import Upstream
from tests.certificates import certified as made
from tests.forward_proxy import forward_proxy
from tests.recorder import Peer, Request, head, recording
from tests.serving import ask, get, post, proxying, run


def way(egress: Egress, scheme: str = "https", host: str = "api.example", port: int = 443) -> Proxy | None:
    return egress.proxy_for(scheme, host, port, ssl.create_default_context)


def test_each_scheme_has_a_proxy_of_its_own_and_without_one_it_is_straight() -> None:
    egress = Egress("http://one:1", "two:2")
    assert str(getattr(way(egress), "address", "")) == "one:1"
    assert str(getattr(way(egress, "http"), "address", "")) == "two:2"
    assert way(Egress()) is None
    assert way(Egress("http://one:1"), "http") is None


def test_a_proxys_url_has_a_usual_port_a_login_and_perhaps_tls() -> None:
    found = way(Egress("https://us%40er:p%3Aw@proxy"))
    assert found is not None
    assert (found.address.port, found.authorization) == (443, b"Basic dXNAZXI6cDp3")
    assert found.address.tls is not None
    assert "dXN" not in repr(found)
    plain = way(Egress("http://proxy"))
    assert plain is not None
    assert (plain.address.port, plain.authorization, plain.address.tls) == (80, b"", None)


@pytest.mark.parametrize(
    "url", ["socks5://me:secret@proxy:1", "http://", "http://proxy:port", "http://pröxy:1", "x://"]
)
def test_what_is_no_proxy_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY must be an http or https URL") as raised:
        way(Egress(url))
    assert "secret" not in str(raised.value)
    assert way(Egress(url), "http") is None  # nobody asked for it


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_asked_straight(host: str) -> None:
    assert is_loopback(host)
    assert way(Egress("http://proxy:1"), host=host) is None


@pytest.mark.parametrize(
    ("entry", "host", "spared"),
    [
        ("*", "api.example", True),
        ("api.example", "api.example", True),
        ("API.example", "api.EXAMPLE", True),
        ("example", "api.example", True),
        (".example", "api.example", True),
        ("*.example", "api.example", True),
        (".example", "example", True),
        ("pi.example", "api.example", False),
        ("api.example:443", "api.example", True),
        ("api.example:80", "api.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "api.example", False),
        ("[fd00::1]:443", "fd00::1", True),
        ("fd00::/8", "fd00::1", True),
        ("", "api.example", False),
        (".", "api.example", False),
    ],
)
def test_no_proxy_names_domains_addresses_and_ranges(entry: str, host: str, spared: bool) -> None:
    assert bypasses(entry, host, 443) is spared
    assert (way(Egress("http://proxy:1", no_proxy=(entry,)), host=host) is None) is spared


def test_an_authority_of_ones_own_is_believed_beside_the_usual(certificate: ssl.SSLContext, certified: Path) -> None:
    async def check() -> None:
        async with recording(tls=certificate) as up:
            url = up.url.replace("127.0.0.1", "localhost")
            async with proxying("", upstream=Upstream(url, egress=Egress(ca=certified))) as proxy:
                assert (await ask(proxy.port, get())).status == 200
            async with proxying("", upstream=Upstream(url)) as proxy:
                assert (await ask(proxy.port, get())).status == 502

    run(check())


def test_an_upstream_may_ask_for_our_certificate(certified: Path, tmp_path: Path) -> None:
    key, ours = made(tmp_path, "plimsoll")
    strict = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ours))
    strict.load_cert_chain(certified)
    strict.verify_mode = ssl.CERT_REQUIRED

    async def check() -> None:
        async with recording(tls=strict) as up:
            url = up.url.replace("127.0.0.1", "localhost")
            shown, hidden = Egress(ca=certified, certificate=ours, key=key), Egress(ca=certified)
            async with proxying("", upstream=Upstream(url, egress=shown)) as proxy:
                assert (await ask(proxy.port, get())).status == 200
            async with proxying("", upstream=Upstream(url, egress=hidden)) as proxy:
                assert (await ask(proxy.port, get())).status == 502

    run(check())


def test_a_file_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for egress, words in (
        (Egress(ca=tmp_path / "none.pem"), "PLIMSOLL_UPSTREAM_CA, .*none.pem: No such file"),
        (Egress(ca=empty), "PLIMSOLL_UPSTREAM_CA, .*empty.pem: no PEM file"),
        (Egress(certificate=tmp_path / "none.pem"), "PLIMSOLL_UPSTREAM_CERT .*none.pem: No such file"),
        (Egress(certificate=empty), "PLIMSOLL_UPSTREAM_CERT .*empty.pem: no PEM file"),
        (Egress(key=empty), "PLIMSOLL_UPSTREAM_KEY needs PLIMSOLL_UPSTREAM_CERT"),
    ):
        with pytest.raises(ConfigError, match=words):
            Upstream("https://api.example/v1", egress=egress)
    with pytest.raises(ConfigError, match="need an https URL"):
        Upstream("http://api.example/v1", egress=Egress(certificate=empty))


def test_an_https_upstream_is_reached_through_a_tunnel(tmp_path: Path) -> None:
    key, public = made(tmp_path, "models.internal")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(public, key)

    async def check() -> None:
        async with recording(tls=tls) as up, forward_proxy(knows={"models.internal": up.port}) as via:
            egress = Egress(f"http://me:pw@localhost:{via.port}", ca=public)
            async with proxying("", upstream=Upstream("https://models.internal/v1", egress=egress)) as proxy:
                for _ in range(2):
                    assert (await ask(proxy.port, get(b"/v1/models", b"proxy-authorization: theirs"))).status == 200
            assert [head.split(b"\r\n")[0] for head in via.heads] == [b"CONNECT models.internal:443 HTTP/1.1"]
            assert b"proxy-authorization: Basic bWU6cHc=" in via.heads[0]
            assert up.requests[0].header(b"host") == [b"models.internal"]
            assert up.requests[0].header(b"proxy-authorization") == []
            assert up.connections == 1

    run(check())


def test_an_http_upstream_is_asked_for_by_its_whole_url() -> None:
    async def check() -> None:
        async with recording() as up, forward_proxy(knows={"models.internal": up.port}) as via:
            egress = Egress(http_proxy=f"http://me:pw@localhost:{via.port}")
            async with proxying("", upstream=Upstream("http://models.internal:8000/v1", egress=egress)) as proxy:
                assert (await ask(proxy.port, post(b"{}"))).status == 200
            (request,) = up.requests
            assert request.head.startswith(b"POST http://models.internal:8000/v1/things HTTP/1.1\r\n")
            assert request.header(b"proxy-authorization") == [b"Basic bWU6cHc="]
            assert request.header(b"host") == [b"models.internal:8000"]

    run(check())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_does_not_know_us_is_no_affair_of_the_clients(scheme: str) -> None:
    answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 2\r\nproxy-authenticate: Basic\r\n\r\nno"
    bare = answer.replace(b"content-length: 2\r\n", b"").removesuffix(b"no")

    async def check() -> None:
        async with recording() as up, forward_proxy(bare, knows={"models.internal": up.port}) as via:

            async def unknown(request: object, peer: object) -> None:
                await peer.send(answer)  # type: ignore[attr-defined]

            up.script = unknown
            url = f"http://me:secret@localhost:{via.port}"
            upstream = Upstream(f"{scheme}://models.internal/v1", egress=Egress(url, url))
            async with proxying("", upstream=upstream) as proxy:
                reply = await ask(proxy.port, get())
                error = json.loads(reply.body)["error"]
                assert (reply.status, error["code"]) == (502, "upstream_unreachable")
                assert (
                    error["message"] == "No connection to the upstream: the proxy answered 407 (see the proxy's log)."
                )

    run(check())


def test_a_websocket_goes_through_a_tunnel_where_requests_are_forwarded() -> None:
    switch = (b"upgrade: websocket", b"connection: upgrade")

    async def switches(request: Request, peer: Peer) -> None:
        await peer.send(head(b"101 Switching Protocols", *switch), b"hello")

    async def check() -> None:
        async with recording(switches) as up, forward_proxy(knows={"models.internal": up.port}) as via:
            egress = Egress(http_proxy=f"http://me:pw@localhost:{via.port}")
            upstream = Upstream("http://models.internal/v1", egress=egress)
            answer = await upstream.upgrade(b"/v1/realtime", [(b"sec-websocket-key", b"x")])
            assert answer.status == 101
            assert via.heads[0].startswith(b"CONNECT models.internal:80 HTTP/1.1\r\n")
            assert up.requests[0].head.startswith(b"GET /v1/realtime HTTP/1.1\r\n")
            assert up.requests[0].header(b"proxy-authorization") == []
            await answer.close()
            await upstream.close()

    run(check())
