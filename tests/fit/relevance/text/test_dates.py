"""Dates as people write them."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.dates import PartialDate, date_match, first_date


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("[2023-05-08] Caroline", PartialDate(5, 2023, 8)),
        ("in 2023/5 or so", PartialDate(5, 2023)),
        ("1:56 pm on 8 May, 2023", PartialDate(5, 2023, 8)),
        ("the 8th of May", PartialDate(5, None, 8)),
        ("on Sept. 3, 2021", PartialDate(9, 2021, 3)),
        ("December 24th", PartialDate(12, None, 24)),
        ("back in june 2022", PartialDate(6, 2022)),
        ("what happened in March?", PartialDate(3)),
        ("during last july", PartialDate(7)),
    ],
)
def test_a_date_is_read_as_far_as_it_is_said(text: str, day: PartialDate) -> None:
    assert first_date(text) == day


@pytest.mark.parametrize(
    "text",
    [
        "",
        "it may rain",
        "march on",
        "version 2023-99-01 or 3.14",
        "45 May",
        "39 May",
        "20231108",
        "mayor 8",
        "decimal 3",
    ],
)
def test_what_is_not_surely_a_date_is_none(text: str) -> None:
    assert first_date(text) is None


@pytest.mark.parametrize(
    ("asked", "found", "near"),
    [
        (PartialDate(5), PartialDate(5, 2023, 8), 1.0),
        (PartialDate(5, 2022), PartialDate(5, 2023, 8), 0.0),
        (PartialDate(5, 2023), PartialDate(6, 2023, 8), 0.0),
        (PartialDate(5, 2023, 10), PartialDate(5, 2023, 8), 1.0),
        (PartialDate(5, 2023, 11), PartialDate(5, 2023, 8), 0.5),
        (PartialDate(5, 2023, 11), PartialDate(5, 2023), 1.0),
        (PartialDate(5), None, 0.0),
    ],
)
def test_a_date_that_may_be_the_one_asked_for_is_near(
    asked: PartialDate, found: PartialDate | None, near: float
) -> None:
    assert date_match(asked, found) == near
