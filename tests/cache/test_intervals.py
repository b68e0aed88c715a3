"""Intervals of what was answered and what was refused without figures: what they bound, and what ends them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.intervals import LIFETIME_S, Interval, pack, unpack
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Suspicion

NOW = 1_000_000.0
sizes = st.integers(1_000, 10**6)
events = st.lists(
    st.tuples(st.just("refused"), sizes, st.floats(0.1, 0.9)) | st.tuples(st.just("answered"), sizes, st.just(0.0)),
    max_size=12,
)


def refused(before: Interval, size: int, window: int, answered: int, now: float = NOW) -> Interval:
    return before.after_refusal(Suspicion(size, window, "x"), answered, now)


def lived(found: list[tuple[str, int, float]], start: float = NOW) -> Interval:
    """An interval after refusals, each healed by a share of it, and answers."""
    interval = Interval()
    for second, (kind, size, share) in enumerate(found):
        if kind == "answered":
            interval = interval.after_answer(size, start + second)
        else:
            smaller = max(1, int(size * share))
            interval = refused(interval, size, smaller, smaller, start + second)
    return interval


def test_it_has_the_largest_that_was_answered_and_the_smallest_that_was_refused() -> None:
    one = refused(Interval(), 20_000, 14_000, 9_000)
    assert one == Interval(9_000, 20_000, 14_000, NOW, "x")
    assert one.after_answer(8_000, NOW + 1) is one
    assert one.after_answer(12_000, NOW + 1) == Interval(12_000, 20_000, 14_000, NOW + 1, "x")
    assert one.after_answer(16_000, NOW + 1).window == 16_000
    assert refused(one, 30_000, 14_000, 13_000, NOW + 1).refused == 20_000
    assert refused(one, 13_000, 6_500, 6_000, NOW + 1) == Interval(9_000, 13_000, 9_000, NOW + 1, "x")


def test_it_bounds_requests_until_it_expires_or_is_forgotten() -> None:
    one = refused(Interval(), 20_000, 14_000, 9_000)
    assert one.bound(NOTHING_LEARNED) == LearnedLimits(14_000, supposed=True, refused=20_000)
    assert one.bound(LearnedLimits(max_input=16_000, scale=1.2)) == LearnedLimits(
        14_000, 14_000, 1.2, supposed=True, refused=20_000
    )
    assert one.holds(NOW) and one.holds(NOW + LIFETIME_S - 1) and one.holds(NOW, since=NOW - 1)
    assert not (one.holds(NOW + LIFETIME_S) or one.holds(NOW - LIFETIME_S) or one.holds(NOW + 1, since=NOW))
    assert not one.after_answer(20_000, NOW + 1).holds(NOW + 1)


def test_a_refusal_of_no_more_than_was_answered_takes_two() -> None:
    known = Interval(10_000, 20_000, 14_000, NOW, "x")
    assert refused(known, 9_000, 4_500, 4_000, NOW + 59) is known, "refusals at random do not add up"
    once = refused(known, 9_000, 4_500, 4_000, NOW + 60)
    assert (once.window, once.refused, once.answered) == (14_000, 20_000, 4_000)
    twice = refused(once, 9_000, 4_500, 4_100, NOW + 120)
    assert (twice.window, twice.refused, twice.answered) == (4_500, 9_000, 4_100)
    assert refused(once.after_answer(9_500, NOW + 120), 9_000, 4_500, 4_100, NOW + 180).window == 14_000


@given(events)
def test_what_bounds_lies_between_what_was_answered_and_what_was_refused(found: list[tuple[str, int, float]]) -> None:
    one = lived(found)
    if one.refused:
        assert one.answered <= one.window < one.refused
    assert unpack(pack(one)) == one


@given(st.tuples(events, events, events))
def test_replicas_agree_whoever_hears_whom_first(found: tuple[list[tuple[str, int, float]], ...]) -> None:
    a, b, c = (lived(one, NOW + second / 2) for second, one in enumerate(found))
    assert a.merged(b) == b.merged(a) and a.merged(b).merged(c) == a.merged(b.merged(c)) and a.merged(a) == a


@pytest.mark.parametrize(
    "record",
    [
        (),
        (1, 2, 3, 4.0),
        (9_000, 20_000, 14_000, 1.0, "x", 1),
        (9_000, 20_000, 20_000, 1.0, "x"),
        (9_000, 20_000, 8_000, 1.0, "x"),
        (-1, 20_000, 8_000, 1.0, "x"),
        (9_000, 10**12, 14_000, 1.0, "x"),
        (9_000, 20_000, 14_000, -1.0, "x"),
        (9_000, 20_000, 14_000, 1.0, "x" * 65),
        "x",
    ],
)
def test_an_absurd_record_is_none(record: object) -> None:
    assert unpack(msgspec.msgpack.encode(record)) is None
    assert unpack(b"\xc1") is None
