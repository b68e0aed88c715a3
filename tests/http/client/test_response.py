"""What the bytes of an answer become, however they are cut."""

from __future__ import annotations

import asyncio

import pytest

from proxy.http.client.response import MAX_HEAD, Fault, TransportError
from tests.http.wires import Bench
from tests.serving import run


def test_an_answer_in_single_bytes_is_the_same_answer() -> None:
    async def check() -> None:
        bench = Bench()
        raw = b"HTTP/1.1 201 Created\r\nX-A: 1\r\ntransfer-encoding: chunked\r\n\r\n"
        raw += b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nt: 1\r\n\r\n"
        bench.receive(*(raw[i : i + 1] for i in range(len(raw))))
        await bench.reader.head()
        assert bench.reader.status == 201
        assert bench.reader.headers == [(b"x-a", b"1"), (b"transfer-encoding", b"chunked")]
        assert await bench.all() == b"abc"
        assert bench.released == [True]

    run(check())


def test_bytes_that_have_come_are_given_joined() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"a", b"b")
        assert await bench.reader.read() == b"ab"
        reading = asyncio.create_task(bench.reader.read())
        await asyncio.sleep(0)
        assert bench.reader.read_waits_since is not None
        bench.receive(b"cd")
        assert await reading == b"cd"
        assert bench.reader.read_waits_since is None
        assert await bench.reader.read() == b""
        assert bench.reader.complete

    run(check())


def test_an_answer_to_head_has_no_body_whatever_follows() -> None:
    async def check() -> None:
        bench = Bench("HEAD")
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"hello")
        await bench.reader.head()
        assert await bench.all() == b""
        assert bench.released == [False]

    run(check())


def test_a_body_in_one_piece_with_an_answer_to_head_is_no_part_of_it() -> None:
    async def check() -> None:
        bench = Bench("HEAD")
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        await bench.reader.head()
        assert await bench.all() == b""
        assert bench.released == [False]

    run(check())


def test_interim_answers_are_not_the_answer() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        waiting = asyncio.create_task(bench.reader.head())
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await waiting
        assert bench.reader.headers == [(b"content-length", b"0")]

    run(check())


def test_an_answer_without_a_length_ends_when_the_connection_does() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\n\r\nall")
        bench.connection.connection_lost(None)
        assert await bench.all() == b"all"
        assert bench.released == [False]

    run(check())


@pytest.mark.parametrize(
    ("come", "error", "fault"),
    [
        (b"", None, Fault.CLOSED),
        (b"HTTP/1.1 2", None, Fault.INCOMPLETE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None, Fault.INCOMPLETE),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", None, Fault.INCOMPLETE),
        (b"HTTP/1.1 200 OK\r\n\r\nab", ConnectionResetError(), Fault.INCOMPLETE),
    ],
)
def test_an_answer_that_breaks_off_gives_what_has_come_and_then_fails(
    come: bytes, error: Exception | None, fault: Fault
) -> None:
    async def check() -> None:
        bench = Bench()
        if come:
            bench.receive(come)
        bench.connection.connection_lost(error)
        if b"ab" in come:
            assert await bench.reader.read() == b"ab"
        with pytest.raises(TransportError) as raised:
            await bench.reader.read()
        assert raised.value.fault is fault
        with pytest.raises(TransportError):
            await bench.all()

    run(check())


def illegal(status: bytes = b"200 OK", *headers: bytes) -> bytes:
    return b"\r\n".join((b"HTTP/1.1 " + status, *headers, b"", b""))


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        illegal(b"101 Switching Protocols", b"connection: upgrade", b"upgrade: websocket"),
        illegal(b"101 Switching Protocols"),
        illegal(b"600 Odd", b"content-length: 0"),
        illegal(b"200 OK", b"transfer-encoding: gzip, chunked"),
        illegal(b"200 OK", b"content-length: 1", b"transfer-encoding: chunked"),
        illegal(b"200 OK", *(b"x: " + b"a" * 1000 for _ in range(MAX_HEAD // 1000 + 1)), b"content-length: 0"),
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * (MAX_HEAD + 1),
    ],
    ids=range(8),
)
def test_an_illegal_head_fails_and_closes(raw: bytes) -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(raw)
        with pytest.raises(TransportError) as raised:
            await bench.reader.head()
        assert raised.value.fault is Fault.PROTOCOL_ERROR
        assert bench.wire.aborted
        bench.receive(b"more")  # what still arrives before the loop has closed it

    run(check())


def test_an_illegal_body_fails_behind_its_good_bytes() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n")
        await bench.reader.head()
        assert await bench.reader.read() == b"ab"
        with pytest.raises(TransportError):
            await bench.reader.read()

    run(check())


def test_what_is_given_up_closes_the_connection_and_forgets_what_came() -> None:
    async def check() -> None:
        bench = Bench()
        bench.receive(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await bench.reader.aclose()
        assert bench.wire.aborted
        bench.connection.connection_lost(None)
        assert bench.released == [False]
        with pytest.raises(TransportError):
            await bench.reader.read()

    run(check())


def test_what_a_body_raised_reaches_the_reader_as_it_is() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        waiting = asyncio.create_task(bench.reader.head())
        await asyncio.sleep(0)
        bench.reader.fail(KeyError("mine"))
        bench.reader.fail(ValueError("too late"))
        with pytest.raises(KeyError):
            await waiting

    run(check())


def test_the_upstream_owes_an_answer_from_the_end_of_the_request_on() -> None:
    async def check() -> None:
        bench = Bench(sent=False)
        bench.reader.request_sent()
        assert bench.reader.read_waits_since is None
        waiting = asyncio.create_task(bench.reader.head())
        await asyncio.sleep(0)
        bench.reader.read_waits_since = 0.0
        bench.reader.request_sent()
        assert bench.reader.read_waits_since > 0
        waiting.cancel()

    run(check())
