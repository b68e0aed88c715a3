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


@pytest.mark.parametrize(
    "text",
    [
        "Was war am 8. Mai 2023?",
        "Was geschah am 8.5.2023?",
        "Que s'est-il passé le 8 mai 2023 ?",
        "¿Qué pasó el 8 de mayo de 2023?",
        "Che cosa successe l'8 maggio 2023?",
        "O que houve em 8 de maio de 2023?",
        "Wat gebeurde er op 8 mei 2023?",
        "Что было 8 мая 2023 года?",
        "2023年5月8日发生了什么？",
    ],
)
def test_a_day_is_found_in_each_language(text: str) -> None:
    assert first_date(text) == PartialDate(5, 2023, 8)


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("Wohin fuhr sie im März?", 3),
        ("Qui est venu en août ?", 8),
        ("¿Quién vino en enero?", 1),
        ("Quem veio em fevereiro?", 2),
        ("Кто приехал в декабре?", 12),
        ("Le 1er juin, peut-être", 6),
        ("Oktober 2022", 10),
        ("setembro de 2022", 9),
    ],
)
def test_a_month_is_found_in_each_language(text: str, month: int) -> None:
    found = first_date(text)
    assert found is not None and found.month == month


@pytest.mark.parametrize(
    "text", ["Is there life in Mars?", "Er kam mit dem Mai-Ausflug", "en vain", "version 1.2.3", "5 out of 7"]
)
def test_what_only_looks_like_a_date_of_another_language_is_none(text: str) -> None:
    assert first_date(text) is None
