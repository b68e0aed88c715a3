"""Bytes by chance, from clients and from upstreams: no 500 of ours, no request that nobody sent, no answer mended."""

from __future__ import annotations

import gzip
import http.client
import io
import re
import select
from collections.abc import Iterator

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.hostile.harness import CHAT, HELLO, Running, friendly, ok, running, upstream
from tests.hostile.raw import Wire, chunked, get, post, tried
from tests.recorder import EVENTS, Peer, Recorder, Request, answer, chunk, head

BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
STREAM = BODY[:-1] + b', "stream": true}'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
QUIET = 0.03  # seconds without a byte after which nothing more is expected; it decides what is seen, not what is right
REQUESTS = (
    post(BODY, b"content-type: application/json"),
    post(STREAM),
    chunked(BODY[:9], BODY[9:]),
    chunked(b"x" * 300, target=b"/v1/files"),
    get(b"/v1/models?limit=5", b"accept: */*"),
    get(b"/healthz"),
    post(gzip.compress(BODY), b"content-encoding: gzip"),
    post(BODY, b"expect: 100-continue", b"connection: close"),
    get(b"/v1/x") + post(BODY) + get(b"/v1/y"),
    post(BODY, target=b"/inspect/v1/chat/completions"),
    get(b"/v1/realtime", b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-key: eA=="),
)
ANSWERS = (
    ok(usage=8),
    answer(BODY, b"400 Bad Request"),
    EVENTS + chunk(DELTA) * 3 + chunk(DONE) + chunk(b""),
    head(b"200 OK", b"content-type: text/event-stream") + DELTA * 3 + DONE,
    head(b"200 OK", b"transfer-encoding: chunked", b"trailer: x-a") + chunk(BODY) + b"0\r\nx-a: 1\r\n\r\n",
    answer(gzip.compress(BODY), headers=(b"content-type: application/json", b"content-encoding: gzip")),
    head(b"103 Early Hints", b"link: </x>") + ok(),
    head(b"204 No Content"),
    answer(b'{"error":{"message":"maximum context length is 10 tokens","code":"context_length_exceeded"}}', b"400 No"),
)
TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"\x0b",
        b"\xff",
        b"0\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1",
        b"HTTP/1.0",
    ),
    *(
        b"HTTP/2.0",
        b"transfer-encoding: chunked\r\n",
        b"content-length: 5\r\n",
        b"content-length: 0\r\n",
        b"connection: close\r\n",
    ),
    *(
        b"Transfer-Encoding: identity\r\n",
        b"upgrade: h2c\r\nconnection: upgrade\r\n",
        b"expect: 100-continue\r\n",
        b"ffffffff",
    ),
    *(
        b"-1",
        b"0x5",
        b"99999999999999999999",
        b";ext=1",
        b"host: evil\r\n",
        b"x-plimsoll-mode: off\r\n",
        b"x" * 9_000,
        b"%00",
        b"//",
    ),
    *(
        b"GET /v1/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"data: ",
        b"[DONE]",
    ),
)

numbers = st.integers(0, 2**16)
changes = st.lists(st.tuples(st.integers(0, 3), numbers, numbers), min_size=1, max_size=3)


def changed(raw: bytes, steps: list[tuple[int, int, int]]) -> bytes:
    """Bytes with some lost, doubled, replaced, or with something put between."""
    for kind, at, what in steps:
        at %= len(raw) + 1
        size, token = what % 12 + 1, TOKENS[what % len(TOKENS)]
        middle = (b"", raw[at : at + size] * 2, token, token + raw[at : at + size])[kind]
        raw = raw[:at] + middle + raw[at + size :]
    return raw


class Bench:
    """A proxy, and the upstream behind it."""

    def __init__(self, proxy: Running, there: Recorder) -> None:
        self.proxy, self.there = proxy, there


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with upstream() as there, running(there.url, PLIMSOLL_READ_TIMEOUT="5") as proxy:
        yield Bench(proxy, there)
        assert not [line for line in proxy.lines if "a bug of ours" in line or "Traceback" in line or "failed:" in line]


def heard(port: int, raw: bytes) -> bytes:
    """What comes back, until it is quiet."""
    got = b""
    with Wire(port) as wire:
        wire.send(raw)
        while select.select([wire.socket], [], [], QUIET)[0]:
            try:
                data = wire.socket.recv(1 << 16)
            except ConnectionError:
                break
            if not data:
                break
            got += data
    return got


@given(st.integers(0, len(REQUESTS) - 1), changes)
def test_no_request_makes_a_500_or_two_requests(bench: Bench, which: int, steps: list[tuple[int, int, int]]) -> None:
    raw = changed(REQUESTS[which], steps)
    bench.there.script = friendly
    bench.there.requests.clear()
    statuses = re.findall(rb"(?:^|\n|\}|\])HTTP/1\.[01] (\d\d\d)", heard(bench.proxy.port, raw))
    event(str(statuses[:1]))
    assert not {b"500", b"502"} & set(statuses), statuses
    assert tried(bench.proxy.port, post(BODY)) is not None, "it still serves"
    own = b"127.0.0.1:%d" % bench.there.port
    for request in bench.there.requests:
        assert request.header(b"host") == [own]
        assert len(request.header(b"content-length")) + len(request.header(b"transfer-encoding")) <= 1
    sent = [r for r in bench.there.requests if r.target != b"/v1/models"]
    assert len(sent) <= 1 + max(1, raw.count(b"\n\r\n") + raw.count(b"\n\n")), "one for each head"


class _Bytes:
    """A socket, to http.client."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def plainly(raw: bytes, method: str = "POST") -> tuple[int, bytes] | None:
    """Status and body as the standard library reads an answer; None where it is none, or not whole."""
    try:
        found = http.client.HTTPResponse(_Bytes(raw), method=method)  # type: ignore[arg-type]
        found.begin()
        return found.status, found.read()
    except (http.client.HTTPException, ValueError, OSError, OverflowError):
        return None


@given(st.integers(0, len(ANSWERS) - 1), changes, st.sampled_from((BODY, STREAM)), st.booleans())
def test_no_answer_is_mended(
    bench: Bench, which: int, steps: list[tuple[int, int, int]], body: bytes, fitted: bool
) -> None:
    raw = changed(ANSWERS[which], steps)

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(raw)
        peer.close()

    bench.there.script = script
    with Wire(bench.proxy.port) as wire:
        wire.send(post(body, b"connection: close", target=CHAT.encode() if fitted else b"/v1/other"))
        got = wire.rest()
    seen, real = plainly(got), plainly(raw)
    event(f"real {real and real[0]}, seen {seen and seen[0]}")
    assert got.startswith(b"HTTP/1.1 "), "an answer, or one of our own"
    assert seen is None or seen[0] != 500 or b" 500" in raw or b"500" in raw[:20], got[:200]
    if seen is not None and real is not None and seen[0] == real[0] and seen[0] != 502:
        assert seen[1] == real[1], "byte for byte"
    bench.there.script = friendly
    assert bench.proxy.ask(HELLO).status == 200, "it still serves"
