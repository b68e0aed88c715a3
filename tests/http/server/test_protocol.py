"""What a client may not do to the server: malformed, oversized and endless requests, over real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from proxy.errors import too_large
from proxy.http.memory_budget import Budget
from proxy.http.receiving import Receive, Scope, read_body
from proxy.http.relay import Send, send_error
from proxy.http.server.protocol import HEAD_TIMEOUT_S, LINGERING_SECONDS, Protocol
from proxy.http.server.request_head import MAX_HEAD, MAX_HEADERS, MAX_PIPELINED, MAX_TARGET
from tests.recorder import chunk
from tests.serving import Reply, ask, dialling, eventually, get, post, run, serving


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it saw of the request."""
    if scope["type"] != "http":
        return
    body = await read_body(scope, receive, 1 << 20, 5, Budget(1 << 30).room())
    headers = [[n.decode("latin-1"), v.decode("latin-1")] for n, v in scope["headers"]]
    seen = [scope["method"], scope["plimsoll.target"].decode("latin-1"), headers, body.decode("latin-1")]
    told = json.dumps(seen).encode()
    length = (b"content-length", b"%d" % len(told))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": told})


def refused(reply: Reply, status: int) -> None:
    """Asserts that it is a refusal in OpenAI's shape, after which the connection ends."""
    assert reply.status == status
    assert set(json.loads(reply.body)["error"]) == {"message", "type", "param", "code"}
    assert reply.header(b"content-type") == [b"application/json"]
    assert reply.header(b"x-should-retry") == [b"false"]
    assert reply.header(b"connection") == [b"close"]


def headed(*headers: bytes, body: bytes = b"") -> bytes:
    return get(b"/v1/x", *headers, method=b"POST") + body


MALFORMED = [
    headed(b"content-length: 5", b"transfer-encoding: chunked", body=b"0\r\n\r\n"),
    headed(b"transfer-encoding: chunked", b"content-length: 5", body=b"0\r\n\r\n"),
    headed(b"content-length: 1", b"content-length: 2", body=b"xx"),
    headed(b"content-length: 1", b"content-length: 1", body=b"x"),
    headed(b"content-length: -1"),
    headed(b"content-length: 1x", body=b"x"),
    headed(b"transfer-encoding: chunked, identity", body=b"0\r\n\r\n"),
    headed(b"transfer-encoding: \x0bchunked", body=b"0\r\n\r\n"),
    headed(b"transfer-encoding : chunked", body=b"0\r\n\r\n"),
    headed(b"transfer-encoding: chunked", body=b"zz\r\nx\r\n0\r\n\r\n"),
    headed(b"transfer-encoding: chunked", body=b"0x1\r\nx\r\n0\r\n\r\n"),
    headed(b"transfer-encoding: chunked", body=b"1\r\nxy\r\n0\r\n\r\n"),
    headed(b"transfer-encoding: chunked", body=b"fffffffffffffffff\r\nx"),
    headed(b"x: a", b" folded"),
    headed(b"x: a\x00b"),
    headed(b"x y: a"),
    b"POST /v1/x HTTP/1.1\nhost: x\n\n",
    b"NONSENSE\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET evil HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("raw", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_legal_request_is_a_400_and_the_end(raw: bytes) -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(raw)
            refused(await client.reply(), 400)
            assert await client.rest() == b""

    run(check())


UNSPOKEN = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    *(b"GET / HTTP/%b\r\nhost: a\r\n\r\n" % v for v in (b"0.9", b"2.0", b"3.1")),
]


@pytest.mark.parametrize("raw", UNSPOKEN)
def test_another_major_version_is_a_505(raw: bytes) -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(raw)
            refused(await client.reply(), 505)

    run(check())


def test_another_minor_version_is_served_as_1_1() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            for _ in range(2):  # and the connection is kept
                await client.send(
                    b"POST /x HTTP/1.2\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
                )
                assert json.loads((await client.reply()).body)[-1] == "x"

    run(check())


CODINGS = [(b"gzip, chunked",), (b"gzip", b"chunked"), (b"deflate,chunked",), (b"chunked, chunked",), (b"xchunked",)]


@pytest.mark.parametrize("codings", CODINGS)
def test_a_coding_of_the_transfer_that_would_be_lost_is_refused(codings: tuple[bytes, ...]) -> None:
    """RFC 9112, 6.1: what a server does not understand it answers with 501."""

    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(headed(*(b"transfer-encoding: " + c for c in codings), body=b"1\r\nx\r\n0\r\n\r\n"))
            reply = await client.reply()
            assert reply.status in (400, 501)
            refused(reply, reply.status)
            assert reply.status == 501 or b"chunked, chunked" in codings

    run(check())


def test_the_name_of_the_coding_may_be_in_capitals() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"transfer-encoding: Chunked", body=b"1\r\nx\r\n0\r\n\r\n"))
            assert (await client.reply()).status == 200

    run(check())


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (get(b"/v1/x", b"x: " + b"a" * MAX_HEAD), 431),
        (get(b"/v1/x", *(b"x: " + b"a" * 1000 for _ in range(70))), 431),
        (get(b"/v1/x", *(b"x: a" for _ in range(MAX_HEADERS))), 431),
        (get(b"/v1/x?" + b"a" * MAX_TARGET), 414),
        (b"GET /v1/x HTTP/1.1\r\nx: " + b"a" * 3 * MAX_HEAD, 431),
    ],
    ids=range(5),
)
def test_a_head_over_the_limits_is_refused_at_once(raw: bytes, status: int) -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(raw)
            refused(await client.reply(), status)

    run(check(), HEAD_TIMEOUT_S / 2)


def test_a_head_just_under_the_limits_passes() -> None:
    headers = [b"x-%03d: " % i + b"a" * 250 for i in range(MAX_HEADERS - 10)]

    async def check() -> None:
        async with serving(echo) as server:
            reply = await ask(server.ports[0], get(b"/v1/x?" + b"a" * 10_000, *headers))
            assert len(json.loads(reply.body)[2]) == MAX_HEADERS - 9

    run(check())


def test_trailers_are_dropped() -> None:
    async def check() -> None:
        async with serving(echo) as server:
            body = chunk(b"ab") + b"0\r\nauthorization: evil\r\nexpect: 100-continue\r\n\r\n"
            reply = await ask(server.ports[0], headed(b"transfer-encoding: chunked", body=body))
            assert json.loads(reply.body)[2:] == [[["host", "localhost"], ["transfer-encoding", "chunked"]], "ab"]

    run(check())


@pytest.mark.parametrize("endless", [b"0\r\nx: ", b"1;x="], ids=["trailer", "chunk extension"])
def test_what_never_ends_within_a_body_is_cut_off(endless: bytes) -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"transfer-encoding: chunked", body=endless))
            for _ in range(MAX_HEAD // 1000 + 2):
                await client.send(b"a" * 1000)
                await asyncio.sleep(0)
            refused(await client.reply(), 400)

    run(check())


def test_many_small_chunks_are_no_offence() -> None:
    async def check() -> None:
        async with serving(echo) as server:
            body = chunk(b"a") * 100_000 + chunk(b"")
            reply = await ask(server.ports[0], headed(b"transfer-encoding: chunked", body=body))
            assert json.loads(reply.body)[3] == "a" * 100_000

    run(check())


def test_two_requests_at_once_get_two_answers_in_order() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(post(b"one", target=b"/v1/1") + post(b"two", target=b"/v1/2"))
            replies = [json.loads((await client.reply()).body) for _ in range(2)]
            assert [(r[1], r[3]) for r in replies] == [("/v1/1", "one"), ("/v1/2", "two")]

    run(check())


def test_garbage_behind_a_request_does_not_mix_into_its_answer() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    async def check() -> None:
        async with serving(slow) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/v1/1") + b"\x00garbage\r\n\r\n")
            assert b"400" not in await client.rest()

    run(check())


def test_a_broken_body_behind_a_begun_answer_ends_the_connection() -> None:
    async def eager(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass

    async def check() -> None:
        async with serving(eager) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"transfer-encoding: chunked"))
            await client.reader.readuntil(chunk(b"begun"))
            await client.send(b"zz\r\n")
            assert await client.rest() == b""

    run(check())


# Upgrades


@pytest.mark.parametrize("body", [b"", b"hello"])
def test_a_wish_for_http2_is_ignored_and_the_request_served(body: bytes) -> None:
    """Java's HttpClient sends this with every first request."""
    wish = (
        b"connection: Upgrade, HTTP2-Settings",
        b"upgrade: h2c",
        b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )

    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(post(body, *wish, b"x-a: 1", target=b"/v1/y?z"), b"")
            seen = json.loads((await client.reply()).body)
            length = ["content-length", str(len(body))]
            assert seen == ["POST", "/v1/y?z", [["host", "localhost"], ["x-a", "1"], length], body.decode()]
            await client.send(post(b"next"))
            assert json.loads((await client.reply()).body)[3] == "next"

    run(check())


def test_a_body_that_comes_after_a_wish_for_http2_is_a_body() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"connection: upgrade", b"upgrade: h2c", b"content-length: 16"))
            await asyncio.sleep(0.05)
            await client.send(b"GET /admin HTTP/")
            assert json.loads((await client.reply()).body)[3] == "GET /admin HTTP/"

    run(check())


WEBSOCKET = (b"connection: Upgrade", b"upgrade: WebSocket", b"sec-websocket-version: 13", b"sec-websocket-key: eA==")


def test_an_application_may_answer_a_websockets_handshake_as_any_request() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/v1/realtime", *WEBSOCKET) + get(b"/v1/frames"))
            assert json.loads((await client.reply()).body)[1] == "/v1/realtime"
            assert await client.rest() == b""  # what came behind it is read as nothing

    run(check())


# Deadlines


class Hasty(Protocol):
    """A protocol with little patience."""

    head_timeout = 1.0
    lingering_seconds = 1.0


def test_a_connection_that_has_sent_a_request_may_stay() -> None:
    async def check() -> None:
        async with serving(echo, Hasty) as server, dialling(server.ports[0]) as client:
            for _ in range(2):
                await client.send(get())
                await client.reply()
                await asyncio.sleep(Hasty.head_timeout + 0.1)
            assert not client.reader.at_eof()

    run(check())


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuses without reading the body."""
    if scope["type"] == "http":
        await send_error(send, too_large(1), b"{}")


def test_the_rest_of_a_refused_body_is_taken_but_not_for_ever() -> None:
    async def check() -> None:
        async with serving(refuses, Hasty) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"content-length: 2000000"), b"x" * 1_000_000)
            assert (await client.reply()).status == 413
            assert await client.rest() == b""

    run(check(), LINGERING_SECONDS / 2)


def test_a_refused_body_that_comes_whole_leaves_the_connection_open() -> None:
    async def check() -> None:
        async with serving(refuses, Hasty) as server, dialling(server.ports[0]) as client:
            await client.send(post(b"x" * 500_000))
            assert (await client.reply()).status == 413
            await asyncio.sleep(Hasty.lingering_seconds + 0.1)
            await client.send(post(b"x"))
            assert (await client.reply()).status == 413

    run(check())


def test_connections_that_end_leave_nothing_behind() -> None:
    async def check() -> None:
        async with serving(echo) as server:
            for raw in (b"", b"GET", b"NONSENSE\r\n\r\n", get(), headed(b"content-length: 5")):
                async with dialling(server.ports[0]) as client:
                    await client.send(raw)
                    await asyncio.sleep(0.01)
            await eventually(lambda: not server.port.connections and not server.port.tasks, 30)

    run(check())


class Brief(Protocol):
    """A server that keeps an idle connection for a second."""

    keep_alive_expiry = 1.0


def test_a_connection_that_nobody_uses_any_more_is_closed_and_one_in_use_is_not() -> None:
    async def check() -> None:
        async with serving(echo, http=Brief) as server, dialling(server.ports[0]) as client:
            began = time.monotonic()
            while time.monotonic() < began + 2 * Brief.keep_alive_expiry:
                await client.send(get(b"/v1/x"))
                assert (await client.reply()).status == 200
            assert await client.rest() == b""  # and then it ends by itself

    run(check(), 30)


class Strict(Brief, Hasty):
    """It waits neither for heads nor for requests."""


@pytest.mark.parametrize("first", [b"", get(b"/v1/x")], ids=["no_request", "a_request"])
def test_F13_empty_lines_keep_no_connection_open(first: bytes) -> None:
    async def check() -> None:
        async with serving(echo, http=Strict) as server, dialling(server.ports[0]) as client:
            await client.send(first)
            if first:
                assert (await client.reply()).status == 200
            await client.send(b"\r\n")
            assert await client.rest() == b""

    run(check(), 60)


def test_F13_empty_lines_without_end_are_cut_off() -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            await client.send(b"\r\n" * MAX_HEAD)
            refused(await client.reply(), 400)

    run(check(), 60)


def test_empty_lines_before_a_request_and_behind_one_that_is_answered_change_nothing() -> None:
    async def check() -> None:
        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.sleep(1.2)  # longer than it waits for heads or requests
            await echo(scope, receive, send)

        async with serving(slow, http=Strict) as server, dialling(server.ports[0]) as client:
            for _ in range(2):
                await client.send(b"\r\n\r\n", post(b"x"), b"\r\n")
                assert (await client.reply()).status == 200

    run(check(), 60)


def test_F13_a_connection_whose_refused_body_came_whole_is_closed_when_nobody_uses_it() -> None:
    async def check() -> None:
        async with serving(refuses, http=Brief) as server, dialling(server.ports[0]) as client:
            await client.send(headed(b"content-length: 10", body=b"x"))
            assert (await client.reply()).status == 413
            await client.send(b"x" * 9)
            assert await client.rest() == b""

    run(check(), 60)


class Hurried(Protocol):
    lingering_seconds = 0.1


def test_F8_the_body_of_the_request_behind_is_no_rest_of_the_one_before() -> None:
    async def check() -> None:
        async with serving(echo, Hurried) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/v1/1") + headed(b"content-length: 3", body=b"a"))
            assert (await client.reply()).status == 200
            await asyncio.sleep(0.4)
            await client.send(b"bc")
            assert json.loads((await client.reply()).body)[3] == "abc"

    run(check())


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_F8_many_requests_at_once_are_answered_one_after_the_other(size: int) -> None:
    async def check() -> None:
        async with serving(echo) as server, dialling(server.ports[0]) as client:
            count = 3 * MAX_PIPELINED + 1
            raw = b"".join(headed(b"content-length: %d" % size, body=b"%c" % (65 + i) * size) for i in range(count))
            sending = asyncio.create_task(client.send(raw))
            for i in range(count):
                assert json.loads((await client.reply()).body)[3] == chr(65 + i) * size
            await sending
            (connection,) = server.port.connections
            assert isinstance(connection, Protocol) and not connection.flow.held and not connection.pipeline

    run(check())


def test_F8_no_more_requests_wait_than_there_may() -> None:
    most, server = 0, list[Any]()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal most
        (connection,) = server[0].port.connections
        most = max(most, len(connection.pipeline))
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    async def check() -> None:
        async with serving(slow) as made, dialling(made.ports[0]) as client:
            server.append(made)
            await client.send(get(b"/v1/x") * 1000)
            for _ in range(1000):
                assert (await client.reply()).status == 200
        assert 0 < most <= MAX_PIPELINED

    run(check())
