"""An upstream's response as it is read: in parts, to a limit, put back, and when its source fails."""

from __future__ import annotations

import asyncio

import pytest

from proxy.http.client.answer import KEY_REFUSED, UNREACHABLE, Answer, UpstreamError
from proxy.http.client.response import Fault, TransportError
from tests.http.test_relay import Scripted, Step


def answer(*steps: Step) -> tuple[Answer, Scripted]:
    reply = Scripted(list(steps), [])
    return Answer(reply), reply


def test_a_body_is_read_to_its_end_and_then_nothing_is_closed() -> None:
    async def check() -> None:
        found, reply = answer(b"ab", b"c")
        assert await found.read(10) == b"abc" and found.whole
        await found.close()
        assert not reply.closed

    asyncio.run(check())


def test_a_body_over_the_limit_is_begun_and_the_rest_can_still_be_read() -> None:
    async def check() -> None:
        found, reply = answer(b"ab", b"cd", b"e")
        assert await found.read(3) == b"abcd" and not found.whole
        assert [part async for part in found.chunks()] == [b"e"] and found.whole
        found, reply = answer(b"ab", b"cd")
        await found.read(1)
        await found.close()
        assert reply.closed

    asyncio.run(check())


def test_what_is_put_back_comes_first_again() -> None:
    async def check() -> None:
        found, _ = answer(b"ab")
        assert await found.read(10) == b"ab"
        found.unread(b"ab")
        assert not found.whole and found.buffered_body() is None
        assert [await found.next(), await found.next()] == [b"ab", b""]

    asyncio.run(check())


@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_is_an_error_for_the_client_that_may_be_retried(fault: Fault) -> None:
    async def check() -> None:
        found, _ = answer(b"ab", TransportError(fault, "lost it."))
        with pytest.raises(UpstreamError) as raised:
            await found.read(10)
        error = raised.value.for_client()
        assert error.status in (502, 503, 504) and error.retry and (error.after > 0) is (error.status == 503)
        assert raised.value.unconnected is (fault in (Fault.CONNECT, Fault.CONNECT_TIMEOUT))
        assert not found.whole

    asyncio.run(check())


def test_a_client_is_told_no_host_and_sent_to_the_log() -> None:
    found = UpstreamError(502, UNREACHABLE, "No connection.").for_client()
    assert found.message == "No connection (see the proxy's log)."
    assert UpstreamError(502, "upstream_error", "Lost.").for_client().message == "Lost."


def test_a_key_that_was_refused_is_refused_again() -> None:
    assert not UpstreamError(401, KEY_REFUSED, "No.").for_client().retry
