"""What is sent to a provider and what its answers and failures become."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from proxy.errors import ConfigError
from proxy.http.client.answer import CLIENT_ERRORS, Answer, UpstreamError
from proxy.http.client.pool import Timeouts
from proxy.http.client.response import Fault, TransportError
from proxy.upstreams.upstream import Upstream
from tests.over_httpx import OverHttpx
from tests.recorder import Peer, Request, answer, chunk, head, recording
from tests.serving import eventually, run

Handler = Callable[[httpx.Request], httpx.Response]


def over(handler: Handler, base: str = "https://api.example/v1") -> Upstream:
    return Upstream(base, link=OverHttpx(httpx.MockTransport(handler)))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


# Targets


@pytest.mark.parametrize(
    ("base", "ending", "sent"),
    [
        ("http://host:8000/v1", "/v1", b"/tokenize"),
        ("http://host:8000/a/v1/", "/v1", b"/a/tokenize"),
        ("http://host:8000", "/v1", b"/tokenize"),
        ("http://host/v1beta/openai", "/openai", b"/v1beta/tokenize"),
    ],
)
def test_a_path_may_stand_beside_the_base(base: str, ending: str, sent: bytes) -> None:
    upstream = over(lambda request: httpx.Response(200), base)
    assert upstream.beside(ending).target(b"/tokenize") == sent
    assert upstream.server == "host"


@pytest.mark.parametrize(
    ("base", "target", "sent"),
    [
        ("https://api.openai.com/v1", b"/v1/chat/completions", b"/v1/chat/completions"),
        ("https://api.openai.com/v1/", b"/v1/models?a=1", b"/v1/models?a=1"),
        ("https://api.openai.com/v1", b"/v1", b"/v1"),
        ("https://api.openai.com/v1", b"/v1?x", b"/v1?x"),
        ("https://api.openai.com/v1", b"/v1x/y", b"/v1/v1x/y"),
        ("https://api.openai.com/v1", b"/chat/completions", b"/v1/chat/completions"),
        ("http://host:8000", b"/v1/models", b"/models"),
        ("http://host:8000", b"/v1", b"/"),
        ("http://host:8000", b"/v1?x", b"/?x"),
        ("http://host:8000", b"/v1/", b"/"),
        ("http://host:8000", b"/health", b"/health"),
        ("https://host/openai/d", b"/v1/embeddings?api-version=1", b"/openai/d/embeddings?api-version=1"),
        ("https://host/a%2Fb", b"/v1/../x", b"/a%2Fb/../x"),
        ("http://host:11434", b"/api/chat", b"/api/chat"),
        ("http://host:11434/v1", b"/api/chat?x", b"/api/chat?x"),
        ("http://host/gate/v1/", b"/api/ps", b"/gate/api/ps"),
        ("http://host/gate", b"/api/ps", b"/gate/api/ps"),
        ("http://host/v1", b"/apiary", b"/v1/apiary"),
    ],
)  # fmt: skip
def test_a_clients_path_goes_behind_the_bases(base: str, target: bytes, sent: bytes) -> None:
    assert Upstream(base, link=OverHttpx(httpx.MockTransport(lambda _: httpx.Response(200)))).target(target) == sent


@pytest.mark.parametrize(
    "base",
    ["", "api.openai.com", "ftp://host/v1", "https://", "https://user:pw@host/v1", "https://h/v1?x=1", "https://h/#x", "http://[::1"],
)  # fmt: skip
def test_a_base_that_cannot_be_sent_to_is_refused_at_start(base: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        Upstream(base)


# Requests


def test_a_request_has_the_target_and_the_headers() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, headers=[("X-A", "1"), ("X-A", "2")], content=b"{}")

    async def check() -> None:
        headers = [(b"authorization", b"Bearer x"), (b"host", b"proxy"), (b"te", b"x"), (b"x-plimsoll-mode", b"off")]
        got = await over(handler).send("POST", b"/v1/../y?", headers, b"body")
        (request,) = seen
        assert request.headers.raw == [
            (b"host", b"api.example"),
            (b"authorization", b"Bearer x"),
            (b"content-length", b"4"),
        ]
        assert request.extensions["target"] == b"/v1/../y?"
        assert request.content == b"body"
        assert (got.status, got.headers) == (201, [(b"x-a", b"1"), (b"x-a", b"2"), (b"content-length", b"2")])
        assert await got.read(100) == b"{}"
        assert got.whole

    run(check())


@pytest.mark.parametrize(
    ("length", "body", "framing"),
    [
        (None, None, []),
        (b"0", None, [(b"content-length", b"0")]),
        (b"5", None, [(b"content-length", b"0")]),
        (None, b"ab", [(b"content-length", b"2")]),
        (b"2", b"ab", [(b"content-length", b"2")]),
        (b"5", b"ab", [(b"content-length", b"2")]),
    ],
)
def test_the_length_is_the_bodys(length: bytes | None, body: bytes | None, framing: list[tuple[bytes, bytes]]) -> None:
    async def check() -> None:
        async with recording() as up:
            upstream = Upstream(up.url)
            await upstream.send("POST", b"/v1/x", [] if length is None else [(b"content-length", length)], body)
            assert up.requests[0].headers[1:] == framing
            assert up.requests[0].body == (body or b"")
            await upstream.close()

    run(check())


@pytest.mark.parametrize("length", [None, b"6"])
def test_a_streamed_body_goes_out_under_its_length_or_in_chunks(length: bytes | None) -> None:
    async def check() -> None:
        async with recording() as up:
            upstream = Upstream(up.url)
            headers = [] if length is None else [(b"content-length", length)]
            await (await upstream.send("POST", b"/v1/x", headers, pieces(b"abc", b"def"))).read(10)
            (request,) = up.requests
            framing = (b"transfer-encoding", b"chunked") if length is None else (b"content-length", length)
            assert request.headers[1:] == [framing]
            assert request.body == b"abcdef"
            await upstream.close()

    run(check())


def test_a_key_is_added_where_the_client_has_none() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200)

    async def check() -> None:
        upstream = Upstream("https://api.example/v1", api_key="ours", link=OverHttpx(httpx.MockTransport(handler)))
        for headers in ([], [(b"authorization", b"Bearer theirs")], [(b"api-key", b"theirs")]):
            await upstream.send("GET", b"/v1/models", headers)
        assert seen == ["Bearer ours", "Bearer theirs", None]

    run(check())


def test_another_key_is_sent_from_then_on() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200)

    async def check() -> None:
        upstream = Upstream("https://api.example/v1", link=OverHttpx(httpx.MockTransport(handler)))
        for key in (None, "new", None):
            upstream.use_key(key)
            assert upstream.has_key == (key is not None)
            await upstream.send("GET", b"/v1/models", [])
        assert seen == [None, "Bearer new", None]

    run(check())


# Answers


async def parts(request: Request, peer: Peer) -> None:
    await peer.send(head(b"200 OK", b"transfer-encoding: chunked"))
    for part in (b"one", b"two", b"three"):
        await peer.send(chunk(part))
    await peer.send(chunk(b""))


def test_an_answer_is_read_once_from_where_reading_stands() -> None:
    async def check() -> None:
        async with recording(parts) as up:
            upstream = Upstream(up.url)
            got = await upstream.send("GET", b"/v1/x", [])
            seen = await got.next()
            async for part in got.chunks():
                seen += part
                break
            seen += b"".join([part async for part in got.chunks()])
            assert seen == b"onetwothree"
            assert got.whole
            assert await got.next() == b""
            await upstream.close()

    run(check())


def test_a_long_answer_is_read_up_to_the_limit_and_then_on() -> None:
    body = bytes(1_000_000)

    async def speaks(request: Request, peer: Peer) -> None:
        await peer.send(answer(body))

    async def check() -> None:
        async with recording(speaks) as up:
            upstream = Upstream(up.url)
            got = await upstream.send("GET", b"/v1/x", [])
            begun = await got.read(1000)
            assert 1000 < len(begun) < len(body)
            assert not got.whole
            assert begun + await got.read(len(body)) == body
            await upstream.close()

    run(check())


def test_an_answer_that_is_given_up_closes_its_connection_and_a_whole_one_does_not() -> None:
    async def streams(request: Request, peer: Peer) -> None:
        await (parts(request, peer) if request.target == b"/v1/whole" else begins(peer))

    async def begins(peer: Peer) -> None:
        await peer.send(head(b"200 OK", b"transfer-encoding: chunked"), chunk(b"one"))
        await peer.gone()

    async def check() -> None:
        async with recording(streams) as up:
            upstream = Upstream(up.url)
            got = await upstream.send("GET", b"/v1/whole", [])
            assert await got.read(100) == b"onetwothree"
            await got.close()
            assert upstream.connections == up.open == 1
            got = await upstream.send("GET", b"/v1/begun", [])
            await got.close()
            await eventually(lambda: upstream.connections == up.open == 0)
            await upstream.close()

    run(check())


# Failures


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_has_a_meaning(fault: Fault) -> None:
    error = UpstreamError.of(TransportError(fault, "text"))
    assert (error.status, error.code) == CLIENT_ERRORS[fault]
    told = error.for_client()
    assert (told.status, told.code, told.retry) == (error.status, error.code, True)
    assert str(error) == "text" and told.message.partition(" (")[0] == "text"


def test_a_silent_upstream_is_a_timeout() -> None:
    async def hangs(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(hangs) as up:
            upstream = Upstream(up.url, Timeouts(read=0.2))
            with pytest.raises(UpstreamError, match=r"sent no byte for 0.2 seconds") as raised:
                await upstream.send("GET", b"/v1/x", [])
            assert raised.value.status == 504
            await upstream.close()

    run(check())


def test_an_answer_needs_no_more_than_a_reply() -> None:
    class Fixed:
        def __init__(self) -> None:
            self.status = 200
            self.headers: list[tuple[bytes, bytes]] = []

        async def read(self) -> bytes:
            return b""

        async def pipe_to(self, sink: object) -> None:
            return

        def buffered_body(self) -> bytes | None:
            return None

        async def aclose(self) -> None:
            raise AssertionError("a whole answer is not given up")

    async def check() -> None:
        got = Answer(Fixed())
        assert await got.read(1) == b""
        await got.close()

    run(check())


def test_U16_a_client_whose_upstream_is_not_reached_learns_where_to_look() -> None:
    unknown = UpstreamError.of(TransportError(Fault.CONNECT, "Name or service not known"))
    assert unknown.for_client().message == "Name or service not known (see the proxy's log)"
    silent = UpstreamError.of(TransportError(Fault.READ_TIMEOUT, "silence"))
    assert silent.for_client().message == "silence"
