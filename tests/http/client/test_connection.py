"""When a connection is kept, when it is paused, and who is told that it is lost."""

from __future__ import annotations

import asyncio

import pytest

from proxy.http.client.response import HIGH_WATER, TransportError
from tests.http.wires import Bench
from tests.serving import run


@pytest.mark.parametrize(
    ("raw", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n\x00\x00", False),
    ],
)
def test_a_connection_is_kept_only_where_its_next_answer_is_sure_to_be_the_next(raw: bytes, reusable: bool) -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(raw)
        await bench.reader.head()
        assert await bench.all() == b""
        assert bench.released == [reusable]
        assert bench.wire.aborted is not reusable

    run(check())


def test_a_connection_is_not_kept_while_its_request_is_still_being_sent() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        bench.receive(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        assert bench.released == [False]

    run(check())


def test_bytes_on_an_idle_connection_close_it() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        assert not bench.wire.aborted
        bench.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert bench.wire.aborted
        assert not bench.connection.open

    run(check())


def test_a_reader_that_does_not_read_stops_the_socket() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (4 * HIGH_WATER))
        bench.receive(b"x" * HIGH_WATER)
        assert not bench.wire.paused
        bench.receive(b"x")
        assert bench.wire.paused
        assert len(await bench.reader.read()) == HIGH_WATER + 1
        assert not bench.wire.paused

    run(check())


def test_a_connection_that_is_kept_is_listened_to_again() -> None:
    async def check() -> None:
        bench = Bench()
        size = 2 * HIGH_WATER
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, b"x" * size)
        assert bench.released == [True]
        assert not bench.wire.paused
        assert len(await bench.all()) == size

    run(check())


def test_giving_up_an_answer_that_is_whole_costs_no_connection() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab")
        bench.reader.close()
        assert bench.released == [True]
        assert bench.connection.open

    run(check())


def test_whoever_sends_waits_while_the_upstream_takes_nothing() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        await bench.connection.drain()
        bench.connection.pause_writing()
        draining = asyncio.create_task(bench.connection.drain())
        await asyncio.sleep(0)
        assert bench.connection.write_waits_since is not None
        bench.connection.resume_writing()
        await draining
        assert bench.connection.write_waits_since is None

    run(check())


def test_whoever_sends_to_a_lost_connection_is_told() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        bench.connection.pause_writing()
        draining = asyncio.create_task(bench.connection.drain())
        await asyncio.sleep(0)
        bench.connection.connection_lost(None)
        with pytest.raises(TransportError):
            await draining
        bench.connection.write(b"nobody")
        bench.connection.close()
        assert bench.wire.sent == b""

    run(check())


def test_an_upload_that_the_answer_overtakes_is_stopped() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        bench.reader.upload = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        bench.receive(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        with pytest.raises(asyncio.CancelledError):
            await bench.reader.upload

    run(check())
