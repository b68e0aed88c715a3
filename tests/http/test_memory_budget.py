"""Room for bodies: who gets it, in what order, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from random import Random

import pytest

from proxy.http.memory_budget import (
    FACTOR,
    HELD,
    LEAST_RATE,
    MOST_WAITING,
    OVERTAKE_S,
    PATIENCE_S,
    POLL_S,
    SMALL,
    SMALL_SHARE,
    STEP,
    WAITING_SHARE,
    WHOLE_S,
    Budget,
    Room,
)

MIB = 1 << 20


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


TOTAL = 64 * MIB
LARGE = (TOTAL - TOTAL // SMALL_SHARE) // FACTOR  # the largest body that fits
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
        budget, order = Budget(TOTAL, clock=Clock()), list[str]()
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


def test_of_bodies_that_grow_in_step_the_younger_are_refused_and_the_oldest_is_served() -> None:
    async def check() -> None:
        clock = Clock()
        budget = Budget(TOTAL, clock=clock)
        one, other = held(budget, HALF // 2, HALF // 2)
        first = asyncio.create_task(one.wait_to_grow(HALF + 3 * MIB))
        await asyncio.sleep(0)
        clock.now += 0.1
        second = asyncio.create_task(other.wait_to_grow(HALF + 3 * MIB))
        in_line = asyncio.create_task(budget.room().wait(HALF // 2))
        await asyncio.sleep(3 * POLL_S)
        assert budget.contended and not first.done() and not second.done()
        clock.now += PATIENCE_S / 2
        assert not await second, "half-grown bodies do not wait for one another"
        other.release()
        assert await first and not in_line.done()
        one.release()
        assert await in_line and not budget.contended
        assert budget.used == HALF // 2 * FACTOR and budget.refused["growth"] == 1

    asyncio.run(check())


def test_a_body_that_waits_to_grow_keeps_nobody_waiting_for_long() -> None:
    async def check() -> None:
        clock = Clock()
        budget = Budget(TOTAL, clock=clock)
        one, pending = held(budget, HALF // 2, HALF)
        grows = asyncio.create_task(one.wait_to_grow(HALF + 3 * MIB))
        await asyncio.sleep(0)
        clock.now += 2 * PATIENCE_S
        await asyncio.sleep(3 * POLL_S)
        assert not grows.done(), "nobody waits for what it holds"
        waits = asyncio.create_task(budget.room().wait(HALF // 2))
        assert not await grows
        one.release()
        assert await waits
        pending.release()

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
    ready, tell = os.pipe()

    async def check() -> None:
        # A thousandth of the time passes: however long the other worker is kept from a busy processor, none overtakes.
        budget = Budget(TOTAL, 2, lambda: time.monotonic() / 1000)
        (large,) = held(budget, HALF)
        pid = os.fork()
        if not pid:
            os._exit(asyncio.run(elsewhere(budget)))
        assert await asyncio.to_thread(os.read, ready, 1) == b"1" and budget.waiting
        mine = asyncio.create_task(budget.room().wait(HALF))
        await asyncio.sleep(0)
        large.release()
        assert await mine, "room that another worker gave back is found, too"
        assert os.waitpid(pid, 0)[1] == 0

    async def elsewhere(budget: Budget) -> int:
        budget.serve_as(1)
        room = budget.room()
        waits = asyncio.create_task(room.wait(HALF))
        await asyncio.sleep(0)
        os.write(tell, b"1")
        assert await waits
        await asyncio.sleep(0.1)
        waits_behind = budget.waiting == 1
        room.release()
        return 0 if waits_behind else 1

    asyncio.run(check())


# Callers: `identify` names them by what a room was made for.


def of_callers(clock: Clock, workers: int = 1) -> Budget:
    budget = Budget(TOTAL, workers, clock)
    budget.identify = lambda who: str(who).encode()
    budget._key = bytes(16)  # by one of chance, two callers of a test are now and then in one share
    return budget


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(POLL_S)


def test_S5_callers_take_turns_in_the_queue() -> None:
    async def check() -> None:
        budget, order = of_callers(Clock()), list[str]()
        full = budget.room("x")
        assert full.try_reserve(LARGE)

        async def wait(name: str) -> Room:
            room = budget.room(name[0])
            assert await room.wait(MIB)
            order.append(name)
            return room

        tasks = []
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            tasks.append(asyncio.create_task(wait(name)))
            await asyncio.sleep(0)
        full.release()
        await asyncio.gather(*tasks)
        assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]

    asyncio.run(check())


def test_S5_no_caller_gets_more_than_half_while_others_wait() -> None:
    async def check() -> None:
        budget = of_callers(Clock())
        mine, full = budget.room("a"), budget.room("x")
        assert mine.try_reserve(6 * MIB) and full.try_reserve(LARGE - 6 * MIB)
        second, other = budget.room("a"), budget.room("b")
        waits = asyncio.create_task(second.wait(2 * MIB))
        await asyncio.sleep(0)
        others = asyncio.create_task(other.wait(4 * MIB))
        await asyncio.sleep(0)
        full.trim(LARGE - 9 * MIB)
        await turns()
        assert not waits.done(), "though it was there before and there is room for it"
        full.release()
        assert await others
        assert await waits, "once nobody else waits, all of the room is for whoever comes"

    asyncio.run(check())


def test_S5_two_callers_that_each_want_more_than_half_are_served_one_after_the_other() -> None:
    async def check() -> None:
        budget = of_callers(Clock())
        full, one, other = (budget.room(who) for who in "xab")
        assert full.try_reserve(LARGE)
        first = asyncio.create_task(one.wait(LARGE))
        await asyncio.sleep(0)
        second = asyncio.create_task(other.wait(LARGE))
        await asyncio.sleep(0)
        full.release()
        assert await first and not second.done()
        one.release()
        assert await second

    asyncio.run(check())


def test_S5_a_large_body_that_waits_holds_back_a_smaller_one_for_two_seconds_at_most() -> None:
    async def check() -> None:
        clock = Clock()
        budget = of_callers(clock)
        full = budget.room("x")
        assert full.try_reserve(LARGE - 2 * MIB)
        large = asyncio.create_task(budget.room("a").wait(LARGE - MIB))
        await asyncio.sleep(0)
        smaller = [asyncio.create_task(budget.room(who).wait(MIB)) for who in "ab"]
        await turns()
        assert not any(task.done() for task in smaller), "the order of arrival"
        clock.now += OVERTAKE_S
        assert OVERTAKE_S < 2
        assert all(await asyncio.gather(*smaller)) and not large.done()
        large.cancel()

    asyncio.run(check())


def test_S5_a_slow_body_holds_what_has_arrived_and_a_step_once_others_wait() -> None:
    async def check() -> None:
        clock = Clock()
        budget = of_callers(clock)
        slow = budget.room("a")
        assert slow.try_reserve(HALF)
        with slow:
            clock.now += 60
            assert slow.keep(100_000) and budget.used == HALF * FACTOR, "nobody waits"
            waits = asyncio.create_task(budget.room("b").wait(LARGE - HALF + MIB))
            await asyncio.sleep(0)
            assert slow.keep(100_000) and budget.used == HALF * FACTOR and not slow.rate(HALF)
            clock.now += PATIENCE_S
            assert slow.rate(36 << 20) == (36 << 20) / WHOLE_S and slow.rate(1000) == LEAST_RATE
            assert slow.keep(100_000)
            assert await waits
            assert budget.used == (100_000 + STEP + LARGE - HALF + MIB) * FACTOR
            assert slow.grow(200_000) and not slow.grow(HALF), "it grows from there"

    asyncio.run(check())


def test_S5_of_a_caller_over_half_the_youngest_body_that_arrives_gives_way() -> None:
    async def check() -> None:
        clock = Clock()
        budget = of_callers(clock)
        bodies = [budget.room(who) for who in "aaab"]
        sizes = (LARGE // 4, LARGE // 4, LARGE // 4, LARGE // 4)
        for body, size in zip(bodies, sizes, strict=True):
            assert body.try_reserve(size)
            body.__enter__()
        bodies[2].__exit__()  # it is here: it waits for its answer
        waits = asyncio.create_task(budget.room("c").wait(LARGE // 4))
        await asyncio.sleep(0)
        clock.now += PATIENCE_S
        here = LARGE // 4
        assert bodies[0].keep(here) and bodies[3].keep(here) and not waits.done()
        assert not bodies[1].keep(here) and budget.refused["half"] == 1
        assert await waits
        assert bodies[0].keep(here), "its caller holds half"
        assert budget.used == LARGE * FACTOR

    asyncio.run(check())


def test_S5_one_caller_cannot_fill_the_queue() -> None:
    async def check() -> None:
        budget = of_callers(Clock())
        assert budget.room("x").try_reserve(LARGE)
        tasks = [asyncio.create_task(budget.room("a").wait(HALF)) for _ in range(MOST_WAITING // 2)]
        await asyncio.sleep(0)
        assert not await budget.room("a").wait(HALF)
        tasks.append(asyncio.create_task(budget.room("b").wait(HALF)))
        await asyncio.sleep(0)
        assert budget.waiting == len(tasks)
        for task in tasks:
            task.cancel()

    asyncio.run(check())


def test_S5_what_a_caller_holds_counts_over_all_workers() -> None:
    """A caller holds a quarter at each of two workers and waits for more at one; another one waits at the other."""
    clock = Clock()
    budget = of_callers(clock, 2)
    ready, tell = os.pipe()
    go, start = os.pipe()
    pid = os.fork()
    if not pid:
        budget.serve_as(1)

        async def elsewhere() -> None:
            assert budget.room("a").try_reserve(LARGE // 3) and budget.room("x").try_reserve(LARGE // 3)
            other = budget.room("b")
            waits = asyncio.create_task(other.wait(LARGE))
            await asyncio.sleep(0)
            os.write(tell, b"1")
            await asyncio.to_thread(os.read, go, 1)
            waits.cancel()
            await asyncio.wait([waits])
            os.write(tell, b"2")
            await asyncio.to_thread(os.read, go, 1)
            os._exit(0)

        asyncio.run(elsewhere())

    async def check() -> None:
        budget.serve_as(0)
        mine = budget.room("a")
        assert await asyncio.to_thread(os.read, ready, 1) == b"1"
        waits = asyncio.create_task(mine.wait(LARGE // 4))
        await turns()
        assert not waits.done(), "there is room, but it would be more than half"
        os.write(start, b"1")
        assert await asyncio.to_thread(os.read, ready, 1) == b"2"
        assert await waits
        os.write(start, b"1")

    asyncio.run(check())
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("seed", range(20))
def test_S5_half_read_bodies_never_wait_for_one_another_for_ever(seed: int) -> None:
    """Forty bodies of random sizes arrive together in random steps: each is served or refused, and nothing is held
    then."""

    async def check() -> None:
        random, clock = Random(seed), Clock()
        budget, ends = of_callers(clock), list[bool]()

        async def arrive(who: str, size: int, declared: bool) -> None:
            room = budget.room(who)
            got = 0
            try:
                if not await room.wait(size if declared else 1000):
                    return ends.append(False)
                with room:
                    while got < size:
                        await asyncio.sleep(random.random() * POLL_S)
                        got = min(size, got + random.randrange(1, 3 * MIB))
                        if not (room.keep(got) and await room.wait_to_grow(got)):
                            return ends.append(False)
                    await asyncio.sleep(random.random() * POLL_S)
                ends.append(True)
            finally:
                room.release()

        tasks = [
            asyncio.create_task(arrive(random.choice("abc"), random.randrange(1000, LARGE), random.random() < 0.5))
            for _ in range(40)
        ]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(POLL_S)
            clock.now += 0.1
        await asyncio.gather(*tasks)
        assert len(ends) == 40 and any(ends)
        assert budget.used == 0 and not budget.contended and not budget.waiting
        assert not any(budget._table[HELD:])

    asyncio.run(asyncio.wait_for(check(), 60))
