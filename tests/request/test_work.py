"""Work in threads and in the background: what runs where, how much of it, and how it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proxy.errors import ClientError
from proxy.request.work import (
    MAX_TASK_BYTES,
    MAX_TASKS,
    MAX_WAITING,
    Background,
    Turns,
    background_pool,
    cancelled,
    request_pool,
)


def thread() -> str:
    return threading.current_thread().name


def failing() -> None:
    raise KeyError("work")


@pytest.mark.parametrize("heavy", [False, True])
def test_heavy_work_alone_is_done_in_a_thread_and_what_it_raises_is_raised(heavy: bool) -> None:
    async def check() -> None:
        pool = request_pool()
        assert (await pool.run(heavy, thread) == thread()) is not heavy
        assert await pool.run(heavy, divmod, 7, 2) == (3, 1)
        with pytest.raises(KeyError):
            await pool.run(heavy, failing)
        pool.close()

    asyncio.run(check())


def test_a_closed_pool_forgets_the_work_that_it_has_not_begun() -> None:
    pool, blocked, begun = background_pool(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        blocked.wait(60)

    running, waiting = pool.executor.submit(block), pool.executor.submit(thread)
    assert begun.wait(60)
    pool.close()
    blocked.set()
    running.result(60)
    assert waiting.cancelled()


def test_tasks_in_the_background_are_bounded_by_number_and_by_bytes() -> None:
    async def check() -> None:
        background, ended = Background(), asyncio.Event()

        async def work() -> None:
            await ended.wait()

        assert background.has_capacity(MAX_TASK_BYTES) and not background.has_capacity(MAX_TASK_BYTES + 1)
        large = background.start(work(), MAX_TASK_BYTES - 1)
        assert background.has_capacity(1) and not background.has_capacity(2)
        tasks = [background.start(work(), 0) for _ in range(MAX_TASKS - 1)]
        assert not background.has_capacity(0)
        ended.set()
        await asyncio.gather(large, *tasks)
        assert not background.tasks and background.has_capacity(MAX_TASK_BYTES)
        await background.close()

    asyncio.run(check())


def test_at_its_end_all_tasks_are_cancelled_and_waited_for() -> None:
    async def check() -> None:
        background, cleaned = Background(), list[int]()

        async def work(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(number)

        for number in range(3):
            background.start(work(number), 1)
        await asyncio.sleep(0)  # they begin
        await background.close()
        assert sorted(cleaned) == [0, 1, 2] and not background.tasks

    asyncio.run(check())


def test_what_cancelled_tasks_raise_is_not_raised() -> None:
    async def check() -> None:
        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError("stubborn") from None

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await cancelled([task])
        assert isinstance(task.exception(), KeyError)
        await cancelled([])

    asyncio.run(check())


def test_work_apart_takes_turns_in_a_thread_of_its_own_and_too_many_may_not_wait() -> None:
    async def test() -> None:
        pool, turns = request_pool(), Turns()
        order: list[tuple[int, str]] = []

        async def one(number: int) -> None:
            async with turns.turn():
                for heavy in (False, True):
                    order.append((number, await pool.run(heavy, thread)))
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(number)) for number in range(MAX_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(ClientError) as refused:
            async with turns.turn():
                pass
        assert (refused.value.status, refused.value.retry) == (503, True)
        await asyncio.gather(*tasks)
        assert [number for number, _ in order] == [number for number in range(MAX_WAITING) for _ in range(2)]
        assert {name.partition("_")[0] for _, name in order} == {"inspect"}
        assert await pool.run(False, thread) == threading.main_thread().name
        assert (await pool.run(True, thread)).startswith("count")
        async with turns.turn():
            pass
        turns.close()
        pool.close()

    asyncio.run(test())
