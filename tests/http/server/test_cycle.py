"""Requests and answers over real sockets, as far as they are our own server's doing."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest

from proxy.apis import error_body
from proxy.errors import ClientError
from proxy.http.memory_budget import Budget
from proxy.http.receiving import Receive, Scope, cycle_of, read_body
from proxy.http.relay import ClientDisconnected, Send, send_error, until_disconnect
from proxy.http.server.cycle import Cycle
from tests.recorder import chunk
from tests.serving import ask, dialling, eventually, get, post, run, serving

OK = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
LIMIT = 1 << 20


async def lengths(scope: Scope, receive: Receive, send: Send, stall: float = 30.0) -> None:
    """Answers with the length of the body, read whole, which may stall for so many seconds."""
    if scope["type"] != "http":
        return
    try:
        body = await read_body(scope, receive, LIMIT, stall, Budget(1 << 30).room())
    except ClientError as error:
        await send_error(send, error, error_body(scope["path"], error))
        return
    told = str(len(body)).encode()
    assert body == bytes(i % 251 for i in range(len(body)))
    await send({**OK, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


def filled(size: int) -> bytes:
    return bytes(i % 251 for i in range(size))


@pytest.mark.parametrize("size", [0, 1, 70_000, LIMIT])
def test_a_body_is_read_whole_however_it_comes(size: int) -> None:
    async def check() -> None:
        async with serving(lengths) as server:
            port = server.ports[0]
            assert (await ask(port, post(filled(size)))).body == str(size).encode()
            async with dialling(port) as client:
                head, body = post(filled(size)).split(b"\r\n\r\n", 1)
                await client.send(head + b"\r\n\r\n")
                for at in range(0, size, 50_000):
                    await client.send(body[at : at + 50_000])
                    await asyncio.sleep(0.01)
                assert (await client.reply()).body == str(size).encode()

    run(check())


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_refused_before_it_ends(declared: bool) -> None:
    async def check() -> None:
        async with serving(lengths) as server, dialling(server.ports[0]) as client:
            if declared:
                await client.send(get(b"/", b"content-length: %d" % (LIMIT + 1), method=b"POST"))
            else:
                await client.send(get(b"/", b"transfer-encoding: chunked", method=b"POST"), chunk(filled(LIMIT + 1)))
            assert (await client.reply()).status == 413

    run(check())


def test_a_body_may_be_slow_but_may_not_stall() -> None:
    async def check() -> None:
        hasty = partial(lengths, stall=1.5)
        async with serving(hasty) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/", b"content-length: 10", method=b"POST"))
            for i in range(10):  # longer than the deadline, all in all
                await asyncio.sleep(0.2)
                await client.send(bytes([i]))
            assert (await client.reply()).body == b"10"
            await client.send(get(b"/", b"content-length: 10", method=b"POST"), b"\0")
            assert (await client.reply()).status == 408

    run(check())


async def tells(scope: Scope, receive: Receive, send: Send) -> None:
    """Streams two chunks, without a length."""
    if scope["type"] == "http":
        await send(STREAM)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})


def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    async def check() -> None:
        async with serving(tells) as server:
            async with dialling(server.ports[0]) as client:
                await client.send(get(b"/").replace(b"HTTP/1.1", b"HTTP/1.0"))
                answer = await client.rest()
            head, _, body = answer.partition(b"\r\n\r\n")
            assert body == b"onetwo" and b"chunked" not in head.lower()
            assert (await ask(server.ports[0], get(b"/"))).body == b"onetwo"
            async with dialling(server.ports[0]) as client:
                await client.send(get(b"/", method=b"HEAD").replace(b"HTTP/1.1", b"HTTP/1.0"))
                assert (await client.rest()).endswith(b"\r\n\r\n")

    run(check())


def test_a_client_of_http_1_0_gets_a_length_where_there_is_one() -> None:
    async def check() -> None:
        async with serving(lengths) as server, dialling(server.ports[0]) as client:
            await client.send(post(filled(7)).replace(b"HTTP/1.1", b"HTTP/1.0"))
            reply = await client.reply()
            assert reply.body == b"7" and reply.header(b"content-length") == [b"1"]
            assert await client.rest() == b""

    run(check())


@pytest.mark.parametrize("started", [False, True])
def test_an_application_that_fails_tells_nothing_of_its_error(started: bool) -> None:
    events: list[tuple[str, dict[str, object]]] = []

    def report(message: str, **figures: object) -> None:
        events.append((message, figures))

    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if started:
                await send(OK)
            raise ValueError("canary")

    async def check() -> None:
        async with serving(fails, event=report) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/"))
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 200" if started else b"HTTP/1.1 500")

    run(check())
    assert events == [("an application failed", {"error": "ValueError"})]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("header", [(b"x-a", b"1\r\nx-b: 2"), (b"x-a\r\nx-b", b"2"), (b"x-a", b"1\nx-b: 2")])
def test_no_header_brings_another_one(at_once: bool, header: tuple[bytes, bytes]) -> None:
    """However the head is written: it is not sent at all."""

    async def injects(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-length", b"2"), header]
        if at_once and (cycle := cycle_of(scope)) is not None and cycle.send_at_once(200, headers, b"ok"):
            return
        await send({**OK, "headers": headers})

    async def check() -> None:
        async with serving(injects) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/"))
            assert await client.rest() == b""

    run(check())


def test_what_frames_a_body_is_added_where_it_lacks() -> None:
    async def check() -> None:
        async with serving(tells) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
            head, _, _ = (await client.rest()).partition(b"\r\n\r\n")
            assert head.endswith(b"\r\nconnection: close\r\ntransfer-encoding: chunked")

    run(check())


@pytest.mark.parametrize("started", [False, True])
def test_an_application_that_does_not_answer_does_not_leave_its_client_waiting(started: bool) -> None:
    async def idle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and started:
            await send(OK)

    async def check() -> None:
        async with serving(idle) as server, dialling(server.ports[0]) as client:
            await client.send(get(b"/"))
            answer = await client.rest()
            assert answer.startswith(b"HTTP/1.1 200" if started else b"HTTP/1.1 500")
            assert answer.endswith(b"content-length: 2\r\n\r\n" if started else b"Internal Server Error")

    run(check())


@pytest.mark.parametrize("behind", [False, True])
def test_who_waits_for_an_answer_hears_at_once_that_its_client_left(behind: bool) -> None:
    ended: list[None] = []

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/":
            cycle = cycle_of(scope)
            assert cycle is not None and cycle.received_body() == b""
            with pytest.raises(ClientDisconnected):
                await until_disconnect(asyncio.sleep(60), receive, cycle)
            ended.append(None)
            with pytest.raises(ClientDisconnected):  # who comes later hears of it too
                await until_disconnect(asyncio.sleep(60), receive, cycle)

    async def check() -> None:
        async with serving(waits) as server:
            async with dialling(server.ports[0]) as client:
                await client.send(get(b"/"), *([get(b"/second")] if behind else ()))
                await asyncio.sleep(0.2)
                assert not ended
            await eventually(lambda: len(ended) == 1, 30.0)  # long before it would end by itself

    run(check())


def alive() -> int:
    return sum(isinstance(o, Cycle) for o in gc.get_objects())


def test_a_request_leaves_no_circles_behind() -> None:
    async def check() -> None:
        async with serving(lengths) as server, dialling(server.ports[0]) as client:
            await client.send(post(b"\0"))
            await client.reply()
            gc.collect()
            gc.disable()
            before = alive()
            try:
                for _ in range(20):
                    await client.send(post(b"\0"))
                    await client.reply()
                assert alive() <= before + 2
            finally:
                gc.enable()

    run(check())
