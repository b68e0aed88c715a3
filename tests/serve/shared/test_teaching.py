from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.serve.shared import teaching as module
from proxy.serve.shared.counts import Tally
from proxy.serve.shared.keyring import SECRET, Keyring
from proxy.serve.shared.lessons import SUPPOSED, Lesson
from proxy.serve.shared.remote import Remote
from proxy.serve.shared.teaching import ACTIVE, Teaching
from proxy.types import Learned
from tests.serve.shared.shelf import Shelf, until


class Clock:
    """A clock that one sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Replica:
    """One proxy's lessons over a shelf."""

    def __init__(self, shelf: Shelf, clock: Clock, upstream: str = "https://api") -> None:
        self.remote = Remote(shelf, SECRET)
        self.tally = Tally()
        self.teaching = Teaching(upstream, self.remote, Keyring(b"secret"), self.tally, clock, clock)
        self.remote.start()
        self.remote.spawn(self.teaching.refresh_on())


def run(
    test: Callable[[Shelf, Clock, Replica, Replica], Awaitable[None]], upstreams: tuple[str, str] = ("https://api",) * 2
) -> None:
    async def whole() -> None:
        shelf, clock = Shelf(), Clock()
        one, two = (Replica(shelf, clock, upstream) for upstream in upstreams)
        try:
            await test(shelf, clock, one, two)
        finally:
            await one.remote.close()
            await two.remote.close()

    asyncio.run(whole())


def alone() -> Teaching:
    return Teaching("https://api", None, Keyring(None), Tally())


def test_without_a_backend_lessons_stay_in_this_process() -> None:
    async def test() -> None:
        teaching = alone()
        await teaching.learn_of("m")
        teaching.keep("m", Learned(window=4096))
        teaching.observe("m", 1.25)
        await teaching.refresh()
        lesson = teaching.lesson("m")
        assert (lesson.learned, lesson.ratio, lesson.count) == (Learned(window=4096), 1.25, 1)
        assert teaching.lesson("other") == Lesson()

    asyncio.run(test())


def test_what_one_replica_learned_the_other_knows_at_its_first_request_for_the_model() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: shelf.values)
        await two.teaching.learn_of("m")
        assert two.teaching.lesson("m").learned == Learned(window=4096)

    run(test)


def test_a_model_in_use_is_refreshed_beside_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await two.teaching.learn_of("m")
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: two.teaching.lesson("m").learned.window == 4096)

    run(test)


def test_a_request_asks_once_for_a_model_and_again_only_after_a_pause_of_use() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        asked = one.remote.tally
        for _ in range(5):
            await one.teaching.learn_of("m")
        assert asked.asked == 1
        clock.now += 2 * ACTIVE
        await one.teaching.learn_of("m")
        assert asked.asked == 2

    run(test)


def test_ratios_are_shared_and_that_of_more_answers_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        two.teaching.observe("m", 2.0)
        for _ in range(5):
            one.teaching.observe("m", 1.2)
        await one.teaching.learn_of("m")
        await two.teaching.learn_of("m")
        await until(lambda: one.teaching.lesson("m").count == two.teaching.lesson("m").count == 5)
        assert two.teaching.lesson("m").ratio == pytest.approx(1.2)

    run(test)


def test_what_two_replicas_learned_at_once_is_joined_and_not_overwritten() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: shelf.values)
        first = next(iter(shelf.values.values()))
        two.teaching.keep("m", Learned(max_input=3000))
        await until(lambda: next(iter(shelf.values.values())) != first)
        assert two.teaching.lesson("m").learned == Learned(4096, 3000)
        clock.now += 2 * ACTIVE
        await one.teaching.learn_of("m")
        assert one.teaching.lesson("m").learned == Learned(4096, 3000)

    run(test)


def test_what_was_taken_back_is_taken_back_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(4096, 3000))
        await until(lambda: shelf.values)
        await one.teaching.learn_of("m")
        await two.teaching.learn_of("m")
        assert two.teaching.learned("m") == Learned(4096, 3000)
        two.teaching.held("m", 3001)
        await until(lambda: one.teaching.learned("m") == Learned(4096))
        one.teaching.held("m", 4097)
        await until(lambda: two.teaching.learned("m") == Learned())
        await one.teaching.refresh()
        await two.teaching.refresh()
        assert one.teaching.learned("m") == two.teaching.learned("m") == Learned()

    run(test)


def test_what_was_supposed_ends_at_the_same_time_everywhere() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(window=700, supposed=True))
        await until(lambda: shelf.values)
        await two.teaching.learn_of("m")
        assert two.teaching.learned("m").window == 700
        clock.now += SUPPOSED
        assert one.teaching.learned("m") == two.teaching.learned("m") == Learned()

    run(test)


def test_a_backend_that_was_emptied_is_told_again_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await one.teaching.learn_of("m")
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: shelf.values)
        shelf.values.clear()
        await until(lambda: shelf.values)

    run(test)


def test_each_upstream_has_lessons_of_its_own() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: shelf.values)
        await two.teaching.learn_of("m")
        assert two.teaching.lesson("m") == Lesson()

    run(test, ("https://a", "https://b"))


def test_a_poisoned_lesson_is_none() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: shelf.values)
        (name,) = shelf.values
        shelf.values[name] = shelf.values[name][:-1] + b"\x07"
        await two.teaching.learn_of("m")
        assert (two.teaching.lesson("m"), two.tally.foreign) == (Lesson(), 1)

    run(test)


def test_what_could_not_be_told_is_told_later() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await until(lambda: shelf.answered >= 2)
        shelf.fault = "ConnectionError"
        one.teaching.keep("m", Learned(window=4096))
        await until(lambda: not one.remote.reading.closed)
        shelf.fault = ""
        await until(lambda: one.remote.reading.closed)
        await one.teaching.refresh()
        await until(lambda: shelf.values)
        await two.teaching.learn_of("m")
        assert two.teaching.lesson("m").learned.window == 4096

    run(test)


def test_clients_that_invent_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MODELS", 10)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        teaching = Teaching("u", one.remote, Keyring(b"secret"), Tally(), clock)
        for number in range(100):
            teaching.observe(f"m{number}\ud800", 1.5)
        assert (len(teaching._models), len(teaching._unsent)) == (10, 10)

    run(test)
