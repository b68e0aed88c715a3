"""The list of the wire's dangers, 1 to 14: requests that two parsers might read in two ways."""

from __future__ import annotations

import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, HELLO, friendly, upstream
from tests.hostile.raw import Wire, chunked, get, post, tried
from tests.recorder import Peer, Request, answer

SETTINGS = {"PLIMSOLL_API_KEY": "sk-operator"}
BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
FRAMED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def refused(place: Place, raw: bytes, *statuses: int) -> None:
    """Bytes get one of these answers of ours, or the connection's end, and nothing of them goes on."""
    got = tried(place.proxy.port, raw)
    assert got is None or got.status in (statuses or (400,)), got
    assert got is None or set(got.json["error"]) == {"message", "type", "param", "code"}
    assert place.seen() == []


def test_D01_a_length_and_chunks_together_are_refused(place: Place) -> None:
    for heads in (
        b"content-length: 6\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: %d\r\n" % len(FRAMED + SMUGGLED),
        b"content-length: 0\r\ntransfer-encoding: chunked\r\n",
    ):
        refused(place, START + heads + b"\r\n" + FRAMED + SMUGGLED)


def test_D02_two_lengths_that_differ_are_refused(place: Place) -> None:
    for lengths in (b"5\r\ncontent-length: 6", b"5, 6", b"+5", b"-1", b"5 5", b"0x5", b"", b"1" * 30):
        refused(place, START + b"content-length: " + lengths + b"\r\n\r\n" + BODY + SMUGGLED)


def test_D03_codings_that_only_look_like_chunks_are_refused(place: Place) -> None:
    for coding in (
        b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity",
        b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"transfer-encoding: \x0bchunked",
        b"transfer-encoding : chunked",
        b"transfer-encoding: chunked;q=1",
        b"transfer-encoding:",
    ):
        refused(place, START + coding + b"\r\n\r\n" + FRAMED + SMUGGLED, 400, 501)


@pytest.mark.parametrize("target", [CHAT.encode(), b"/v1/other"])
def test_D04_chunks_that_are_none_are_refused(place: Place, target: bytes) -> None:
    start = get(target, b"transfer-encoding: chunked", method=b"POST")
    for framing in (
        b"zz\r\n" + BODY,
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"f" * 17 + b"\r\n" + BODY,
        b"fffffffffffffffff\r\n" + BODY,
        b"\r\nhello\r\n0\r\n\r\n",
    ):
        got = tried(place.proxy.port, start + framing)
        assert got is None or got.status == 400, (framing, got)
    assert place.seen() == [], "half a body is no request"


def test_D05_trailers_never_become_headers(place: Place) -> None:
    for target in (CHAT.encode(), b"/v1/other"):
        raw = chunked(BODY, headers=(b"trailer: x-t, authorization",), target=target)
        trailers = b"authorization: Bearer sk-trailer\r\nhost: evil\r\nx-t: evil\r\ncontent-length: 3\r\n\r\n"
        got = tried(place.proxy.port, raw[:-2] + trailers)
        assert got is not None and got.status in (200, 400)
    for request in place.seen():
        assert not request.header(b"x-t") and request.header(b"host") == [b"127.0.0.1:%d" % place.there.port]
        assert request.header(b"authorization") in ([], [b"Bearer sk-operator"])


def test_D06_folded_lines_bare_line_ends_and_nul_make_no_second_request(place: Place) -> None:
    for head in (
        START + b"x-a: 1\r\n x-b: 2\r\n",
        START.replace(b"\r\n", b"\n") + b"x-a: 1\n",
        START + b"x-a: 1\rx-b: 2\r\n",
        START + b"x-a: 1\nx-b: 2\r\n",
        START + b"x-a: \x00\r\n",
        START + b"x\x00a: 1\r\n",
        START + b" x-a: 1\r\n",
        START + b"x-a\r\n",
        START + b": 1\r\n",
        START + b"x-a: 1\r\n\r",
    ):
        place.scripted()
        got = tried(place.proxy.port, head + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
        assert got is None or got.status in (200, 400), (head, got)
        assert len(place.seen()) <= 1
        assert all(b"\nx-b" not in r.head and b"\0" not in r.head for r in place.there.requests)


def test_D07_whatever_host_says_the_way_is_the_same(place: Place) -> None:
    line = b"POST /v1/chat/completions HTTP/1.1\r\n"
    end = b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    for host in (
        b"",
        b"host: a\r\nhost: b\r\n",
        b"host: a/../?x#\r\n",
        b"host: a b\r\n",
        b"host: @evil\r\n",
        b"host:\r\n",
    ):
        place.scripted()
        got = tried(place.proxy.port, line + host + end)
        assert got is not None and got.status in (200, 400), (host, got)
        for request in place.seen():
            assert request.target == CHAT.encode()
            assert request.header(b"host") == [b"127.0.0.1:%d" % place.there.port]


def test_D08_no_target_leads_to_another_host(place: Place) -> None:
    with upstream() as evil:
        there = b"127.0.0.1:%d" % evil.port
        for target in (
            b"http://%b/v1/models" % there,
            b"http://user@%b/v1/models" % there,
            b"@%b/v1/models" % there,
            b"/v1@%b/models" % there,
            b"//%b/v1/models" % there,
            b"/v1//%b/models" % there,
            b"/\\%b/models" % there,
            b"/v1/models#@%b" % there,
        ):
            got = tried(place.proxy.port, get(target))
            assert got is None or got.status in (200, 400, 404), (target, got)
        assert tried(place.proxy.port, get(there, method=b"CONNECT")).status in (400, 405, 501)  # type: ignore[union-attr]
        place.seen()
        assert evil.connections == 0
        assert all(r.header(b"host") == [b"127.0.0.1:%d" % place.there.port] for r in place.there.requests)


def test_D09_dots_in_a_path_are_refused_or_stay(place: Place) -> None:
    for target in (
        b"/v1/../../admin",
        b"/v1/%2e%2e/%2E%2e/admin",
        b"/v1/./models/..",
        b"/v1/..%2f..%2fadmin",
        b"/../v1/x",
    ):
        place.scripted()
        got = tried(place.proxy.port, get(target))
        assert got is not None and got.status in (200, 400)
        assert [r.target for r in place.seen()] == ([] if got.status == 400 else [place_of(target)])


def place_of(target: bytes) -> bytes:
    """Where a target leads below the upstream's URL, which ends with /v1."""
    return target if target.startswith(b"/v1/") else b"/v1" + target


def test_D10_a_target_arrives_byte_for_byte(place: Place) -> None:
    targets = [
        b"/v1/files/a%2Fb%2fc",
        b"/v1/a%20b+c",
        b"/v1/x?a=b%20c&d|e",
        b"/v1/x?a=1;b=%zz&&=",
        b"/v1/x;y=z,w:(1)'!*~",
        b"/v1/x?",
        b"/v1/x/",
        b'/v1/{id}/[0]?^`"<>',
    ]
    for target in targets:
        got = tried(place.proxy.port, get(target))
        assert got is not None and got.status == 200, target
    raw = b"/v1/x?q=\xc3\xa4\xff"  # no legal target (RFC 3986, 2): it may be refused, not be mended
    got = tried(place.proxy.port, get(raw))
    assert got is not None and got.status in (200, 400)
    assert [r.target for r in place.seen()] == targets + ([raw] if got.status == 200 else [])


def test_D11_what_belongs_to_one_connection_ends_with_it(place: Place) -> None:
    headers = (
        b"connection: x-secret, keep-alive, TE, upgrade, http2-settings",
        b"x-secret: 1",
        b"te: trailers",
        b"keep-alive: timeout=5",
        b"proxy-connection: keep-alive",
        b"proxy-authorization: Basic eDp5",
        b"expect: 100-continue",
        b"upgrade: h2c",
        b"http2-settings: AAMAAABkAAQAAP__",
        b"x-stays: 1",
    )
    for target in (CHAT.encode(), b"/v1/other"):
        got = tried(place.proxy.port, post(BODY, *headers, target=target))
        assert got is not None and got.status == 200
    dropped = {h.partition(b":")[0] for h in headers} - {b"x-stays", b"connection"}
    for request in place.seen():
        names = {name.lower() for name, _ in request.headers}
        assert not names & dropped and b"x-stays" in names
        assert b"x-secret" not in b",".join(request.header(b"connection")).lower()
        assert request.body == BODY


def test_D12_heads_that_are_too_large_cost_nothing(place: Place) -> None:
    with place.proxy.working(2):
        for _ in range(5):
            refused(place, get(b"/v1/x", b"x-long: " + b"a" * 70_000), 431)
            refused(place, get(b"/v1/x", *(b"x-%d: 1" % i for i in range(250))), 431)
            refused(place, get(b"/v1/" + b"a" * 40_000), 414)
            refused(place, get(b"/v1/x?" + b"a" * 40_000), 414)


def test_D13_requests_one_behind_the_other_are_answered_in_their_order(place: Place) -> None:
    async def echoing(request: Request, peer: Peer) -> None:
        await peer.send(
            answer(b"[%b]" % request.target) if request.target.startswith(b"/v1/e/") else answer(request.body)
        )

    place.scripted(echoing)
    with Wire(place.proxy.port) as wire:
        wire.send(
            get(b"/v1/e/1") + post(BODY) + get(b"/v1/e/2") + chunked(b"ab", b"c", target=b"/v1/x") + get(b"/v1/e/3")
        )
        assert [wire.reply().body for _ in range(5)] == [b"[/v1/e/1]", BODY, b"[/v1/e/2]", b"abc", b"[/v1/e/3]"]


def test_D14_trace_tells_nobody_what_the_proxy_adds(place: Place) -> None:
    async def tracing(request: Request, peer: Peer) -> None:
        await peer.send(answer(request.head))

    place.scripted(tracing)
    got = tried(place.proxy.port, get(b"/v1/x", method=b"TRACE"))
    assert got is not None and got.status == 405 and b"sk-operator" not in got.body
    place.there.script = friendly
    assert place.ask(HELLO).status == 200 and place.ask(HELLO).json["choices"]
