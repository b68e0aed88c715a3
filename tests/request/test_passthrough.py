"""What passes through reaches the other side as it was sent, at the pace that the other side takes it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import ssl
from pathlib import Path

import pytest

from proxy.http.client.pool import Timeouts
from proxy.upstreams.upstream import Upstream
from tests.ports import held_port
from tests.recorder import EVENTS, Peer, Request, answer, chunk, head, read_chunks, recording
from tests.serving import Client, ask, dialling, eventually, get, post, proxying, run

MEGABYTE = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of memory that this process (client, proxy and upstream) has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


# Requests


def test_a_request_keeps_its_bytes_and_gets_no_header_that_it_had_not() -> None:
    body = b'{"model":"m",\n  "messages": [ ] , "x":1.0}'
    sent = (
        b"user-agent: mine",
        b"Authorization: Bearer sk-1",
        b"accept-encoding: gzip, deflate, zstd",
        b"x-stainless-lang: python",
        b"cookie: a=1",
        b"cookie: b=2",
        b"traceparent: 00-1-2-01",
    )

    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, post(body, *sent))).status == 200
            (request,) = up.requests
            host = b"host: 127.0.0.1:%d" % up.port
            lowered = [b": ".join((line.split(b": ")[0].lower(), line.split(b": ")[1])) for line in sent]
            assert request.head.split(b"\r\n") == [
                b"POST /v1/things HTTP/1.1",
                host,
                *lowered,
                b"content-length: %d" % len(body),
                b"",
                b"",
            ]
            assert request.body == body

    run(check())


def test_what_concerns_one_connection_only_ends_here() -> None:
    sent = (
        b"connection: keep-alive, X-Secret, close",
        b"x-secret: 1",
        b"keep-alive: timeout=5",
        b"te: trailers",
        b"proxy-authorization: Basic eA==",
        b"proxy-connection: keep-alive",
        b"trailer: x-t",
        b"x-plimsoll-mode: off",
        b"X-Plimsoll-Anything: 1",
        b"accept: */*",
    )

    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, get(b"/v1/models", *sent))).status == 200
            assert [name for name, _ in up.requests[0].headers] == [b"host", b"accept"]

    run(check())


def test_expect_is_answered_here_and_not_forwarded() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/things", b"expect: 100-continue", b"content-length: 2", method=b"POST"))
            assert (await client.head()).status == 100
            await client.send(b"{}")
            assert (await client.reply()).status == 200
            assert up.requests[0].header(b"expect") == []
            assert up.requests[0].body == b"{}"

    run(check())


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"PURGE", b"REPORT"])
def test_every_method_passes(method: bytes) -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, post(b"{}", method=method))).status == 200
            assert up.requests[0].method == method
            assert up.requests[0].body == b"{}"

    run(check())


def test_trace_is_refused() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, get(method=b"TRACE"))
            assert reply.status == 405
            assert reply.header(b"allow")
            assert up.requests == []
            assert [(o.result, o.status) for o in proxy.outcomes] == [("rejected", 405)]

    run(check())


def test_an_empty_body_stays_empty() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            await ask(proxy.port, get(method=b"POST"))
            await ask(proxy.port, post(b""))
            assert [r.header(b"content-length") for r in up.requests] == [[], [b"0"]]
            assert [r.header(b"transfer-encoding") for r in up.requests] == [[], []]

    run(check())


def test_a_packed_body_is_passed_on_packed() -> None:
    packed = gzip.compress(b'{"model":"m"}')

    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy:
            await ask(proxy.port, post(packed, b"content-encoding: gzip"))
            assert up.requests[0].body == packed
            assert up.requests[0].header(b"content-encoding") == [b"gzip"]

    run(check())


def test_a_chunked_body_arrives_chunked_and_whole() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/files", b"transfer-encoding: chunked", method=b"POST"))
            await client.send(chunk(b"one"), chunk(b"two"), chunk(b"three"), chunk(b""))
            assert (await client.reply()).status == 200
            (request,) = up.requests
            assert request.body == b"onetwothree"
            assert request.header(b"content-length") == [] or request.header(b"content-length") == [b"11"]

    run(check())


def test_trailers_never_become_headers() -> None:
    async def check() -> None:
        async with recording() as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(
                get(b"/v1/files", b"transfer-encoding: chunked", b"trailer: authorization", method=b"POST")
                + b"1\r\nx\r\n0\r\nAuthorization: Bearer evil\r\nHost: evil\r\nx-t: evil\r\n\r\n"
            )
            assert (await client.reply()).status == 200
            assert b"evil" not in up.requests[0].head + up.requests[0].raw_body

    run(check())


def test_bytes_of_a_body_pass_while_the_client_still_sends() -> None:
    got = asyncio.Event()

    async def echoes(request: Request, peer: Peer) -> None:
        assert await peer.reader.readexactly(5) == b"first"
        got.set()
        assert await peer.reader.readexactly(6) == b"second"
        await peer.send(answer())

    async def check() -> None:
        async with recording(echoes, streaming=True) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/files", b"content-length: 11", method=b"POST"), b"first")
            await asyncio.wait_for(got.wait(), 30)
            await client.send(b"second")
            assert (await client.reply()).status == 200

    run(check())


def test_an_answer_that_comes_before_the_end_of_the_upload_is_handed_on_and_the_connection_goes_on() -> None:
    async def refuses(request: Request, peer: Peer) -> None:
        if request.method == b"POST":
            await peer.reader.readexactly(1000)
            await peer.send(answer(b"{}", b"413 Content Too Large", (b"connection: close",)))
            peer.close()
        else:
            await peer.send(answer(b"next"))

    async def check() -> None:
        async with recording(refuses, streaming=True) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/files", b"content-length: 100000", method=b"POST"), b"x" * 1000)
            assert (await client.reply()).status == 413
            await client.send(b"x" * 99000)  # is taken: to close at once would have lost the answer
            await client.send(get())
            assert (await client.reply()).body == b"next"

    run(check())


# Answers


def test_an_answer_keeps_its_status_its_headers_in_order_and_its_bytes() -> None:
    packed = gzip.compress(b'{"a":1}')
    sent = (
        b"Date: Mon, 01 Jan 2024 00:00:00 GMT",
        b"Server: theirs",
        b"Content-Type: application/json",
        b"Content-Encoding: gzip",
        b"Set-Cookie: a=1; Path=/",
        b"X-Request-Id: req_1",
        b"Set-Cookie: b=2",
        b"x-ratelimit-remaining-requests: 0",
        b"retry-after: 20",
        b"x-should-retry: false",
    )

    async def limits(request: Request, peer: Peer) -> None:
        await peer.send(answer(packed, b"429 Too Many Requests", sent))

    async def check() -> None:
        async with recording(limits) as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, get())
            assert reply.status == 429
            expected = [(n.lower(), v) for n, _, v in (line.partition(b": ") for line in sent)]
            assert reply.headers == [*expected, (b"content-length", b"%d" % len(packed))]
            assert reply.body == packed
            assert [(o.result, o.status) for o in proxy.outcomes] == [("passed", 429)]

    run(check())


def test_what_concerns_the_upstreams_connection_does_not_reach_the_client() -> None:
    async def closes(request: Request, peer: Peer) -> None:
        named = (b"Connection: close, X-Hop", b"X-Hop: 1", b"Keep-Alive: timeout=5", b"Upgrade: h2c", b"x: y")
        await peer.send(answer(headers=named))
        peer.close()

    async def check() -> None:
        async with recording(closes) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            for _ in range(2):
                await client.send(get())
                reply = await client.reply()
                assert [n for n, _ in reply.headers] == [b"x", b"content-length"]
            assert up.connections == 2

    run(check())


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        (b"HEAD", head(b"200 OK", b"content-length: 1234", b"content-type: application/json")),
        (b"GET", head(b"204 No Content")),
        (b"DELETE", head(b"204 No Content", b"content-length: 0")),
        (b"GET", head(b"304 Not Modified", b"content-length: 1234", b'etag: "a"')),
    ],
)
def test_answers_without_a_body_pass_and_the_next_one_too(method: bytes, raw: bytes) -> None:
    async def says(request: Request, peer: Peer) -> None:
        await peer.send(raw if request.target == b"/v1/first" else answer(b"next"))

    async def check() -> None:
        async with recording(says) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get(b"/v1/first", method=method))
            first = await client.reply(bodyless=True)
            assert first.status == int(raw.split(b" ")[1])
            if method == b"HEAD":
                assert first.header(b"content-length") == [b"1234"]
            await client.send(get(b"/v1/second"))
            assert (await client.reply()).body == b"next"

    run(check())


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def old(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n", b"all of it")
        peer.close()

    async def check() -> None:
        async with recording(old) as up, proxying(up.url) as proxy:
            assert (await ask(proxy.port, get())).body == b"all of it"
            assert [o.result for o in proxy.outcomes] == ["passed"]

    run(check())


def test_interim_answers_are_left_out() -> None:
    async def hints(request: Request, peer: Peer) -> None:
        await peer.send(head(b"100 Continue"), head(b"103 Early Hints", b"link: </x>"), answer(b"final"))

    async def check() -> None:
        async with recording(hints) as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, post())
            assert (reply.status, reply.body, reply.header(b"link")) == (200, b"final", [])

    run(check())


def test_a_redirect_is_passed_on_and_not_followed() -> None:
    async def moves(request: Request, peer: Peer) -> None:
        await peer.send(answer(b"", b"307 Temporary Redirect", (b"location: https://elsewhere.example/v1/x",)))

    async def check() -> None:
        async with recording(moves) as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, post())
            assert (reply.status, reply.header(b"location")) == (307, [b"https://elsewhere.example/v1/x"])
            assert len(up.requests) == 1

    run(check())


PIECES = [b"d", b"a", b"ta: {}\r\n\r\n", b": comment\n\n", b"data: \xe2", b"\x82\xac\n\n", b"data: [DONE]\n\n"]


def test_every_chunk_of_a_stream_passes_before_the_next_one_is_sent() -> None:
    async def check() -> None:
        seen = asyncio.Semaphore(0)

        async def waits(request: Request, peer: Peer) -> None:
            await peer.send(EVENTS)
            for piece in PIECES:
                await peer.send(chunk(piece))
                await asyncio.wait_for(seen.acquire(), 30)
            await peer.send(chunk(b""))

        async with recording(waits) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(post(target=b"/v1/responses"))
            assert (await client.head()).header(b"content-type") == [b"text/event-stream"]
            for piece in PIECES:
                assert await client.reader.readexactly(len(chunk(piece))) == chunk(piece)
                seen.release()
            assert await client.reader.readexactly(5) == b"0\r\n\r\n"
            await eventually(lambda: [(o.result, o.stream) for o in proxy.outcomes] == [("passed", True)])

    run(check())


# Back-pressure


async def widest(rise: list[int], start: int) -> None:
    while True:
        rise[0] = max(rise[0], resident() - start)
        await asyncio.sleep(0.01)


def test_a_download_of_256_megabytes_does_not_grow_memory() -> None:
    block = bytes(MEGABYTE)

    async def pours(request: Request, peer: Peer) -> None:
        await peer.send(head(b"200 OK", b"content-length: %d" % (256 * MEGABYTE)))
        for _ in range(256):
            await peer.send(block)

    async def check() -> None:
        async with recording(pours) as up, proxying(up.url) as proxy, dialling(proxy.port, 1 << 16) as client:
            rise = [0]
            measuring = asyncio.create_task(widest(rise, resident()))
            await client.send(get(b"/v1/files/1/content"))
            await client.head()
            got = 0
            while got < 256 * MEGABYTE:
                got += len(await client.reader.read(1 << 16))
            measuring.cancel()
            assert got == 256 * MEGABYTE
            assert rise[0] < 32 * MEGABYTE

    run(check())


def test_an_upstream_waits_for_a_client_that_does_not_read() -> None:
    block = bytes(MEGABYTE)
    pushed = [0]

    async def pours(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS)
        while True:
            await peer.send(chunk(block))
            pushed[0] += MEGABYTE

    async def check() -> None:
        async with recording(pours) as up, proxying(up.url) as proxy, dialling(proxy.port, 1 << 16) as client:
            start = resident()
            await client.send(post(target=b"/v1/responses"))
            await client.head()
            await stands_still(pushed)
            assert pushed[0] < 48 * MEGABYTE  # what the sockets' own buffers hold
            assert resident() - start < 32 * MEGABYTE
            client.reset()
            await eventually(lambda: up.open == 0)

    run(check())


async def stands_still(counter: list[int]) -> None:
    last = -1
    while last != counter[0] or not last:
        last = counter[0]
        await asyncio.sleep(0.2)


def test_an_upload_of_256_megabytes_does_not_grow_memory() -> None:
    block = bytes(MEGABYTE)
    got = [0]

    async def swallows(request: Request, peer: Peer) -> None:
        while got[0] < 256 * MEGABYTE:
            got[0] += len(await peer.reader.read(1 << 16))
        await peer.send(answer())

    async def check() -> None:
        async with recording(swallows, streaming=True) as up, proxying(up.url) as proxy:
            async with dialling(proxy.port) as client:
                rise = [0]
                measuring = asyncio.create_task(widest(rise, resident()))
                await client.send(get(b"/v1/files", b"content-length: %d" % (256 * MEGABYTE), method=b"POST"))
                for _ in range(256):
                    await client.send(block)
                assert (await client.reply()).status == 200
                measuring.cancel()
                assert got[0] == 256 * MEGABYTE
                assert rise[0] < 32 * MEGABYTE

    run(check())


def test_a_client_waits_for_an_upstream_that_does_not_read() -> None:
    block = bytes(MEGABYTE)
    pushed = [0]
    slept = asyncio.Event()

    async def sleeps(request: Request, peer: Peer) -> None:
        await slept.wait()
        peer.reset()

    async def pour(client: Client) -> None:
        while True:
            await client.send(block)
            pushed[0] += MEGABYTE

    async def check() -> None:
        async with recording(sleeps, streaming=True) as up, proxying(up.url, Timeouts(write=3.0)) as proxy:
            async with dialling(proxy.port) as client:
                start = resident()
                await client.send(get(b"/v1/files", b"content-length: 10000000000", method=b"POST"))
                pouring = asyncio.create_task(pour(client))
                await stands_still(pushed)
                assert pushed[0] < 48 * MEGABYTE
                assert resident() - start < 32 * MEGABYTE
                reply = await client.reply()
                assert reply.status == 504, "an upstream that takes nothing is given up"
                pouring.cancel()
            slept.set()

    run(check())


# What goes wrong


def test_an_upstream_that_is_not_there_is_a_502_at_once() -> None:
    async def check() -> None:
        with held_port() as port:
            async with proxying(f"http://127.0.0.1:{port}/v1") as proxy:
                sent = post(b"{}", b"authorization: Bearer sk-secret")
                reply = await asyncio.wait_for(ask(proxy.port, sent), 30)
            error = json.loads(reply.body)["error"]
            assert reply.status == 502
            assert (error["type"], error["code"], error["param"]) == ("server_error", "upstream_unreachable", None)
            assert b"sk-secret" not in reply.body
            assert reply.header(b"x-should-retry") == [b"true"]
            assert [(o.result, o.status) for o in proxy.outcomes] == [("upstream_error", 502)]

    run(check())


def test_a_host_that_nobody_knows_is_a_502() -> None:
    async def check() -> None:
        async with proxying("http://no-such-host.invalid/v1") as proxy:
            reply = await asyncio.wait_for(ask(proxy.port, get()), 30)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (502, "upstream_unreachable")

    run(check())


def test_an_upstream_that_hangs_before_the_head_is_a_504() -> None:
    async def hangs(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(hangs) as up, proxying(up.url, Timeouts(read=0.2)) as proxy:
            reply = await ask(proxy.port, post())
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (504, "upstream_timeout")
            assert reply.header(b"x-should-retry") == [b"true"]
            await eventually(lambda: up.open == 0)

    run(check())


ILLEGAL = [
    b"NONSENSE\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000 + b"\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
]


@pytest.mark.parametrize("raw", ILLEGAL, ids=range(len(ILLEGAL)))
def test_an_illegal_answer_is_a_502(raw: bytes) -> None:
    async def speaks(request: Request, peer: Peer) -> None:
        await peer.send(raw)
        await peer.gone()

    async def check() -> None:
        async with recording(speaks) as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, get())
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (502, "upstream_error")
            await eventually(lambda: up.open == 0)

    run(check())


def test_a_certificate_that_nobody_signed_is_a_502(certificate: ssl.SSLContext) -> None:
    async def check() -> None:
        async with recording(tls=certificate) as up, proxying(up.url) as proxy:
            reply = await ask(proxy.port, get(b"/v1/models", b"authorization: Bearer sk-secret"))
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (502, "upstream_unreachable")
            assert b"sk-secret" not in reply.body
            assert up.requests == []

    run(check())


def test_an_upstream_behind_tls_is_passed_to(trusted: ssl.SSLContext) -> None:
    async def check() -> None:
        async with recording(tls=trusted) as up, proxying(up.url.replace("127.0.0.1", "localhost")) as proxy:
            for _ in range(2):
                assert (await ask(proxy.port, post(b"x" * 100_000, method=b"PUT"))).status == 200
            assert [r.body for r in up.requests] == [b"x" * 100_000] * 2
            assert up.connections == 1

    run(check())


def test_a_key_of_ours_is_sent_only_where_the_client_has_none() -> None:
    async def check() -> None:
        async with recording() as up, proxying("", upstream=Upstream(up.url, api_key="ours")) as proxy:
            await ask(proxy.port, get())
            await ask(proxy.port, get(b"/v1/models", b"authorization: Bearer theirs"))
            await ask(proxy.port, get(b"/v1/models", b"x-api-key: theirs"))
            keys = [r.header(b"authorization") for r in up.requests]
            assert keys == [[b"Bearer ours"], [b"Bearer theirs"], []]

    run(check())


def test_an_upload_that_stalls_behind_the_answers_head_breaks_the_answer_off() -> None:
    async def starts(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(b"data: {}\n\n"))
        await peer.gone()

    async def check() -> None:
        async with recording(starts, streaming=True) as up, proxying(up.url, body_seconds=2.0) as proxy:
            async with dialling(proxy.port) as client:
                await client.send(get(b"/v1/files", b"content-length: 1000000", method=b"POST"), b"x")
                assert (await client.head()).status == 200
                assert await client.rest() == chunk(b"data: {}\n\n")
            assert [(o.result, o.status) for o in proxy.outcomes] == [("rejected", 408)]
            await eventually(lambda: up.open == 0)

    run(check())


def test_a_request_that_the_server_stops_is_told_as_such() -> None:
    async def hangs(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(hangs) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get())
            await eventually(lambda: up.requests)
            (task,) = proxy.server.port.tasks
            task.cancel()
            await eventually(lambda: [o.result for o in proxy.outcomes] == ["stopped"])
            await eventually(lambda: up.open == 0)

    run(check())


def test_a_chunked_answer_is_read_by_a_raw_client_as_it_was_sent() -> None:
    async def streams(request: Request, peer: Peer) -> None:
        await peer.send(EVENTS, chunk(b"a"), chunk(b"b") + chunk(b"c") + chunk(b""))

    async def check() -> None:
        async with recording(streams) as up, proxying(up.url) as proxy, dialling(proxy.port) as client:
            await client.send(get())
            await client.head()
            assert (await read_chunks(client.reader))[0] == b"abc"

    run(check())
