"""Room for bodies: who gets it, in what order, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping

import pytest

from proxy.http.memory_budget import (
    FACTOR,
    LEAST,
    MOST_WAITING,
    PROCESS,
    SMALL,
    SMALL_SHARE,
    WAITING_SHARE,
    WORKER,
    Budget,
    Room,
    derived,
    memory_limit,
    read_text,
)

MIB = 1 << 20
TOTAL = 64 * MIB
HALF = TOTAL // FACTOR // 2  # a body that two of do not fit beside the share of small ones


def held(budget: Budget, *sizes: int) -> list[Room]:
    rooms = [budget.room() for _ in sizes]
    assert all(room.try_reserve(size) for room, size in zip(rooms, sizes, strict=True))
    return rooms


def test_a_body_holds_four_times_its_size_until_it_is_left() -> None:
    budget = Budget(TOTAL)
    small, large = held(budget, 1000, MIB)
    assert budget.used == FACTOR * (1000 + MIB)
    for _ in range(2):
        small.release()
        large.release()
        assert budget.used == 0


def test_what_can_never_fit_is_known_at_once() -> None:
    budget = Budget(TOTAL)
    most = (TOTAL - TOTAL // SMALL_SHARE) // FACTOR
    assert budget.fits(most) and not budget.fits(most + 1)
    assert not Budget(1000).fits(1000)


def test_room_is_granted_in_order_and_a_large_body_does_not_starve() -> None:
    async def check() -> None:
        budget, order = Budget(TOTAL), list[str]()
        first, second = held(budget, HALF // 2, HALF)

        async def wait(name: str, size: int) -> Room:
            room = budget.room()
            assert await room.wait(size)
            order.append(name)
            return room

        large = asyncio.create_task(wait("large", HALF))
        await asyncio.sleep(0)
        late = asyncio.create_task(wait("late", SMALL + 1))
        await asyncio.sleep(0)
        assert budget.contended and budget.waiting == 2
        assert not budget.room().try_reserve(SMALL + 1), "there is room, but others were there before"
        first.release()
        await asyncio.sleep(0)
        assert order == []
        second.release()
        rooms = await asyncio.gather(large, late)
        assert order == ["large", "late"] and not budget.contended and budget.waiting == 0
        for room in rooms:
            room.release()
        assert budget.used == 0

    asyncio.run(check())


def test_small_bodies_have_a_share_of_their_own() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        (large,) = held(budget, budget.total * 7 // 8 // FACTOR)
        waiting = asyncio.create_task(budget.room().wait(MIB))
        await asyncio.sleep(0)
        share = budget.total // SMALL_SHARE // FACTOR // SMALL
        small = held(budget, *[SMALL] * share)
        assert not budget.room().try_reserve(1), "then they wait as all do"
        small.pop().release()
        assert budget.room().try_reserve(1)
        large.release()
        assert await waiting

    asyncio.run(check())


def test_who_gives_up_leaves_the_line() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        (large,) = held(budget, HALF)
        gone, stays = budget.room(), budget.room()
        first = asyncio.create_task(gone.wait(HALF))
        await asyncio.sleep(0)
        second = asyncio.create_task(stays.wait(HALF // 4))
        await asyncio.sleep(0)
        first.cancel()
        assert await second, "it goes on without the first one, though nobody left"
        large.release()
        stays.release()
        assert budget.used == 0 and first.cancelled() and not budget.contended

    asyncio.run(check())


def test_who_is_given_up_as_its_turn_comes_holds_nothing() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        (large,) = held(budget, HALF)
        waiting = asyncio.create_task(budget.room().wait(HALF))
        await asyncio.sleep(0)
        large.release()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert budget.used == 0

    asyncio.run(check())


def test_too_many_or_too_large_a_crowd_does_not_wait() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        held(budget, HALF)
        assert not await budget.room().wait(HALF, TOTAL // WAITING_SHARE + 1)
        tasks = [asyncio.create_task(budget.room().wait(HALF)) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        assert not await budget.room().wait(HALF)
        for task in tasks:
            task.cancel()

    asyncio.run(check())


def test_a_body_grows_before_those_who_wait() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        one, other = held(budget, 1000, 1000)
        assert one.grow(HALF)
        waiting = asyncio.create_task(budget.room().wait(HALF))
        await asyncio.sleep(0)
        assert budget.contended and other.grow(HALF // 2)
        assert not await one.wait_to_grow(HALF * 9), "it would wait for ever"
        assert budget.refused["growth"] == 1
        one.release()
        assert await waiting
        other.trim(10)
        assert budget.used == (HALF + 10) * FACTOR
        other.release()
        assert budget.used == HALF * FACTOR

    asyncio.run(check())


def test_of_bodies_that_grow_in_step_one_waits_and_is_served() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        one, other = held(budget, HALF // 2, HALF // 2)
        first = asyncio.create_task(one.wait_to_grow(HALF + 3 * MIB))
        in_line = asyncio.create_task(budget.room().wait(HALF // 2))
        await asyncio.sleep(0)
        assert budget.contended and not first.done()
        assert not await other.wait_to_grow(HALF + 3 * MIB), "half-grown bodies do not wait for one another"
        other.release()
        assert await first and not in_line.done()
        one.release()
        assert await in_line and not budget.contended
        assert budget.used == HALF // 2 * FACTOR and budget.refused["growth"] == 1

    asyncio.run(check())


def test_who_gives_up_growing_lets_the_next_one_wait() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        one, other = held(budget, HALF // 2, HALF // 2)
        first = asyncio.create_task(one.wait_to_grow(HALF + 3 * MIB))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert not budget.contended
        second = asyncio.create_task(other.wait_to_grow(HALF + 3 * MIB))
        await asyncio.sleep(0)
        one.release()
        assert await second

    asyncio.run(check())


def test_a_body_moves_out_of_the_share_of_small_ones_as_it_grows() -> None:
    async def check() -> None:
        budget = Budget(TOTAL)
        (room,) = held(budget, 1000)
        assert room.grow(2000) and room.grow(HALF)
        small = held(budget, *[SMALL] * (TOTAL // SMALL_SHARE // FACTOR // SMALL))
        for each in (room, *small):
            each.release()
        assert budget.used == 0

    asyncio.run(check())


def test_growth_asks_seldom() -> None:
    budget = Budget(1 << 30)
    (room,) = held(budget, 1)
    amounts = set()
    for size in range(1, 8 * MIB, 1000):
        assert room.grow(size)
        assert budget.used >= size * FACTOR
        amounts.add(budget.used)
    assert len(amounts) < 30


def test_workers_share_it_and_one_that_is_killed_gives_its_share_back() -> None:
    budget = Budget(TOTAL, 2)
    ready, tell = os.pipe()
    pid = os.fork()
    if not pid:
        budget.serve_as(1)
        os.write(tell, b"%d" % budget.room().try_reserve(HALF))
        signal.pause()
        os._exit(0)
    budget.serve_as(0)
    assert os.read(ready, 1) == b"1"
    assert budget.used == HALF * FACTOR and not budget.room().try_reserve(HALF)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    budget.forget(pid)
    assert budget.used == 0 and budget.room().try_reserve(HALF)


def test_who_waits_at_another_worker_goes_first() -> None:
    async def check() -> None:
        budget = Budget(TOTAL, 2)
        (large,) = held(budget, HALF)
        pid = os.fork()
        if not pid:
            os._exit(asyncio.run(elsewhere(budget)))
        while not budget.waiting:
            await asyncio.sleep(0.01)
        mine = asyncio.create_task(budget.room().wait(HALF))
        await asyncio.sleep(0)
        large.release()
        assert await mine, "room that another worker gave back is found, too"
        assert os.waitpid(pid, 0)[1] == 0

    async def elsewhere(budget: Budget) -> int:
        budget.serve_as(1)
        room = budget.room()
        assert await room.wait(HALF)
        await asyncio.sleep(0.1)
        waits_behind = budget.waiting == 1
        room.release()
        return 0 if waits_behind else 1

    asyncio.run(check())


V1 = {"/proc/self/cgroup": "4:memory:/a/b\n2:cpu:/\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n"}
NO_LIMIT = {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"/proc/meminfo": "MemTotal:       16 kB\nMemFree: 1 kB\n"}, 16 * 1024),
        ({"/proc/meminfo": "MemTotal:       16 kB\n", "/sys/fs/cgroup/memory.max": "8192\n"}, 8192),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"/proc/self/cgroup": "0::/k/pod\n", "/sys/fs/cgroup/k/pod/memory.max": "5\n"}, 5),
        ({"/proc/self/cgroup": "0::/k/pod\n", "/sys/fs/cgroup/k/memory.max": "6\n"}, 6),
        (V1, 1000),
        (V1 | NO_LIMIT, 1000),
        (NO_LIMIT, None),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 256 * MIB),
    ],
)
def test_the_limit_is_the_least_that_machine_and_cgroups_say(files: Mapping[str, str], limit: int | None) -> None:
    assert memory_limit(files.get) == limit


def test_this_machine_says_something() -> None:
    assert (memory_limit(read_text) or 0) > PROCESS and read_text("/nowhere") is None


def test_the_derived_budget_leaves_room_for_the_processes() -> None:
    assert derived(None, 1) == derived(0, 1) == derived(PROCESS, 4) == LEAST
    assert derived(256 * MIB, 1) == 48 * MIB
    assert derived(512 * MIB, 2) == (512 * MIB - PROCESS - WORKER) // 2
