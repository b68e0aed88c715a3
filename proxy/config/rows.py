"""Rows of TOML files: each is parsed alone, and its problem is one line with its table, number, title and reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

Row = TypeVar("Row")
Table = Mapping[str, Any]  # a parsed file


class Named(Protocol):
    """A row with a name of its own."""

    @property
    def name(self) -> str:
        """The name."""


NamedRow = TypeVar("NamedRow", bound=Named)


def parse_rows(
    table: Table, kind: str, parse: Callable[[Any], Row], title: str = "name"
) -> tuple[tuple[Row, ...], list[str]]:
    """The valid rows of the array of tables `kind`, and the problems of the others.

    `parse` raises `ValueError` for a row that is not valid. `title` is the field by which problems name a row.
    """
    found: list[Row] = []
    problems: list[str] = []
    for number, row in enumerate(as_rows(table.get(kind, [])), 1):
        try:
            found.append(parse(row))
        except ValueError as error:
            named = f" ({row[title]})" if isinstance(row, dict) and isinstance(row.get(title), str) else ""
            problems.append(f"{kind} {number}{named}: {error_text(error)}")
    return tuple(found), problems


def parse_named_rows(
    table: Table, kind: str, parse: Callable[[Any], NamedRow]
) -> tuple[tuple[NamedRow, ...], list[str]]:
    """The valid rows of a file that has no other table, and its problems. A name stands for one row."""
    names: set[str] = set()

    def parse_new(row: Any) -> NamedRow:
        found = parse(row)
        if found.name in names:
            raise ValueError("another row has this name")
        names.add(found.name)
        return found

    rows, problems = parse_rows(table, kind, parse_new)
    return rows, [*(f"{key}: unknown table, must be {kind}" for key in table if key != kind), *problems]


def error_text(error: ValueError) -> str:
    """The text of an error of `msgspec.convert`, field first: `cap_tokens: expected int, got str`."""
    text, _, path = str(error).replace("`", "").partition(" - at ")
    text = text.replace("Object contains unknown", "unknown").replace("Object missing required", "missing")
    field = path.removeprefix("$").removeprefix(".")
    return (f"{field}: " if field else "") + text.replace("Expected ", "expected ")


def as_rows(rows: Any) -> list[Any]:
    """The rows of an array of tables. A single table (`[window]` instead of `[[window]]`) is one row."""
    return rows if isinstance(rows, list) else [rows]
