"""Rows of TOML files: each is parsed alone, and every problem is told."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
import pytest

from proxy.config.rows import as_rows, converted, error_text, parse_named_rows, parse_rows


class Colour(StrEnum):
    """Values of a field."""

    RED = "red"
    BLUE = "blue"


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """A row."""

    name: str
    size: int = 1
    colour: Colour | None = None
    label: str | None = None
    width: int = 0

    def __post_init__(self) -> None:
        if self.width > self.size:
            raise ValueError("width must not be over size")


def tool(row: Any) -> Tool:
    return converted(row, Tool)


def test_valid_rows_are_kept_in_their_order_and_others_are_told_with_number_and_title() -> None:
    table = {"tool": [{"name": "b"}, {"name": "a", "size": "x"}, {"size": 2}, 5, {"name": "a"}], "other": 1}
    rows, problems = parse_rows(table, "tool", tool)
    assert rows == (Tool("b"), Tool("a"))
    assert problems == [
        "tool 2 (a): size: expected int, got str",
        "tool 3: missing field name",
        "tool 4: expected object, got int",
    ]


def test_problems_name_rows_by_another_field() -> None:
    assert parse_rows({"tool": [{"size": 1, "model": "m"}, {"model": 3}]}, "tool", tool, title="model")[1] == [
        "tool 1 (m): unknown field model, known are name, size, colour, label, width; missing field name",
        "tool 2: unknown field model, known are name, size, colour, label, width; missing field name",
    ]


def test_a_name_stands_for_one_row_and_the_file_has_one_table() -> None:
    table = {"tools": [], "tool": [{"name": "a"}, {"name": "a", "size": 2}, {"name": "b"}]}
    assert parse_named_rows(table, "tool", tool) == (
        (Tool("a"), Tool("b")),
        ["tools: unknown table, must be tool", "tool 2 (a): another row has this name"],
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"name": 1, "size": "x", "colour": "green", "lable": "", "label": 2},
            "name: expected str, got int; size: expected int, got str; colour: Invalid enum value 'green', must be one "
            "of red, blue; unknown field lable, did you mean label?; label: expected str, got int",
        ),
        ({"size": "x", "width": 5}, "size: expected int, got str; missing field name"),
        # What follows from a field that was left out is no problem of its own.
        ({"name": "a", "size": "x", "width": 5}, "size: expected int, got str"),
        ({"name": "a", "width": 5}, "width must not be over size"),
        ({"name": 5}, "name: expected str, got int"),
        ([], "expected object, got array"),
    ],
)
def test_all_that_is_wrong_with_a_row_is_told_with_what_it_may_be(row: Any, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        converted(row, Tool)
    assert str(raised.value) == problem


@pytest.mark.parametrize(("given", "rows"), [([], []), ([1, 2], [1, 2]), ({"name": "a"}, [{"name": "a"}])])
def test_a_single_table_is_one_row(given: Any, rows: list[Any]) -> None:
    assert as_rows(given) == rows


def test_an_error_names_its_field_first() -> None:
    with pytest.raises(ValueError) as raised:
        msgspec.convert({"tools": [{"name": 1}]}, dict[str, list[Tool]])
    assert error_text(raised.value) == "[...][0].name: expected str, got int"
    assert error_text(ValueError("it is wrong")) == "it is wrong"
