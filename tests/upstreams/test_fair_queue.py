"""FairQueue: how many at once, who is next, and what happens to those who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.upstreams.fair_queue import FairQueue, QueueFull
from tests.serving import run

A, B, C = b"a", b"b", b"c"


class Work:
    """Tasks that hold their slot until `end`."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Starts one task for each name; the caller is the first letter of its name."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await self.settle()

    async def _hold(self, name: str) -> None:
        async with self.queue.slot(name[0].encode(), urgent=name.endswith("!")):
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
    return Work(FairQueue(*(*numbers, 100, 100)[:4]))


def test_so_many_work_at_once_in_all_and_for_one_caller() -> None:
    async def check() -> None:
        work = works(3, 2)
        await work.start("a1", "a2", "a3", "b1", "c1")
        assert work.began == ["a1", "a2", "b1"]
        await work.end("b1")
        assert work.began[3:] == ["c1"], "a has two already"
        await work.end("a1", "a2", "a3", "c1")
        assert work.began[4:] == ["a3"]

    run(check())


def test_a_busy_caller_does_not_delay_others() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.start("a1", "a2", "a3", "a4", "b1", "c1", "b2")
        for name in ("a1", "a2", "b1", "c1", "a3", "b2", "a4"):
            await work.end(name)
        assert work.began == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]

    run(check())


def test_a_full_queue_rejects_at_once() -> None:
    async def check() -> None:
        work = works(1, 1, 3, 2)
        await work.start("a1", "a2", "a3", "a4", "b1", "c1")
        assert [name for name, task in work.tasks.items() if task.done()] == ["a4", "c1"]
        for name in ("a4", "c1"):
            with pytest.raises(QueueFull):
                await work.tasks[name]
        await work.end("a1", "a2", "b1", "a3")
        assert sorted(work.began) == ["a1", "a2", "a3", "b1"]
        await work.start("c2")
        assert work.began[-1] == "c2"
        await work.end("c2")

    run(check())


def test_a_task_that_is_cancelled_or_fails_holds_no_slot() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.start("a1", "a2", "b1")
        work.tasks["a2"].cancel()
        await work.settle()
        work.tasks["a1"].cancel()
        await work.settle()
        assert work.began == ["a1", "b1"]
        work.tasks["b1"].cancel()
        await work.start("a3")
        assert work.began[-1] == "a3"
        await work.end("a3")

    run(check())


def test_a_task_that_is_cancelled_just_as_its_slot_is_granted_gives_it_back() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.start("a1", "b1", "c1")
        ready: Any = work.queue._queues[B][0]
        work.ends["a1"].set()
        while not ready.done():
            await asyncio.sleep(0)
        work.tasks["b1"].cancel()
        await work.settle()
        assert work.began == ["a1", "c1"]
        await work.end("c1")

    run(check())


def test_a_task_that_is_cancelled_while_it_waits_leaves_its_place_to_the_next() -> None:
    async def check() -> None:
        work = works(1, 1, 3, 2)
        await work.start("a1", "b1", "b2", "c1")
        for name in ("b1", "b2", "c1"):
            work.tasks[name].cancel()
        await work.start("b3", "b4", "c2", "c3")
        with pytest.raises(QueueFull):
            await work.tasks["c3"]
        assert work.queue._waiting == 3
        await work.end("a1", "b3", "c2", "b4")
        assert work.began == ["a1", "b3", "c2", "b4"]

    run(check())


def test_tasks_that_are_cancelled_in_the_turn_in_which_a_slot_is_free_leave_it_to_others() -> None:
    """The slot is granted before the cancelled tasks run: it goes to one that still waits, and is never lost."""

    async def check() -> None:
        work = works(1, 1)
        await work.start("a1", "b1", "c1", "d1")
        work.tasks["b1"].cancel()
        work.ends["a1"].set()
        work.tasks["c1"].cancel()
        await work.settle()
        assert work.began == ["a1", "d1"]
        await work.end("d1")
        assert not work.queue._queues and not work.queue._waiting and not work.queue._active

    run(check())


def test_an_urgent_task_is_the_next_of_its_caller_and_takes_no_turn_of_another() -> None:
    async def check() -> None:
        work = works(1, 1)
        await work.start("a1", "a2", "b1", "a3!")
        await work.end("a1", "a3!", "b1", "a2")
        assert work.began == ["a1", "a3!", "b1", "a2"]

    run(check())
