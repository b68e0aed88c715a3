"""What upstreams taught: kept for each tenant, doubted after a while, forgotten on demand, shared between replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.cache import model_records as module
from proxy.cache import replicated
from proxy.cache.calibration import MAX_SAMPLES
from proxy.cache.intervals import LIFETIME_S as INTERVAL_S
from proxy.cache.invalidation import InvalidationTimes
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.limit_proofs import LIFETIME_S
from proxy.cache.model_records import PROBE_AFTER_S, SAMPLE_S, ModelRecords
from proxy.cache.remote import Remote
from proxy.cache.replicated import ACTIVE_S
from proxy.cache.stats import LookupStats
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof, Shape, Suspicion
from proxy.model.structs import replace
from tests.cache.lessons import FAMILY, VOTE, counts_as, teach
from tests.cache.shelf import Shelf, until

ANN, BOB = b"ann's key, hashed", b"bob's key, hashed"
PROOF = Proof(0, 0, "context_length", 5_000, 0, 5_100, "exact")
SUSPICION = Suspicion(10_000, 7_000, "x")


def records(shelf: Shelf) -> list[bytes]:
    """The names of all that is not a stamp of records."""
    return [name for name in shelf.values if b":stamp:" not in name]


class Clock:
    """A clock that one sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Replica:
    """One proxy's lessons over a shelf."""

    def __init__(self, shelf: Shelf, clock: Clock, upstream: str = "https://api") -> None:
        self.remote = Remote(shelf, SECRET_NAME)
        self.stats = LookupStats()
        self.records = ModelRecords(upstream, self.remote, Keyring(b"secret"), self.stats, clock, clock)
        self.remote.start()
        self.remote.spawn(self.records.refresh_loop())

    async def load(self, model: str = "m", tenant: bytes = ANN) -> None:
        await self.records.load([(model, tenant)])

    def prove(self, learned: LearnedLimits, tenant: bytes = ANN) -> None:
        self.records.record_proof("m", tenant, learned, PROOF)

    def learned(self, tenant: bytes = ANN) -> LearnedLimits:
        return self.records.learned("m", tenant)


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


def alone(clock: Clock | None = None, invalidation: InvalidationTimes | None = None) -> ModelRecords:
    clock = clock or Clock()
    return ModelRecords("https://api", None, Keyring(None), LookupStats(), clock, clock, invalidation=invalidation)


def test_without_a_backend_lessons_stay_in_this_process() -> None:
    async def test() -> None:
        records = alone()
        await records.load([("m", ANN)])
        assert not records.has_tenant_records("m")
        records.record_proof("m", ANN, LearnedLimits(window=4096), PROOF)
        teach(records, "m", ANN, 1.25)
        await records.refresh()
        assert records.has_tenant_records("m") and records.learned("m", ANN) == LearnedLimits(window=4096)
        assert counts_as(records.correction("m", ANN, FAMILY, True), 1.25) and records.has_corrections("m")
        assert records.correction("other", ANN, FAMILY, True) is None and not records.has_corrections("other")

    asyncio.run(test())


def test_what_one_tenant_proved_holds_for_nobody_else() -> None:
    records = alone()
    records.record_proof("m", ANN, LearnedLimits(4096, 4000, 1.5, alternates=True), PROOF)
    assert records.learned("m", BOB) is records.learned("other", ANN) is NOTHING_LEARNED
    records.record_answer("m", BOB, 10_000, 0, agrees=True, probed=True)
    assert records.learned("m", ANN) == LearnedLimits(4096, 4000, 1.5, alternates=True)


def test_one_request_in_each_interval_may_try_a_limit() -> None:
    clock = Clock()
    records = alone(clock)
    records.record_proof("m", ANN, LearnedLimits(window=4096), PROOF)
    for _ in range(3):
        assert not records.claim_probe("m", ANN)
        clock.now += PROBE_AFTER_S - 1
        assert not records.claim_probe("m", ANN)
        clock.now += 1
        assert [records.claim_probe("m", ANN) for _ in range(3)] == [True, False, False]
    clock.now += PROBE_AFTER_S / 2
    records.record_proof("m", ANN, LearnedLimits(window=4096), PROOF)  # it was refused: proven again
    clock.now += PROBE_AFTER_S / 2
    assert not records.claim_probe("m", ANN)


def test_a_window_that_grew_is_found_by_the_first_request_after_a_minute() -> None:
    clock = Clock()
    records = alone(clock)
    records.record_proof("m", ANN, LearnedLimits(window=2_048), PROOF)
    clock.now += 60
    assert records.claim_probe("m", ANN)
    records.record_answer("m", ANN, 5_000, 500, agrees=True, probed=True)
    assert records.learned("m", ANN) is NOTHING_LEARNED


def test_after_the_upstream_was_away_each_limit_is_tried_at_once_and_once() -> None:
    clock = Clock()
    records = alone(clock)
    for tenant in (ANN, BOB):
        records.record_proof("m", tenant, LearnedLimits(window=4096), PROOF)
    clock.now += 1
    records.mark_unreachable()
    for tenant in (ANN, BOB):
        assert [records.claim_probe("m", tenant) for _ in range(3)] == [True, False, False]


def test_what_one_worker_forgets_all_forget_and_learn_again() -> None:
    clock, shared = Clock(), InvalidationTimes()
    one, two = alone(clock, shared), alone(clock, shared)
    for records in (one, two):
        for tenant in (ANN, BOB):
            records.record_proof("m", tenant, LearnedLimits(window=4096), PROOF)
        records.record_proof("other", ANN, LearnedLimits(window=4096), PROOF)
    clock.now += 1
    one.forget("m")
    for records in (one, two):
        assert records.learned("m", ANN) is records.learned("m", BOB) is NOTHING_LEARNED
        assert records.learned("other", ANN) == LearnedLimits(4096)
    clock.now += 1
    two.record_proof("m", ANN, LearnedLimits(window=3000), PROOF)
    assert two.learned("m", ANN) == LearnedLimits(3000)


def test_what_is_known_is_shown_with_its_proof_and_its_end_and_without_who_it_was() -> None:
    clock = Clock()
    records = alone(clock)
    records.record_proof("m", ANN, LearnedLimits(4096, scale=1.5), PROOF)
    records.record_proof("m", BOB, LearnedLimits(max_input=100), PROOF)
    records.record_refusal("other", ANN, (), SUSPICION, 4_500)
    shown = records.proofs("m")
    assert {(one.kind, one.proof.value) for one in shown} == {("window", 4096), ("scale", 1.5), ("max_input", 100)}
    assert all(
        one.expires_at == clock.now + LIFETIME_S[one.kind] and one.proof.rule == "context_length" for one in shown
    )
    assert len({one.tenant for one in shown}) == 2 and all(len(one.tenant) == 8 for one in shown)
    assert [one.model for one in records.proofs(tenant=ANN)].count("other") == 1
    assert records.proofs("m", BOB)[0].proof.counted == 5_000
    clock.now += LIFETIME_S["window"]
    assert records.proofs() == []


def test_what_one_replica_learned_the_other_knows_at_its_first_request_for_the_model() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        await two.load()
        await two.load(tenant=BOB)
        assert two.learned() == LearnedLimits(window=4096)
        assert two.learned(BOB) is NOTHING_LEARNED

    run(test)


def test_a_model_in_use_is_refreshed_beside_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await two.load()
        one.prove(LearnedLimits(window=4096))
        await until(lambda: two.learned().window == 4096)

    run(test)


def test_a_request_asks_once_for_a_model_and_again_only_after_a_pause_of_use() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        stats = one.remote.stats
        for _ in range(5):
            await one.load()
        assert stats.reads == 1
        clock.now += 2 * ACTIVE_S
        await one.load()
        assert stats.reads == 2

    run(test)


def test_ratios_are_shared_and_that_of_more_answers_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        teach(two.records, "m", ANN, 2.0)
        for _ in range(5):
            teach(one.records, "m", ANN, 1.2)
        await one.load()
        await two.load()
        await until(lambda: counts_as(two.records.correction("m", ANN, FAMILY, True), 1.2))
        assert counts_as(one.records.correction("m", ANN, FAMILY, True), 1.2)

    run(test)


def test_a_tenant_has_corrections_of_its_own_and_many_callers_agree_on_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        teach(one.records, "m", ANN, 2.5, 50, votes=True)
        assert counts_as(one.records.correction("m", ANN, FAMILY, True), 2.5)
        assert one.records.correction("m", BOB, FAMILY, True) is None
        for number in range(9):
            teach((one, two)[number % 2].records, "m", b"%d" % number, 1.1, VOTE, votes=True)
        await one.load()
        await two.load()
        await until(lambda: counts_as(one.records.correction("m", BOB, FAMILY, True), 1.1))
        await until(lambda: counts_as(two.records.correction("m", BOB, FAMILY, True), 1.1))
        assert one.records.correction("m", BOB, FAMILY, False) is None  # where no keys are checked
        assert not any(ANN in value for value in shelf.values.values())

    run(test)


def test_a_full_line_leaves_out_samples_that_come_at_once_and_no_other_line_does() -> None:
    clock = Clock()
    records = alone(clock)
    for number in range(MAX_SAMPLES):
        assert not records.sampled_just_now("m", ANN, Shape.TEXT), number
        records.record_sample("m", ANN, Shape.TEXT, (1_000, 1_100), FAMILY)
    assert records.sampled_just_now("m", ANN, Shape.TEXT)
    assert not records.sampled_just_now("m", ANN, Shape.TOOLS)
    assert not records.sampled_just_now("m", BOB, Shape.TEXT)
    assert not records.sampled_just_now("other", ANN, Shape.TEXT)
    clock.now += SAMPLE_S
    assert not records.sampled_just_now("m", ANN, Shape.TEXT)


def test_corrections_are_the_same_object_until_something_else_was_taught() -> None:
    records = alone()
    for _ in range(MAX_SAMPLES):
        records.record_sample("m", ANN, Shape.TEXT, (1_000, 1_300), FAMILY)
    found = records.correction("m", ANN, FAMILY, False)
    assert found is not None and records.correction("m", ANN, FAMILY, False) is found
    assert records.correction("m", BOB, FAMILY, False) is None
    other = replace(FAMILY, share=0.5)
    assert records.correction("m", ANN, other, False) is not found
    for _ in range(MAX_SAMPLES):
        records.record_sample("m", ANN, Shape.TEXT, (1_000, 1_900), FAMILY)
    assert records.correction("m", ANN, FAMILY, False) != found


def test_S2_tenants_of_one_caller_have_one_vote_and_none_before_it_has_several_answers() -> None:
    records = alone()
    for number in range(40):
        for _ in range(VOTE - 1):
            records.record_sample("m", b"%d" % number, Shape.TEXT, (1_000, 2_000), FAMILY, BOB)
    assert records.consensus("m", Shape.TEXT, FAMILY) == (0, None)
    for number in range(40):
        records.record_sample("m", b"%d" % number, Shape.TEXT, (1_000, 2_000), FAMILY, BOB)
    assert records.consensus("m", Shape.TEXT, FAMILY) == (1, None)
    assert records.correction("m", ANN, FAMILY, True) is None


def test_S2_where_nobody_is_known_nobody_votes() -> None:
    records = alone()
    for number in range(40):
        teach(records, "m", b"%d" % number, 2.0, VOTE)
    assert records.consensus("m", Shape.TEXT, FAMILY) == (0, None)


def test_what_two_replicas_learned_at_once_is_joined_and_not_overwritten() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        first = next(iter(shelf.values.values()))
        two.prove(LearnedLimits(max_input=3000))
        await until(lambda: next(iter(shelf.values.values())) != first)
        assert two.learned() == LearnedLimits(4096, 3000)
        clock.now += 2 * ACTIVE_S
        await one.load()
        assert one.learned() == LearnedLimits(4096, 3000)

    run(test)


def test_what_was_taken_back_is_taken_back_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(4096, 3000))
        await until(lambda: shelf.values)
        await one.load()
        await two.load()
        assert two.learned() == LearnedLimits(4096, 3000)
        two.records.record_answer("m", ANN, 3001, 0, agrees=True, probed=False)
        await until(lambda: one.learned() == LearnedLimits(4096))
        one.records.record_answer("m", ANN, 4097, 0, agrees=True, probed=False)
        await until(lambda: two.learned() == NOTHING_LEARNED)
        await one.records.refresh()
        await two.records.refresh()
        assert one.learned() == two.learned() == NOTHING_LEARNED

    run(test)


def test_what_one_replica_forgets_all_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(4096))
        await until(lambda: shelf.values)
        await two.load()
        assert two.learned() == LearnedLimits(4096)
        clock.now += 1
        one.records.forget("m")
        await until(lambda: two.learned() is NOTHING_LEARNED)
        await one.records.refresh()
        assert one.learned() is NOTHING_LEARNED

    run(test)


def test_an_interval_is_shared_and_ends_at_the_same_time_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await one.load()
        one.records.record_refusal("m", ANN, (1, 2), SUSPICION, 4_500)
        await until(lambda: shelf.values)
        await two.load()
        assert two.learned() == LearnedLimits(7_000, supposed=True, refused=10_000)
        assert two.learned(BOB) == NOTHING_LEARNED
        clock.now += 1
        two.records.record_size("m", ANN, (), 10_000)
        await until(lambda: not one.learned().supposed)
        clock.now += 60
        one.records.record_refusal("m", ANN, (1, 2), SUSPICION, 4_500)
        assert not one.learned().supposed, "as much was answered"
        clock.now += 60
        one.records.record_refusal("m", ANN, (1, 2), SUSPICION, 4_500)
        assert one.learned().window == 7_000
        clock.now += INTERVAL_S + 1
        assert one.learned() == two.learned() == NOTHING_LEARNED

    run(test)


def test_a_conversation_starts_from_its_own_interval_and_the_next_ones_from_their_tenants() -> None:
    clock = Clock()
    records = alone(clock)
    records.record_size("m", ANN, (1,), 20_000)
    records.record_refusal("m", ANN, (7, 8), SUSPICION, 4_500)  # of less than what was answered in another conversation
    assert records.has_conversations("m", ANN) and not records.has_conversations("m", BOB)
    assert records.learned("m", ANN, (6, 7, 8)).window == records.learned("m", ANN, (8, 9)).window == 7_000
    assert records.learned("m", ANN, (1, 2)) == records.learned("m", ANN) == NOTHING_LEARNED
    records.record_size("m", ANN, (7, 8, 9), 6_000)
    assert records.learned("m", ANN, (9, 10)).window == 7_000, "it goes on from its last prefix"
    records.record_refusal("m", BOB, (), replace(SUSPICION, shared=False), 4_500)
    assert records.learned("m", BOB) is NOTHING_LEARNED
    records.record_refusal("m", BOB, (8,), SUSPICION, 4_500)
    assert records.learned("m", BOB, (5,)).window == 7_000
    clock.now += 1
    records.forget("m")
    assert records.learned("m", BOB, (8,)) is records.learned("m", ANN, (9,)) is NOTHING_LEARNED


def test_refusals_that_no_answer_proved_bound_nothing_and_are_remembered_for_a_minute() -> None:
    clock = Clock()
    records = alone(clock)
    for size in (9_000, 5_000, 7_000):
        records.record_unproven("m", ANN, size)
    assert (records.unproven("m", ANN), records.unproven("m", BOB)) == (5_000, 0)
    assert records.learned("m", ANN) is NOTHING_LEARNED
    records.record_refusal("m", ANN, (), SUSPICION, 2_000)
    assert records.learned("m", ANN).refused == 5_000 and records.unproven("m", ANN) == 0
    records.record_unproven("m", ANN, 9_000)
    records.record_size("m", ANN, (), 8_000)
    assert records.unproven("m", ANN) == 9_000
    records.record_size("m", ANN, (), 9_000)
    assert records.unproven("m", ANN) == 0
    records.record_unproven("m", ANN, 9_000)
    clock.now += 60
    assert records.unproven("m", ANN) == 0


def test_a_refused_probe_doubles_its_wait_up_to_an_hour_and_an_answered_one_ends_that() -> None:
    clock, waits = Clock(), []
    records = alone(clock)
    records.record_proof("m", ANN, LearnedLimits(window=4_096), PROOF)
    for _ in range(8):
        began = clock.now
        while not records.claim_probe("m", ANN):
            clock.now += 10
        waits.append(clock.now - began)
        records.record_proof("m", ANN, LearnedLimits(window=4_096), PROOF)
        records.probe_refused("m", ANN)
    assert waits == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]
    (shown,) = records.proofs("m")
    assert shown.probe_at == clock.now + 3_600
    clock.now += 1
    records.mark_unreachable()
    assert records.claim_probe("m", ANN)
    records.record_answer("m", ANN, 5_000, 500, agrees=True, probed=True)
    clock.now += 1
    records.record_proof("m", ANN, LearnedLimits(window=4_096), PROOF)
    clock.now += 60
    assert records.claim_probe("m", ANN)


def test_an_interval_is_probed_and_shown_as_limits_are() -> None:
    clock = Clock()
    records = alone(clock)
    records.record_refusal("m", ANN, (1,), SUSPICION, 4_500)
    (shown,) = records.proofs("m", ANN)
    assert (shown.kind, shown.proof.value, shown.proof.counted, shown.proof.rule) == ("supposed", 7_000, 10_000, "x")
    assert shown.probe_at == clock.now + 60 and shown.expires_at == clock.now + INTERVAL_S
    assert not records.claim_probe("m", ANN, (1,))
    clock.now += 60
    assert [records.claim_probe("m", ANN, (1,)) for _ in range(2)] == [True, False]
    records.probe_refused("m", ANN)
    records.record_size("m", ANN, (1, 2), 12_000)
    assert records.learned("m", ANN, (2,)) is NOTHING_LEARNED and records.proofs("m") == []


def test_a_backend_that_was_emptied_is_told_again_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await one.load()
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        shelf.values.clear()
        await until(lambda: shelf.values)

    run(test)


def test_each_upstream_has_lessons_of_its_own() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        await two.load()
        assert two.learned() is NOTHING_LEARNED

    run(test, ("https://a", "https://b"))


def test_a_poisoned_record_is_none() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        one.prove(LearnedLimits(window=4096))
        await until(lambda: shelf.values)
        (name,) = records(shelf)
        shelf.values[name] = shelf.values[name][:-1] + b"\x07"
        await two.load()
        assert (two.learned(), two.stats.foreign) == (NOTHING_LEARNED, 1)

    run(test)


def test_what_could_not_be_told_is_told_later() -> None:
    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        await until(lambda: shelf.answered >= 2)
        shelf.fault = "ConnectionError"
        one.prove(LearnedLimits(window=4096))
        await until(lambda: not one.remote.read_breaker.closed)
        shelf.fault = ""
        await until(lambda: one.remote.read_breaker.closed)
        await one.records.refresh()
        await until(lambda: shelf.values)
        await two.load()
        assert two.learned().window == 4096

    run(test)


def test_clients_that_invent_names_and_keys_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MODELS", 10)
    monkeypatch.setattr(module, "MAX_TENANT_RECORDS", 10)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        records = ModelRecords("u", one.remote, Keyring(b"secret"), LookupStats(), clock, clock)
        for number in range(100):
            teach(records, f"m{number}\ud800", b"%d" % number, 1.5)
            records.record_proof(f"m{number}\ud800", b"%d" % number, LearnedLimits(5_000), PROOF)
            records.claim_probe(f"m{number}", b"%d" % number)
            await records.load([(f"m{number}", b"%d" % number)])
        for kept in (records._calibrations, records._consensus, records._limits):
            assert len(kept) <= 10 and len(kept._unsent) <= 10
            assert len(kept._read) <= 10 and len(kept._used) <= 10
        assert len(records._probed) <= 10

    run(test)


def test_counts_that_are_forgotten_do_not_come_back_from_another_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REFRESH_S", 0.01)

    async def test(shelf: Shelf, clock: Clock, one: Replica, two: Replica) -> None:
        teach(one.records, "m", ANN, 1.5, VOTE, votes=True)
        await one.records.refresh()
        await until(lambda: len(records(shelf)) == 2)
        await two.load()
        assert counts_as(two.records.correction("m", ANN, FAMILY, True), 1.5)
        clock.now += 1
        one.records.forget("m")
        assert one.records.correction("m", ANN, FAMILY, True) is None and one.records.calibrations("m") == []
        await until(lambda: two.records.correction("m", ANN, FAMILY, True) is None)
        for replica in (one, two):
            await replica.load()
            await replica.records.refresh()
            assert replica.records.correction("m", ANN, FAMILY, True) is None
        teach(two.records, "m", ANN, 1.3, VOTE, votes=True)
        await two.records.refresh()
        await until(lambda: len(records(shelf)) == 5)  # what was forgotten, and by when, ends by itself
        clock.now += ACTIVE_S
        await one.load()
        assert counts_as(one.records.correction("m", ANN, FAMILY, True), 1.3)

    run(test)


def test_a_wall_clock_that_was_set_back_makes_no_request_a_probe() -> None:
    clock, wall = Clock(), Clock()
    records = ModelRecords("https://api", None, Keyring(None), LookupStats(), clock, wall)
    records.record_proof("m", ANN, LearnedLimits(window=2_048), PROOF)
    records.mark_unreachable()
    wall.now -= 3_600
    assert [records.claim_probe("m", ANN) for _ in range(3)] == [True, False, False]
    records.record_proof("m", ANN, LearnedLimits(window=2_048), PROOF)
    assert not records.claim_probe("m", ANN)
    clock.now += PROBE_AFTER_S
    assert [records.claim_probe("m", ANN) for _ in range(3)] == [True, False, False]


def test_after_a_change_of_the_secret_a_caller_has_still_one_vote() -> None:
    keyring, clock = Keyring(b"old"), Clock()
    records = ModelRecords("https://api", None, keyring, LookupStats(), clock, clock)
    for _ in range(2):
        for number in range(6):
            teach(records, "m", b"%d" % number, 1.5, VOTE, votes=True)
        assert records.consensus("m", Shape.TEXT, FAMILY)[0] == 6
        keyring.use(b"new")
        records.drop_votes()
    assert records.consensus("m", Shape.TEXT, FAMILY)[0] == 0


def test_the_records_of_an_upstream_that_is_left_are_refreshed_no_more() -> None:
    records = alone()
    records.left = True
    asyncio.run(asyncio.wait_for(records.refresh_loop(), 20))
