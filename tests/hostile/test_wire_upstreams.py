"""The list of the wire's dangers, 15 to 24: upstreams that misbehave."""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib

import openai
import pytest

from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, HELLO, Answered, eventually, friendly, ok, running, upstream
from tests.hostile.raw import Wire, get, post, tried
from tests.ports import held_port
from tests.recorder import EVENTS, Peer, Request, Script, answer, chunk, head

SETTINGS = {"PLIMSOLL_READ_TIMEOUT": "2"}
BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}'
STREAM = b'{"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
JSON = b"content-type: application/json"
TARGETS = (CHAT.encode(), b"/v1/other")


def saying(*pieces: bytes, close: bool = True, reset: bool = False) -> Script:
    """An upstream that sends just these pieces."""

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(*pieces)
        if reset:
            await asyncio.sleep(0.05)
            peer.reset()
        elif close:
            peer.close()

    return script


def our_error(got: Answered | None, status: int) -> None:
    """It is an error of ours, in OpenAI's shape, which clients may try again."""
    assert got is not None and got.status == status, got
    assert set(got.json["error"]) == {"message", "type", "param", "code"}
    assert got.headers["x-should-retry"] == "true"


def test_D15_answers_that_are_none_become_502(place: Place) -> None:
    for said in (
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        head(b"200 OK", b"bad header"),
        head(b"200 OK", b"x y: 1", b"content-length: 0"),
        head(b"200 OK", b"x-a: 1\0", b"content-length: 0"),
        head(b"200 OK", b"x-long: " + b"a" * 200_000, b"content-length: 0"),
        head(b"200 OK", b"content-length: 2", b"content-length: 3") + b"{}",
        head(b"200 OK", b"content-length: -1"),
        head(b"200 OK", b"content-length: 2", b"transfer-encoding: chunked") + chunk(b"{}"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02",
    ):
        for target in TARGETS:
            place.scripted(saying(said))
            our_error(tried(place.proxy.port, post(BODY, target=target)), 502)
            assert len([r for r in place.there.requests if r.method == b"POST"]) == 1, "a POST is sent once"


def test_D16_an_answer_that_is_too_short_is_never_whole(place: Place) -> None:
    for said in (
        head(b"200 OK", JSON, b"content-length: 20") + b"{}",
        head(b"200 OK", JSON, b"transfer-encoding: chunked") + chunk(b"{}"),
        head(b"200 OK", JSON, b"transfer-encoding: chunked") + b"14\r\n{}",
    ):
        for target in TARGETS:
            place.scripted(saying(said))
            with Wire(place.proxy.port) as wire, pytest.raises(EOFError):
                wire.send(post(BODY, target=target))
                assert wire.reply().status == 502, "or nothing of it goes on"
                raise EOFError


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
def test_D17_a_stream_that_breaks_off_is_an_error_to_clients(place: Place, reset: bool) -> None:
    place.scripted(saying(EVENTS, chunk(DELTA), close=not reset, reset=reset))
    with Wire(place.proxy.port) as wire:
        wire.send(post(STREAM))
        assert wire.head().status == 200
        raw = wire.rest()
    assert raw.startswith(chunk(DELTA)) and b'"code":"upstream_error"' in raw and not raw.endswith(b"0\r\n\r\n")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{place.proxy.port}/v1", api_key="sk-x", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        with pytest.raises(openai.APIError):
            list(stream)


def test_D18_an_upstream_that_never_answers_is_504(place: Place) -> None:
    async def silent(request: Request, peer: Peer) -> None:
        await peer.gone()

    place.scripted(silent)
    our_error(tried(place.proxy.port, post(BODY)), 504)
    eventually(lambda: all(peer.ended for peer in place.there.peers[-1:]))


def test_D19_a_stream_that_falls_silent_is_cut_off_visibly(place: Place) -> None:
    async def falls_silent(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(DELTA))
        await peer.gone()

    place.scripted(falls_silent)
    before = place.proxy.metric("plimsoll_requests_total", result="broken_off")
    with Wire(place.proxy.port) as wire:
        wire.send(post(STREAM))
        wire.head()
        assert not wire.rest().endswith(b"0\r\n\r\n")
    eventually(lambda: place.proxy.metric("plimsoll_requests_total", result="broken_off") == before + 1)


@pytest.mark.parametrize("status", [b"429 Too Many Requests", b"503 Service Unavailable", b"529 Overloaded"])
def test_D20_a_provider_that_has_no_time_says_so_itself(place: Place, status: bytes) -> None:
    body = b'{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"},  "x":1}'
    own = (b"retry-after: 7", b"retry-after-ms: 6500", b"x-ratelimit-remaining-requests: 0", b"x-should-retry: false")
    place.scripted(saying(answer(body, status, (JSON, *own)), close=False))
    for target in TARGETS:
        got = tried(place.proxy.port, post(BODY, target=target))
        assert got is not None and (got.status, got.body) == (int(status[:3]), body)
        for line in own:
            name, _, value = line.decode().partition(": ")
            assert got.headers[name] == value
    assert len([r for r in place.there.requests if r.method == b"POST"]) == len(TARGETS), "it is not asked again"


@pytest.mark.parametrize("status", [b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"])
def test_D21_redirects_are_passed_on_and_not_followed(place: Place, status: bytes) -> None:
    with upstream() as elsewhere:
        where = b"location: http://127.0.0.1:%d/v1/x" % elsewhere.port
        place.scripted(saying(answer(b"", status, (where,)), close=False))
        for raw in (post(BODY), get()):
            got = tried(place.proxy.port, raw)
            assert got is not None and got.status == int(status[:3])
            assert f"location: {got.headers['location']}".encode() == where
        assert elsewhere.connections == 0


def test_D22_packed_answers_stay_packed(place: Place) -> None:
    plain = ok(usage=8).partition(b"\r\n\r\n")[2]
    packed = {b"gzip": gzip.compress(plain), b"deflate": zlib.compress(plain), b"br": os.urandom(500)}
    for coding, body in {**packed, b"zstd": os.urandom(500), b"gzip, br": os.urandom(9)}.items():
        for status in (b"200 OK", b"400 Bad Request"):
            for target in TARGETS:
                place.scripted(saying(answer(body, status, (JSON, b"content-encoding: " + coding)), close=False))
                got = tried(place.proxy.port, post(BODY, b"accept-encoding: " + coding, target=target))
                assert got is not None and (got.status, got.body) == (int(status[:3]), body)
                assert got.headers["content-encoding"] == coding.decode()
                asked = next(r for r in place.there.requests if r.method == b"POST")  # a refusal may be asked for again
                assert asked.header(b"accept-encoding") == [coding]


def test_D23_a_kept_connection_that_was_closed_costs_nobody_an_answer(place: Place) -> None:
    async def closing_later(request: Request, peer: Peer) -> None:
        await friendly(request, peer)
        asyncio.get_running_loop().call_later(0.01, peer.close)

    place.scripted(closing_later)
    for count in range(1, 21):
        got = tried(place.proxy.port, post(BODY))
        assert got is not None and got.status == 200
        assert len([r for r in place.there.requests if r.method == b"POST"]) == count, "no POST is sent twice"
        eventually(lambda: place.there.open == 0)


def test_D24_an_upstream_that_cannot_be_reached_is_502(workers: int) -> None:
    with upstream(saying(b"HTTP/1.1 400 no TLS\r\n\r\n")) as plain, held_port() as port:
        refused, tls = f"http://127.0.0.1:{port}/v1", f"https://127.0.0.1:{plain.port}/v1"
        for url in (refused,) if workers > 1 else (refused, tls, "http://no-such-host.invalid/v1"):
            with running(url, workers=workers, PLIMSOLL_API_KEY="sk-canary-1", PLIMSOLL_CONNECT_TIMEOUT="1") as proxy:
                for headers in ({"authorization": "Bearer sk-canary-2"}, {}):
                    got = proxy.ask(HELLO, headers=headers)
                    our_error(got, 502 if got.status != 504 else 504)  # a resolver may be slow to say no
                    assert b"canary" not in got.body
                assert not any("canary" in line for line in proxy.lines)
