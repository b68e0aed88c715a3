"""When an upstream's own count says that it did not read all."""

from __future__ import annotations

import pytest

from proxy.model.limits import CountUnit, Quality
from proxy.model.outcome import Usage
from proxy.tokens.truncation import MIN_LIMIT, MIN_MISSING, MIN_READ_SHARE, SilentTruncation, truncated

UNIT = CountUnit(1.0)


@pytest.mark.parametrize("quality", [Quality.EXACT, Quality.CALIBRATED])
def test_far_fewer_tokens_than_were_sent_were_not_all_read(quality: Quality) -> None:
    assert truncated(10_000, quality, UNIT, Usage(2048))
    assert truncated(10_000, quality, UNIT, Usage(int(MIN_READ_SHARE * 10_000) - 1))
    assert not truncated(10_000, quality, UNIT, Usage(int(MIN_READ_SHARE * 10_000)))


@pytest.mark.parametrize(
    ("counted", "quality", "unit", "usage"),
    [
        (10_000, Quality.ESTIMATED, UNIT, Usage(2048)),  # an estimate may be wrong
        (10_000, Quality.EXACT, None, Usage(2048)),  # images: their cost is assumed
        (10_000, Quality.EXACT, UNIT, Usage(2048, cached=7_000)),  # what is missing may be told beside
        (10_000, Quality.EXACT, UNIT, Usage(0)),  # it does not count
        (10_000, Quality.EXACT, UNIT, Usage(1)),
        (MIN_MISSING + 100, Quality.EXACT, UNIT, Usage(100)),  # a short prompt
        (10_000, Quality.EXACT, UNIT, Usage(20_000)),
    ],
)
def test_nothing_else_says_so(counted: int, quality: Quality, unit: CountUnit | None, usage: Usage) -> None:
    assert not truncated(counted, quality, unit, usage)


def after(*cuts: tuple[int, int]) -> SilentTruncation:
    """What cuts of prompts tell, each by what was read and what was sent."""
    made = SilentTruncation(*cuts[0])
    for read, sent in cuts[1:]:
        made = made.again(read, sent)
    return made


def test_the_same_read_of_prompts_that_differ_is_a_bound() -> None:
    assert after((2_048, 8_000), (2_040, 9_000), (2_048, 6_000)).proves
    assert after((2_040, 8_000), (2_048, 9_000), (2_048, 6_000)).read == 2_048


@pytest.mark.parametrize(
    "cuts",
    [
        [(2_048, 8_000), (2_048, 9_000)],  # too few
        [(2_048, 8_000)] * 9,  # the same prompt
        [(1_800, 8_000), (1_950, 9_000), (1_700, 6_000), (1_810, 7_000)],  # whole messages are dropped
        [(1_500, 8_000), (1_500, 9_500), (1_510, 11_000), (1_500, 12_500)],  # what was not in a cache
        [(MIN_LIMIT - 1, sent) for sent in (8_000, 9_000, 6_000, 7_000)],
    ],
)
def test_anything_else_is_none(cuts: list[tuple[int, int]]) -> None:
    assert not after(*cuts).proves


def test_who_reads_more_of_another_prompt_has_no_such_bound() -> None:
    assert after((2_048, 8_000)).holds(2_048)
    assert not after((2_048, 8_000)).holds(3_000)
