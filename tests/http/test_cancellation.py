"""Deadlines, and clients that leave, seen from the task that they end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from proxy.http.cancellation import (
    PRESSURE_SECONDS,
    RATE_SAMPLES,
    ClientDisconnected,
    Interrupt,
    Message,
    MinReadRate,
    ProgressTimeout,
)
from proxy.http.relay import until_disconnect
from tests.serving import run


class Late(Exception):
    """A deadline has passed."""


class Visitor:
    """A client that has nothing to say, and leaves when it is told to."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self._first = True

    async def receive(self) -> Message:
        if self._first:
            self._first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}


def test_work_ends_when_its_client_leaves() -> None:
    async def check() -> None:
        visitor = Visitor()
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        pending = asyncio.create_task(until_disconnect(work(), visitor.receive))
        await asyncio.sleep(0.3)
        assert not pending.done()
        visitor.leaves.set()
        with pytest.raises(ClientDisconnected):
            await asyncio.wait_for(pending, 30)
        assert ended.is_set()

    run(check())


def test_work_that_is_done_is_what_counts() -> None:
    async def work(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async def check() -> None:
        visitor = Visitor()
        assert await until_disconnect(work(0), visitor.receive) == "done"
        assert await until_disconnect(work(0.3), visitor.receive) == "done"
        visitor.leaves.set()
        await asyncio.sleep(0.2)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(check())


def test_a_failure_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise KeyError("mine")

    async def check() -> None:
        with pytest.raises(KeyError):
            await until_disconnect(work(), Visitor().receive)

    run(check())


def test_whoever_cancels_from_outside_sees_a_cancellation_and_not_a_leaving() -> None:
    async def check() -> None:
        visitor = Visitor()
        pending = asyncio.create_task(until_disconnect(asyncio.sleep(60), visitor.receive))
        await asyncio.sleep(0.15)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending

    run(check())


# Deadlines


def test_a_deadline_ends_what_takes_longer() -> None:
    async def check() -> None:
        with pytest.raises(Late):
            with Interrupt(0.05, Late):
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(check())


def test_a_deadline_that_was_met_interrupts_nothing_later() -> None:
    async def check() -> None:
        with Interrupt(0.05, Late):
            pass  # not even a turn of the loop: a process that stands still in it would miss the deadline
        await asyncio.sleep(0.3)  # past the deadline

    run(check())


def test_deadlines_end_each_its_own_task() -> None:
    async def check() -> None:
        over, late = asyncio.Event(), list[float]()

        async def wait(seconds: float) -> bool:
            try:
                with Interrupt(seconds, Late):
                    await over.wait()
            except Late:
                late.append(seconds)
                if len(late) == 2:
                    over.set()
                return True
            return False

        assert await asyncio.gather(*(wait(s) for s in (0.05, 3600.0, 0.1))) == [True, False, True]

    run(check())


def test_an_error_within_a_deadline_is_itself() -> None:
    async def check() -> None:
        with pytest.raises(KeyError):
            with Interrupt(60, Late):
                raise KeyError("mine")

    run(check())


class Clock:
    """A loop's clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending: set[object] = set()
        self.loop = self

    def time(self) -> float:
        return self.now

    def add(self, one: object) -> None:
        self.pending.add(one)


class Nobody:
    """A task that nobody cancels."""

    def cancel(self) -> None:
        pass


def given_up(rate: float, speed: float, pressure: Callable[[float], float] = lambda now: 0.0) -> float:
    """When a body that comes with so many bytes a second is given up; 0 where it is not. `pressure`: the rate that is
    needed so many seconds after its begin."""

    async def look() -> float:
        came, clock = 0, Clock()
        began = asyncio.get_running_loop().time()
        stalling: Any = ProgressTimeout(60, Late, lambda: came, rate, lambda: pressure(clock.now - began))
        stalling._sweep.pending.discard(stalling)
        began = stalling._since
        stalling._sweep, stalling._task = clock, Nobody()
        while clock.now < began + 300:
            clock.now = stalling.due
            came = int(speed * (clock.now - began))
            stalling.on_due()
            if stalling.fired:
                return float(clock.now - began)
        return 0

    return run(look())


def test_F13_a_body_must_come_fast_enough_and_faster_where_others_wait() -> None:
    assert given_up(rate=240, speed=1000) == 0
    assert given_up(rate=2000, speed=1000) == pytest.approx(60)
    assert given_up(rate=0, speed=0) == pytest.approx(60)
    assert given_up(rate=240, speed=1000, pressure=lambda now: 1001) == pytest.approx(RATE_SAMPLES * PRESSURE_SECONDS)
    assert given_up(rate=240, speed=1000, pressure=lambda now: 999) == 0


def test_S5_a_body_that_was_slow_before_others_waited_is_given_up_as_soon_as_they_do() -> None:
    waits = given_up(rate=240, speed=1000, pressure=lambda now: 2000 if now > 100 else 0)
    assert 100 < waits <= 100 + 2 * PRESSURE_SECONDS


def test_S5_a_body_that_must_give_way_is_given_up_at_once() -> None:
    assert given_up(rate=0, speed=1e9, pressure=lambda now: math.inf) == pytest.approx(PRESSURE_SECONDS)


def test_F13_a_client_that_does_not_read_is_cut() -> None:
    async def check() -> None:
        clock, left, cut = Clock(), 100_000, list[float]()
        reading: Any = MinReadRate(asyncio.get_running_loop(), 60, 240.0, lambda: left, lambda: cut.append(clock.now))
        reading.stop()
        reading._sweep = clock
        for _ in range(4):
            left -= 240 * 60
            reading.on_due()
        assert cut == [] and clock.pending == {reading}
        left -= 240 * 60 - 1
        reading.on_due()
        assert len(cut) == 1

    run(check())
