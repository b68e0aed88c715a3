"""Records of what refusals proved: what holds and until when, what answers take back, and how two replicas agree."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.limit_proofs import LIFETIME_S, LimitProofs, pack, unpack
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Proof
from proxy.model.structs import replace

NOW = 1_000_000.0
PROOF = Proof(0, NOW, "context_length", 5_000, 500, 5_100, "exact")
learned = st.builds(
    LearnedLimits,
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
    st.sampled_from([1.0, 0.5, 1.3, 4.0]),
    alternates=st.booleans(),
)
times = st.floats(1, 1e6)
steps = st.lists(st.tuples(st.none() | learned, st.integers(1, 10**6), times), max_size=6)


def lived(found: Sequence[tuple[LearnedLimits | None, int, float]]) -> LimitProofs:
    """A record after refusals, and answers to so many tokens."""
    record = LimitProofs()
    for told, used, now in found:
        if told is None:
            record = record.after_answer(used, 100, now, agrees=True, probed=True)
        else:
            record = record.after_refusal(told, replace(PROOF, at=now))
    return record


def test_what_was_proved_is_learned_with_its_proof() -> None:
    record = LimitProofs().after_refusal(
        LearnedLimits(8_192, 7_000, 1.2, alternates=True, binds=True, shared=True), PROOF
    )
    assert record.learned(NOW) == LearnedLimits(8_192, 7_000, 1.2, alternates=True, binds=True, shared=True)
    assert record.proofs["window"] == replace(PROOF, value=8_192)


def test_a_refusal_adds_to_what_was_proved_before() -> None:
    record = (
        LimitProofs().after_refusal(LearnedLimits(8_192), PROOF).after_refusal(LearnedLimits(max_input=7_000), PROOF)
    )
    assert record.learned(NOW) == LearnedLimits(8_192, 7_000)
    assert record.after_refusal(LearnedLimits(4_096), PROOF).learned(NOW) == LearnedLimits(4_096, 7_000)


@pytest.mark.parametrize("kind", LIFETIME_S)
def test_every_proof_ends(kind: str) -> None:
    record = LimitProofs({kind: replace(PROOF, value=2)})
    assert record.learned(NOW + LIFETIME_S[kind] - 1) != NOTHING_LEARNED
    assert record.learned(NOW + LIFETIME_S[kind]) is NOTHING_LEARNED
    assert record.learned(NOW - LIFETIME_S[kind]) is NOTHING_LEARNED  # a clock that is far ahead of ours


def test_what_was_forgotten_does_not_hold() -> None:
    record = LimitProofs().after_refusal(LearnedLimits(5_000), PROOF)
    assert record.learned(NOW + 1, since=NOW) is NOTHING_LEARNED
    assert record.learned(NOW + 1, since=NOW - 1) == LearnedLimits(5_000)


def test_an_answer_takes_back_the_limits_that_it_disproves() -> None:
    record = LimitProofs().after_refusal(LearnedLimits(8_192, 7_000, 1.2), PROOF)

    def after(used: int, reply: int = 0, agrees: bool = True, probed: bool = False) -> LearnedLimits:
        return record.after_answer(used, reply, NOW + 1, agrees=agrees, probed=probed).learned(NOW + 2)

    assert after(7_000) == record.learned(NOW)
    assert after(7_001) == LearnedLimits(8_192, None, 1.2)
    assert after(8_193) == LearnedLimits(scale=1.2)
    assert after(7_000, 1_193) == record.learned(NOW)  # some count the reply, and some do not
    assert after(7_000, 1_193, probed=True) == LearnedLimits(None, 7_000)
    assert after(7_000, 1_193, agrees=False, probed=True) == record.learned(NOW)  # it was cut silently
    assert record.after_answer(100, 0, NOW, agrees=True, probed=False) is record


def test_a_word_outranks_the_one_before_it_though_the_clock_goes_backwards() -> None:
    old = LimitProofs().after_refusal(LearnedLimits(5_000), PROOF)
    back = old.after_answer(6_000, 0, NOW - 50, agrees=True, probed=False)
    assert old.merged(back).learned(NOW) == back.merged(old).learned(NOW) == NOTHING_LEARNED


@given(steps, steps, steps)
def test_replicas_agree_whoever_hears_whom_first(one: object, two: object, three: object) -> None:
    a, b, c = (lived(found) for found in (one, two, three))  # type: ignore[arg-type]
    for now in (100.0, 1e6):
        assert a.merged(b).learned(now) == b.merged(a).learned(now)
        assert a.merged(b).merged(c).learned(now) == a.merged(b.merged(c)).learned(now)
        assert a.merged(a) == a


@given(steps)
def test_a_record_comes_back_as_it_was(found: object) -> None:
    record = lived(found)  # type: ignore[arg-type]
    assert unpack(pack(record)) == record


@given(steps, st.integers(1, 10**6), st.booleans(), st.booleans())
def test_an_answer_never_teaches_a_limit(found: object, used: int, agrees: bool, probed: bool) -> None:
    record = lived(found)  # type: ignore[arg-type]
    before = dict(record.valid(1e6))
    after = dict(record.after_answer(used, 10, 1e6, agrees=agrees, probed=probed).valid(1e6))
    assert after.items() <= before.items()


GOOD = (5_000, 1.0, "r", 1, 1, 1, "exact")


@pytest.mark.parametrize(
    "record",
    [
        {"window": ()},
        {"window": GOOD[:-1]},
        {"window": (*GOOD, 1)},
        {"windows": GOOD[:-1]},
        {"window": (-1, *GOOD[1:])},
        {"window": (10**12, *GOOD[1:])},
        {"window": (1.5, *GOOD[1:])},
        {"window": (float("nan"), *GOOD[1:])},
        {"scale": (0.01, *GOOD[1:])},
        {"scale": (50, *GOOD[1:])},
        {"window": (5_000, -1.0, *GOOD[2:])},
        {"window": (5_000, 1.0, "r" * 65, *GOOD[3:])},
        {"window": ("5000", *GOOD[1:])},
        [],
        7,
    ],
)
def test_an_absurd_record_is_none(record: object) -> None:
    assert unpack(msgspec.msgpack.encode(record)) is None


def test_kinds_of_a_later_version_are_left_out() -> None:
    both = unpack(msgspec.msgpack.encode({"window": GOOD, "of another version": GOOD}))
    assert both is not None and both == unpack(msgspec.msgpack.encode({"window": GOOD}))


def test_what_is_no_record_is_none() -> None:
    assert [unpack(payload) for payload in (b"", b"\xc1", b"\x81\x01")] == [None] * 3
    assert unpack(msgspec.msgpack.encode({"window": GOOD})) is not None
