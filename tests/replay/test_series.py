"""Requests by load, and tokens over time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from proxy.replay.series import BINS, HOUR_S, MAX_HOURS, MOST_BARS, Loads, OverTime, Span, bin_of


@pytest.mark.parametrize(
    ("load", "place"),
    [(-1.0, 0), (0.0, 0), (0.1, 0), (0.11, 1), (1.0, 9), (1.01, 10), (1.5, 14), (1.51, 15), (99.0, 15)],
)
def test_what_fits_to_the_last_token_is_below_the_line(load: float, place: int) -> None:
    assert bin_of(load) == place < BINS


def test_loads_are_counted_before_and_after() -> None:
    loads = Loads()
    loads.add(2.0, 0.95)
    loads.add(0.95, 0.95)
    assert (loads.asked[15], loads.asked[9], loads.sent[9], sum(loads.sent)) == (1, 1, 2, 2)


def test_bars_have_no_gaps_and_the_sums_of_their_hours() -> None:
    made = OverTime()
    for hour, tokens in ((10, 5), (10, 7), (13, 1)):
        made.add(hour * HOUR_S + 5.0, Span(1, tokens, tokens - 1, 1, 0.5))
    made.add(None, Span(1, 99))
    seconds, bars = made.bars()
    assert seconds == HOUR_S and [(at // HOUR_S, span.prompt) for at, span in bars] == [
        (10, 12),
        (11, 0),
        (12, 0),
        (13, 1),
    ]
    assert bars[0][1] == Span(2, 12, 10, 2, 1.0)


@pytest.mark.parametrize("hours", [1, 47, 48, 49, 700, 24 * 365])
def test_a_longer_time_has_longer_bars(hours: int) -> None:
    made = OverTime()
    for hour in range(hours):
        made.add(hour * HOUR_S, Span(1))
    seconds, bars = made.bars()
    assert len(bars) <= MOST_BARS and sum(span.requests for _, span in bars) == hours
    assert all(later[0] - earlier[0] == seconds for earlier, later in pairwise(bars))


def test_times_are_bounded_and_may_be_centuries_apart() -> None:
    made = OverTime()
    for hour in range(0, 1_000 * (MAX_HOURS + 9), 1_000):
        made.add(hour * HOUR_S, Span(1))
    assert len(made.hours) == MAX_HOURS and len(made.bars()[1]) <= MAX_HOURS
    assert OverTime().bars() == (HOUR_S, [])
