"""What upstreams taught: kept for each caller, doubted after a while, forgotten on demand, shared between replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from proxy.cache import model_records as module
from proxy.cache.counts import Tally
from proxy.cache.forgotten import Forgotten
from proxy.cache.keyring import SECRET, Keyring
from proxy.cache.limits import LIFE
from proxy.cache.model_records import PROBE_AFTER, ModelRecords
from proxy.cache.remote import Remote
from proxy.cache.replicated import ACTIVE
from proxy.model.limits import NOTHING_LEARNED, Correction, LearnedLimits, Proof
from tests.cache.shelf import Shelf, until

ANN, BOB = b"ann's key, hashed", b"bob's key, hashed"
PROOF = Proof(0, 0, "context_length", 5_000, 0, 5_100, "exact")


class Clock:
    """A clock that one sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Replica:
    """One proxy's lessons over a shelf."""

    def __init__(self, shelf: Shelf, clock: Clock, upstream: str = "https://api") -> None:
        self.remote = Remote(shelf, SECRET)
        self.tally = Tally()
        self.teaching = ModelRecords(upstream, self.remote, Keyring(b"secret"), self.tally, clock, clock)
        self.remote.start()
        self.remote.spawn(self.teaching.refresh_on())

    async def learn_of(self, model: str = "m", caller: bytes = ANN) -> None:
        await self.teaching.learn_of([(model, caller)])

    def prove(self, learned: LearnedLimits, caller: bytes = ANN) -> None:
        self.teaching.prove("m", caller, learned, PROOF)

    def learned(self, caller: bytes = ANN) -> LearnedLimits:
        return self.teaching.learned("m", caller)


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


def alone(clock: Clock | None = None, forgotten: Forgotten | None = None) -> ModelRecords:
    clock = clock or Clock()
    return ModelRecords("https://api", None, Keyring(None), Tally(), clock, clock, forgotten=forgotten)


def test_without_a_backend_lessons_stay_in_this_process() -> None:
    async def test() -> None:
        teaching = alone()
        await teaching.learn_of([("m", ANN)])
        assert not teaching.personal("m")
        teaching.prove("m", ANN, LearnedLimits(window=4096), PROOF)
        teaching.observe("m", ANN, 1.25)
        await teaching.refresh()
        assert teaching.personal("m") and teaching.learned("m", ANN) == LearnedLimits(window=4096)
        assert teaching.correction("m", ANN, 1.0) == Correction(1.24) and teaching.corrected("m")
        assert teaching.correction("other", ANN, 1.0) is None and not teaching.corrected("other")

    asyncio.run(test())


def test_what_one_caller_proved_holds_for_nobody_else() -> None:
    teaching = alone()
    teaching.prove("m", ANN, LearnedLimits(4096, 4000, 1.5, alternates=True), PROOF)
    assert teaching.learned("m", BOB) is teaching.learned("other", ANN) is NOTHING_LEARNED
    teaching.answered("m", BOB, 10_000, 0, agrees=True, probed=True)
    assert teaching.learned("m", ANN) == LearnedLimits(4096, 4000, 1.5, alternates=True)


def test_one_request_in_each_interval_may_try_a_limit() -> None:
    clock = Clock()
    teaching = alone(clock)
    teaching.prove("m", ANN, LearnedLimits(window=4096), PROOF)
    for _ in range(3):
        assert not teaching.probes("m", ANN)
        clock.now += PROBE_AFTER - 1
        assert not teaching.probes("m", ANN)
        clock.now += 1
        assert [teaching.probes("m", ANN) for _ in range(3)] == [True, False, False]
    clock.now += PROBE_AFTER / 2
    teaching.prove("m", ANN, LearnedLimits(window=4096), PROOF)  # it was refused: proven anew
    clock.now += PROBE_AFTER / 2
    assert not teaching.probes("m", ANN)


def test_a_window_that_grew_is_found_by_the_first_request_after_a_minute() -> None:
    clock = Clock()
    teaching = alone(clock)
    teaching.prove("m", ANN, LearnedLimits(window=2_048), PROOF)
    clock.now += 60
    assert teaching.probes("m", ANN)
    teaching.answered("m", ANN, 5_000, 500, agrees=True, probed=True)
    assert teaching.learned("m", ANN) is NOTHING_LEARNED


def test_after_the_upstream_was_away_each_limit_is_tried_at_once_and_once() -> None:
    clock = Clock()
    teaching = alone(clock)
    for caller in (ANN, BOB):
        teaching.prove("m", caller, LearnedLimits(window=4096), PROOF)
    clock.now += 1
    teaching.mark_unreachable()
    for caller in (ANN, BOB):
        assert [teaching.probes("m", caller) for _ in range(3)] == [True, False, False]


def test_what_one_worker_forgets_all_forget_and_learn_again() -> None:
    clock, shared = Clock(), Forgotten()
    one, two = alone(clock, shared), alone(clock, shared)
    for teaching in (one, two):
        for caller in (ANN, BOB):
            teaching.prove("m", caller, LearnedLimits(window=4096), PROOF)
        teaching.prove("other", ANN, LearnedLimits(window=4096), PROOF)
    clock.now += 1
    one.forget("m")
    for teaching in (one, two):
        assert teaching.learned("m", ANN) is teaching.learned("m", BOB) is NOTHING_LEARNED
        assert teaching.learned("other", ANN) == LearnedLimits(4096)
    clock.now += 1
    two.prove("m", ANN, LearnedLimits(window=3000), PROOF)
    assert two.learned("m", ANN) == LearnedLimits(3000)


def test_what_is_known_is_shown_with_its_proof_and_its_end_and_without_who_it_was() -> None:
    clock = Clock()
    teaching = alone(clock)
    teaching.prove("m", ANN, LearnedLimits(4096, scale=1.5), PROOF)
    teaching.prove("m", BOB, LearnedLimits(max_input=100), PROOF)
    teaching.prove("other", ANN, LearnedLimits(5000, supposed=True), PROOF)
    shown = teaching.shown("m")
    assert {(one.kind, one.proof.value) for one in shown} == {("window", 4096), ("scale", 1.5), ("max_input", 100)}
    assert all(one.until == clock.now + LIFE[one.kind] and one.proof.rule == "context_length" for one in shown)
    assert len({one.caller for one in shown}) == 2 and all(len(one.caller) == 8 for one in shown)
    assert [one.model for one in teaching.shown(caller=ANN)].count("other") == 1
    assert teaching.shown("m", BOB)[0].proof.counted == 5_000
    clock.now += LIFE["window"]
    assert teaching.shown() == []


def test_what_one_replica_learned_the_other_knows_at_its_first_request_for_the_model() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        await two.learn_of()
        await two.learn_of(caller=BOB)
        assert two.learned() == LearnedLimits(window=4096)
        assert two.learned(BOB) is NOTHING_LEARNED

    run(test)


def test_a_model_in_use_is_refreshed_beside_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await two.learn_of()
        one.prove(LearnedLimits(window=4096))
        await until(lambda: two.learned().window == 4096)

    run(test)


def test_a_request_asks_once_for_a_model_and_again_only_after_a_pause_of_use() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        asked = one.remote.tally
        for _ in range(5):
            await one.learn_of()
        assert asked.asked == 1
        clock.now += 2 * ACTIVE
        await one.learn_of()
        assert asked.asked == 2

    run(test)


def test_ratios_are_shared_and_that_of_more_answers_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        two.teaching.observe("m", ANN, 2.0)
        for _ in range(5):
            one.teaching.observe("m", ANN, 1.2)
        await one.learn_of()
        await two.learn_of()
        await until(lambda: two.teaching.correction("m", ANN, 1.0) == Correction(1.2))
        assert one.teaching.correction("m", ANN, 1.0) == Correction(1.2)

    run(test)


def test_a_caller_has_corrections_of_its_own_and_many_callers_agree_on_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        for _ in range(50):
            one.teaching.observe("m", ANN, 2.5)
        assert one.teaching.correction("m", ANN, 1.0) == Correction(2.5, 0.02)
        assert one.teaching.correction("m", BOB, 1.0) is None
        for number in range(9):
            (one, two)[number % 2].teaching.observe("m", b"%d" % number, 1.1)
        await one.learn_of()
        await two.learn_of()
        await until(lambda: one.teaching.correction("m", BOB, 1.0) == Correction(1.1))
        await until(lambda: two.teaching.correction("m", BOB, 1.0) == Correction(1.1))
        assert not any(ANN in value for value in shelf.values.values())

    run(test)


def test_what_two_replicas_learned_at_once_is_joined_and_not_overwritten() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        first = next(iter(shelf.values.values()))
        two.prove(LearnedLimits(max_input=3000))
        await until(lambda: next(iter(shelf.values.values())) != first)
        assert two.learned() == LearnedLimits(4096, 3000)
        clock.now += 2 * ACTIVE
        await one.learn_of()
        assert one.learned() == LearnedLimits(4096, 3000)

    run(test)


def test_what_was_taken_back_is_taken_back_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(4096, 3000))
        await until(lambda: shelf.values)
        await one.learn_of()
        await two.learn_of()
        assert two.learned() == LearnedLimits(4096, 3000)
        two.teaching.answered("m", ANN, 3001, 0, agrees=True, probed=False)
        await until(lambda: one.learned() == LearnedLimits(4096))
        one.teaching.answered("m", ANN, 4097, 0, agrees=True, probed=False)
        await until(lambda: two.learned() == NOTHING_LEARNED)
        await one.teaching.refresh()
        await two.teaching.refresh()
        assert one.learned() == two.learned() == NOTHING_LEARNED

    run(test)


def test_what_one_replica_forgets_all_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(4096))
        await until(lambda: shelf.values)
        await two.learn_of()
        assert two.learned() == LearnedLimits(4096)
        clock.now += 1
        one.teaching.forget("m")
        await until(lambda: two.learned() is NOTHING_LEARNED)
        await one.teaching.refresh()
        assert one.learned() is NOTHING_LEARNED

    run(test)


def test_what_was_supposed_ends_at_the_same_time_everywhere() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=7000, supposed=True))
        await until(lambda: shelf.values)
        await two.learn_of()
        assert two.learned().window == 7000
        clock.now += LIFE["supposed"]
        assert one.learned() == two.learned() == NOTHING_LEARNED

    run(test)


def test_a_backend_that_was_emptied_is_told_again_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await one.learn_of()
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        shelf.values.clear()
        await until(lambda: shelf.values)

    run(test)


def test_each_upstream_has_lessons_of_its_own() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        await two.learn_of()
        assert two.learned() is NOTHING_LEARNED

    run(test, ("https://a", "https://b"))


def test_a_poisoned_record_is_none() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        (name,) = shelf.values
        shelf.values[name] = shelf.values[name][:-1] + b"\x07"
        await two.learn_of()
        assert (two.learned(), two.tally.foreign) == (NOTHING_LEARNED, 1)

    run(test)


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode(-1.0), msgspec.msgpack.encode("now")])
def test_a_time_that_is_none_forgets_nothing(payload: bytes) -> None:
    assert module._time(payload) is None


def test_what_could_not_be_told_is_told_later() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await until(lambda: shelf.answered >= 2)
        shelf.fault = "ConnectionError"
        one.prove(LearnedLimits(window=4096))
        await until(lambda: not one.remote.reading.closed)
        shelf.fault = ""
        await until(lambda: one.remote.reading.closed)
        await one.teaching.refresh()
        await until(lambda: shelf.values)
        await two.learn_of()
        assert two.learned().window == 4096

    run(test)


def test_clients_that_invent_names_and_keys_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MODELS", 10)
    monkeypatch.setattr(module, "MOST_LIMITS", 10)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        teaching = ModelRecords("u", one.remote, Keyring(b"secret"), Tally(), clock, clock)
        for number in range(100):
            teaching.observe(f"m{number}\ud800", b"%d" % number, 1.5)
            teaching.prove(f"m{number}\ud800", b"%d" % number, LearnedLimits(5_000), PROOF)
            teaching.probes(f"m{number}", b"%d" % number)
            await teaching.learn_of([(f"m{number}", b"%d" % number)])
        for records in (teaching._calibrations, teaching._agreements, teaching._limits):
            assert len(records) <= 10 and len(records._unsent) <= 10
            assert len(records._asked) <= 10 and len(records._used) <= 10
        assert len(teaching._probed) <= 10

    run(test)


def test_counts_that_are_forgotten_do_not_come_back_from_another_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.teaching.observe("m", ANN, 1.5)
        await one.teaching.refresh()
        await until(lambda: len(shelf.values) == 2)
        await two.learn_of()
        assert two.teaching.correction("m", ANN, 1.0) == Correction(1.5)
        clock.now += 1
        one.teaching.forget("m")
        assert not one.teaching.corrected("m") and one.teaching.counted("m") == []
        await until(lambda: two.teaching.correction("m", ANN, 1.0) is None)
        for replica in (one, two):
            await replica.learn_of()
            await replica.teaching.refresh()
            assert replica.teaching.correction("m", ANN, 1.0) is None
        two.teaching.observe("m", ANN, 1.3)
        await two.teaching.refresh()
        await until(lambda: len(shelf.values) == 5)  # what was forgotten, and by when, ends by itself
        clock.now += ACTIVE
        await one.learn_of()
        assert one.teaching.correction("m", ANN, 1.0) == Correction(1.3)

    run(test)


def test_a_wall_clock_that_was_set_back_makes_no_request_a_probe() -> None:
    clock, wall = Clock(), Clock()
    teaching = ModelRecords("https://api", None, Keyring(None), Tally(), clock, wall)
    teaching.prove("m", ANN, LearnedLimits(window=2_048), PROOF)
    teaching.mark_unreachable()
    wall.now -= 3_600
    assert [teaching.probes("m", ANN) for _ in range(3)] == [True, False, False]
    teaching.prove("m", ANN, LearnedLimits(window=2_048), PROOF)
    assert not teaching.probes("m", ANN)
    clock.now += PROBE_AFTER
    assert [teaching.probes("m", ANN) for _ in range(3)] == [True, False, False]
