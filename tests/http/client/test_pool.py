"""Connections are kept, replaced and ended, and a POST is never sent twice; over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from proxy.http.client import idle
from proxy.http.client.idle import MIN_IDLE_SECONDS
from proxy.http.client.pool import Pool, Timeouts, WireRequest
from proxy.http.client.response import Fault, ResponseReader, TransportError
from tests.ports import held_port
from tests.recorder import Peer, Recorder, Request, answer, chunk, head, recording
from tests.serving import eventually, run

PATIENT = Timeouts()
RESTED = 1.5 * MIN_IDLE_SECONDS  # idle seconds after which a POST may use a connection of an unproven upstream


def wired(method: str = "GET", body: bytes | AsyncIterator[bytes] = b"", **headers: str) -> WireRequest:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if isinstance(body, bytes) and body:
        pairs.append((b"content-length", b"%d" % len(body)))
    return WireRequest(method, b"/x", pairs, body)


def pool_for(up: Recorder, timeouts: Timeouts = PATIENT) -> Pool:
    return Pool("127.0.0.1", up.port, None, timeouts)


# Time-outs are tested by making connections older: a test that stands still for a while changes nothing then.

SWEEP = 0.01  # seconds between two checks for time-outs


def checking(up: Recorder, timeouts: Timeouts) -> Pool:
    """A pool that checks for time-outs all the time."""
    pool = pool_for(up, timeouts)
    pool._sweep_seconds = SWEEP
    return pool


def rested(pool: Pool, seconds: float) -> None:
    """Makes all idle connections older."""
    for kept in pool._idle:
        for connection in kept.connections:
            connection.idle_since -= seconds


async def silence(reader: ResponseReader, seconds: float) -> None:
    """Makes it longer that a response is waited for, and lets that be checked."""
    await eventually(lambda: reader.read_waits_since is not None)
    assert reader.read_waits_since is not None
    reader.read_waits_since -= seconds
    await asyncio.sleep(5 * SWEEP)


async def whole(pool: Pool, request: WireRequest) -> bytes:
    reader = await pool.send(request)
    body = b""
    while data := await reader.read():
        body += data
    return body


def test_a_head_is_its_target_and_headers_as_they_are() -> None:
    assert wired("POST", accept="*/*").head() == b"POST /x HTTP/1.1\r\naccept: */*"


@pytest.mark.parametrize("value", ["a\r\nx: 1", "a\nb", "a\rb"])
def test_a_line_break_in_a_header_sends_nothing(value: str) -> None:
    with pytest.raises(TransportError):
        wired(accept=value).head()


def test_a_connection_serves_one_request_after_the_other() -> None:
    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            for _ in range(3):
                assert await whole(pool, wired()) == b"{}"
            assert (up.connections, len(pool)) == (1, 1)
            await asyncio.gather(*(whole(pool, wired()) for _ in range(4)))
            assert 2 <= len(pool) <= 4
            await pool.close()
            assert len(pool) == 0

    run(check())


def test_a_connection_that_the_upstream_closed_is_not_used_again() -> None:
    async def closes(request: Request, peer: Peer) -> None:
        await peer.send(answer())
        peer.close()

    async def check() -> None:
        async with recording(closes) as up:
            pool = pool_for(up)
            for _ in range(3):
                assert await whole(pool, wired("POST", b"{}")) == b"{}"
                await eventually(lambda: len(pool) == 0)
            assert len(up.requests) == 3
            await pool.close()

    run(check())


async def closes_at_the_second(request: Request, peer: Peer) -> None:
    """Every connection answers once; its next request meets the closing."""
    if getattr(peer.writer, "used", False):
        peer.reset()
        return
    peer.writer.used = True  # type: ignore[attr-defined]
    await peer.send(answer())


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_what_may_be_repeated_is_sent_again_when_a_kept_connection_was_closed(method: str) -> None:
    async def check() -> None:
        async with recording(closes_at_the_second) as up:
            pool = pool_for(up)
            await whole(pool, wired())
            reader = await pool.send(wired(method))
            assert reader.status == 200
            assert (len(up.requests), up.connections) == (3, 2)
            reader.close()
            await pool.close()

    run(check())


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_what_may_not_be_repeated_is_sent_once(method: str) -> None:
    async def check() -> None:
        async with recording(closes_at_the_second) as up:
            pool = pool_for(up)
            await whole(pool, wired())
            await asyncio.sleep(RESTED)
            with pytest.raises(TransportError) as raised:
                await pool.send(wired(method, b"{}"))
            assert raised.value.fault is Fault.CLOSED
            assert [r.method.decode() for r in up.requests] == ["GET", method]
            await pool.close()

    run(check())


@pytest.mark.parametrize("reply", [answer(), head(b"200 OK", b"transfer-encoding: chunked") + chunk(b"")])
def test_a_post_trusts_a_kept_connection_only_once_one_has_been_proven(
    monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    monkeypatch.setattr(idle, "MIN_IDLE_SECONDS", 30.0)

    async def answers(request: Request, peer: Peer) -> None:
        await peer.send(reply)

    async def check() -> None:
        async with recording(answers) as up:
            pool = pool_for(up)
            await whole(pool, wired("POST", b"{}"))
            await whole(pool, wired("POST", b"{}"))
            assert up.connections == 2
            rested(pool, 30.0)
            for _ in range(4):
                await whole(pool, wired("POST", b"{}"))
            assert (up.connections, len(pool)) == (2, 2)
            await pool.close()

    run(check())


def test_what_may_be_repeated_proves_a_connection_at_once() -> None:
    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            for method in ("GET", "GET", "POST", "POST"):
                await whole(pool, wired(method))
            assert up.connections == 1
            await pool.close()

    run(check())


def test_a_connection_that_can_be_read_gets_no_request() -> None:
    """The event loop has not seen the closing yet: nothing is awaited between the close and the request."""

    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            for method in ("GET", "GET"):
                await whole(pool, wired(method))
            sock = up.peers[0].writer.get_extra_info("socket")
            os.write(sock.fileno(), b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            assert await whole(pool, wired("POST", b"{}")) == b"{}"
            assert [request.connection for request in up.requests] == [0, 0, 1]
            await pool.close()

    run(check())


def test_a_request_on_a_new_connection_is_never_repeated() -> None:
    async def resets(request: Request, peer: Peer) -> None:
        peer.reset()

    async def check() -> None:
        async with recording(resets) as up:
            pool = pool_for(up)
            with pytest.raises(TransportError):
                await pool.send(wired())
            assert len(up.requests) == 1
            await pool.close()

    run(check())


def test_an_unused_connection_is_closed_after_its_time() -> None:
    async def check() -> None:
        async with recording() as up:
            pool = checking(up, Timeouts(idle=40))
            await asyncio.gather(whole(pool, wired()), whole(pool, wired()))
            assert len(pool) == 2
            rested(pool, 20)
            await asyncio.sleep(5 * SWEEP)
            assert len(pool) == 2
            rested(pool, 20)
            await eventually(lambda: len(pool) == 0 and up.open == 0)
            assert await whole(pool, wired()) == b"{}", "and the next request finds a new one"
            await pool.close()

    run(check())


def test_a_silent_upstream_is_given_up_and_one_that_talks_is_not() -> None:
    async def check() -> None:
        more = asyncio.Semaphore(0)

        async def drips(request: Request, peer: Peer) -> None:
            await peer.send(head(b"200 OK", b"transfer-encoding: chunked"))
            for _ in range(8):
                await more.acquire()
                await peer.send(chunk(b"x"))
            await peer.gone()

        async with recording(drips) as up:
            pool = checking(up, Timeouts(read=40))
            reader = await pool.send(wired())
            for _ in range(8):  # longer than the deadline, all in all
                reading = asyncio.create_task(reader.read())
                await silence(reader, 20)
                more.release()
                assert await reading == b"x"
            reading = asyncio.create_task(reader.read())
            await silence(reader, 40)
            with pytest.raises(TransportError) as raised:
                await reading
            assert raised.value.fault is Fault.READ_TIMEOUT
            await eventually(lambda: len(pool) == 0)
            await pool.close()

    run(check())


async def slowly(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def test_a_streamed_body_is_framed_in_chunks_or_by_its_length() -> None:
    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            await whole(pool, wired("POST", slowly(b"ab", b"", b"c"), transfer_encoding="chunked"))
            await asyncio.sleep(RESTED)
            await whole(pool, wired("POST", slowly(b"ab", b"", b"c"), content_length="3"))
            assert [r.raw_body for r in up.requests] == [b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"abc"]
            assert up.connections == 1
            await pool.close()

    run(check())


def test_a_slow_upload_is_not_the_upstreams_silence() -> None:
    async def thinks(request: Request, peer: Peer) -> None:
        await asyncio.sleep(5 * SWEEP)
        await peer.send(answer())

    async def check() -> None:
        async def pausing() -> AsyncIterator[bytes]:
            for _ in range(6):
                (busy,) = pool._busy
                assert busy.reader is not None
                await silence(busy.reader, 40)
                yield b"x"

        async with recording(thinks) as up:
            pool = checking(up, Timeouts(read=40))
            assert await whole(pool, wired("POST", pausing(), content_length="6")) == b"{}"
            await pool.close()

    run(check())


def test_a_body_that_fails_gives_the_request_up() -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b"x"
        raise KeyError("mine")

    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            with pytest.raises(KeyError):
                await pool.send(wired("POST", fails(), content_length="6"))
            await eventually(lambda: len(pool) == 0 and up.open == 0)
            assert up.requests == []
            await pool.close()

    run(check())


def test_a_large_body_goes_out_in_one_piece() -> None:
    async def check() -> None:
        async with recording() as up:
            pool = pool_for(up)
            await whole(pool, wired("POST", bytes(3_000_000)))
            assert up.requests[0].body == bytes(3_000_000)
            await pool.close()

    run(check())


def test_a_request_that_is_cancelled_takes_its_connection_with_it() -> None:
    async def hangs(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(hangs) as up:
            pool = pool_for(up)
            sending = asyncio.create_task(pool.send(wired()))
            await eventually(lambda: up.requests)
            sending.cancel()
            await eventually(lambda: sending.done() and up.open == 0 and len(pool) == 0)
            await pool.close()

    run(check())


def test_a_pool_that_is_closed_fails_what_still_runs() -> None:
    async def hangs(request: Request, peer: Peer) -> None:
        await peer.gone()

    async def check() -> None:
        async with recording(hangs) as up:
            pool = pool_for(up)
            sending = asyncio.create_task(pool.send(wired()))
            await eventually(lambda: up.requests)
            await pool.close()
            with pytest.raises(TransportError):
                await sending

    run(check())


def test_every_address_of_a_host_is_tried() -> None:
    async def check() -> None:
        async with recording() as up:  # listens on 127.0.0.1 alone, localhost may be ::1 as well
            pool = Pool("localhost", up.port, None, PATIENT)
            assert await whole(pool, wired()) == b"{}"
            await pool.close()

    run(check())


@pytest.mark.parametrize(("host", "word"), [("no-such-host.invalid", "known"), ("a..b", "Error"), ("127.0.0.1", "")])
def test_no_connection_is_told_at_once_and_with_its_reason(host: str, word: str) -> None:
    async def check() -> None:
        with held_port() as port, pytest.raises(TransportError, match=r"No connection to the upstream: .+") as raised:
            await Pool(host, port, None, PATIENT).send(wired())
        assert raised.value.fault is Fault.CONNECT
        assert word in str(raised.value)
        assert host not in str(raised.value) and str(port) not in str(raised.value)  # clients read it

    run(check())


def test_a_host_that_does_not_answer_is_given_up_in_time() -> None:
    async def check() -> None:
        with socket.socket() as silent:  # its backlog is full: nobody is let in, and nobody is told
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)
            port = silent.getsockname()[1]
            waiting = [await asyncio.open_connection("127.0.0.1", port)]
            pool = Pool("127.0.0.1", port, None, Timeouts(connect=0.2))
            with pytest.raises(TransportError) as raised:
                await pool.send(wired())
            assert raised.value.fault is Fault.CONNECT_TIMEOUT
            for _, writer in waiting:
                writer.transport.abort()

    run(check(), 60)


def test_H12_who_comes_when_all_are_in_use_waits_in_order() -> None:
    async def check() -> None:
        over, order = asyncio.Event(), list[int]()

        async def waits(request: Request, peer: Peer) -> None:
            await over.wait()
            await peer.send(answer())

        async def ask(number: int) -> None:
            await whole(pool, wired())
            order.append(number)

        async with recording(waits) as up:
            pool = Pool("127.0.0.1", up.port, None, PATIENT, max_connections=1)
            tasks = []
            for number in range(4):
                tasks.append(asyncio.create_task(ask(number)))
                await asyncio.sleep(0)
            await eventually(lambda: up.requests)
            tasks[1].cancel()
            over.set()
            await asyncio.wait(tasks)
            assert order == [0, 2, 3] and up.connections <= 3
            await pool.close()

    run(check())


def test_H12_who_waits_for_too_long_is_told_so_and_takes_no_place() -> None:
    async def check() -> None:
        over = asyncio.Event()

        async def waits(request: Request, peer: Peer) -> None:
            await over.wait()
            await peer.send(answer())

        async with recording(waits) as up:
            pool = Pool("127.0.0.1", up.port, None, PATIENT, max_connections=1)
            first = asyncio.create_task(whole(pool, wired()))
            await eventually(lambda: up.requests)
            pool._timeouts = Timeouts(connect=0.3)  # only of who waits: the first one may connect slowly
            with pytest.raises(TransportError) as raised:
                await pool.send(wired())
            assert raised.value.fault is Fault.OVERLOADED
            over.set()
            assert await first == b"{}" and await whole(pool, wired()) == b"{}"
            await pool.close()

    run(check())
