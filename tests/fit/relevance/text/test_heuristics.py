"""What makes a row or a line worth keeping whatever its words."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.text.heuristics import (
    DEFINITION,
    HEADING,
    ROUTINE,
    extremes,
    numbers_in,
    superlative,
)


@pytest.mark.parametrize(
    ("question", "direction"), [("Which has the highest area?", 1), ("the cheapest one", -1), ("Which one is red?", 0)]
)
def test_a_superlative_asks_for_extremes(question: str, direction: int) -> None:
    assert superlative(question) == direction


@pytest.mark.parametrize(
    "line", ["def f():", "export async function f() {", "func (s *S) F() {", "pub(crate) struct S {"]
)
def test_a_definition_is_known(line: str) -> None:
    assert DEFINITION.match(line)


def test_headings_and_routine_lines_are_known() -> None:
    assert HEADING.match("## Usage") and HEADING.match("**Note** this") and not HEADING.match("#define")
    assert ROUTINE.match("import os") and ROUTINE.match("})") and not ROUTINE.match("x = 1")


def test_numbers_are_found_with_their_paths_written_as_strings_too() -> None:
    row = {
        "id": 7,
        "ok": True,
        "price": "$1,250.50",
        "deep": {"size": 2.5},
        "tags": [1, "x", 3, 4],
        "at": "2023-05-08T10:00",
    }
    assert list(numbers_in(row)) == [
        ("id", 7.0),
        ("price", 1250.5),
        ("deep.size", 2.5),
        ("tags", 1.0),
        ("tags", 3.0),
        ("at", 20230508100000.0),
    ]


def test_what_no_float_holds_and_what_lies_too_deep_is_passed_over() -> None:
    deep = {"a": {"b": {"c": {"d": {"e": 1}}}}, "l": [[[[[1]]]]]}
    assert list(numbers_in({"huge": 10**400, "text": "ten", "long": "1" * 40, **deep})) == []


def test_the_extremes_of_every_column_come_with_their_rank() -> None:
    rows = [{"area": 5, "name": "a"}, {"area": 9}, {"area": 7, "height": 3}]
    assert list(extremes(rows, 1, first=2)) == [("area", 1, 0), ("area", 2, 1), ("height", 2, 0)]
    assert next(extremes(rows, -1)) == ("area", 0, 0)
