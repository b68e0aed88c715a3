"""Turns: how many at once, who is next, and what happens to those who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.upstreams.fair_queue import Busy, Turns
from tests.serving import run

A, B, C = b"a", b"b", b"c"


class Work:
    """Callers that hold their turn until they are told to end it."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def want(self, *names: str) -> None:
        """Each wants a turn; the caller is the first letter of its name."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await self.settle()

    async def _hold(self, name: str) -> None:
        async with self.turns.turn(name[0].encode()):
            self.began.append(name)
            await self.ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def works(*numbers: int) -> Work:
    return Work(Turns(*(*numbers, 100, 100)[:4]))


def test_so_many_work_at_once_in_all_and_for_one_caller() -> None:
    async def check() -> None:
        work = works(3, 2)
        await work.want("a1", "a2", "a3", "b1", "c1")
        assert work.began == ["a1", "a2", "b1"]
        await work.end("b1")
        assert work.began[3:] == ["c1"], "a has two already"
        await work.end("a1", "a2", "a3", "c1")
        assert work.began[4:] == ["a3"]

    run(check())


def test_who_wants_much_does_not_delay_who_wants_little() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.want("a1", "a2", "a3", "a4", "b1", "c1", "b2")
        for name in ("a1", "a2", "b1", "c1", "a3", "b2", "a4"):
            await work.end(name)
        assert work.began == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]

    run(check())


def test_where_too_many_wait_the_next_is_told_at_once() -> None:
    async def check() -> None:
        work = works(1, 1, 3, 2)
        await work.want("a1", "a2", "a3", "a4", "b1", "c1")
        assert [name for name, task in work.tasks.items() if task.done()] == ["a4", "c1"]
        for name in ("a4", "c1"):
            with pytest.raises(Busy):
                await work.tasks[name]
        await work.end("a1", "a2", "b1", "a3")
        assert sorted(work.began) == ["a1", "a2", "a3", "b1"]
        await work.want("c2")
        assert work.began[-1] == "c2"
        await work.end("c2")

    run(check())


def test_who_stops_waiting_and_who_fails_holds_no_turn() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.want("a1", "a2", "b1")
        work.tasks["a2"].cancel()
        await work.settle()
        work.tasks["a1"].cancel()
        await work.settle()
        assert work.began == ["a1", "b1"]
        work.tasks["b1"].cancel()
        await work.want("a3")
        assert work.began[-1] == "a3"
        await work.end("a3")

    run(check())


def test_who_is_cancelled_just_as_its_turn_comes_gives_it_back() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.want("a1", "b1", "c1")
        ready: Any = work.turns._waiting[B][0]
        work.ends["a1"].set()
        while not ready.done():
            await asyncio.sleep(0)
        work.tasks["b1"].cancel()
        await work.settle()
        assert work.began == ["a1", "c1"]
        await work.end("c1")

    run(check())
