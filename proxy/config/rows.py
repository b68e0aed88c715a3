"""Rows of TOML files: each is parsed alone, and its problem is one line with its table, number, title and reason."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeVar, get_args

import msgspec

Row = TypeVar("Row")
Table = Mapping[str, Any]  # a parsed file
FIELD = re.compile(r"(?: - at `\$\.([^.\[`]+)[^`]*`|(?:unknown|required) field `([^`]+)`)$")  # of errors of msgspec
UNKNOWN, CHOICE = "contains unknown field", "Invalid enum value"


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


def converted(row: Any, kind: type[Row]) -> Row:
    """A row as a value of `kind`, a `msgspec.Struct`. Raises `ValueError` with all that is wrong in one line: fields
    with the values that they may have, and names that are no fields with the one that was probably meant."""
    left, wrong = row, list[str]()
    while True:
        try:
            found = msgspec.convert(left, kind)
        except msgspec.ValidationError as error:
            field = _field_of(error)
            if left is row or field in left or (field and field not in row):  # else it follows from what was left out
                wrong.append(error_text(error) + _hint(str(error), field, kind))
            if not (isinstance(left, dict) and field in left):
                break
            left = {key: value for key, value in left.items() if key != field}
        else:
            break
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def _field_of(error: msgspec.ValidationError) -> str:
    """The field of a row that an error is about, or that it does not know or misses; empty if it is about the row."""
    found = FIELD.search(str(error))
    return "" if found is None else found[1] or found[2]


def _hint(text: str, field: str, kind: type[Any]) -> str:
    """What a field may be: one of a few values, or another name."""
    fields = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
    if UNKNOWN in text and field not in fields:
        similar = difflib.get_close_matches(field, fields, n=1)
        return f", did you mean {similar[0]}?" if similar else f", known are {', '.join(fields)}"
    if CHOICE not in text or not text.endswith(f"$.{field}`"):
        return ""
    kinds = (fields[field], *get_args(fields[field]))
    known = [str(one.value) for it in kinds if isinstance(it, type) and issubclass(it, Enum) for one in it]
    return f", must be one of {', '.join(known)}" if known else ""


def error_text(error: Exception) -> str:
    """The text of an error of `msgspec.convert`, field first: `cap_tokens: expected int, got str`."""
    text, _, path = str(error).replace("`", "").partition(" - at ")
    text = text.replace("Object contains unknown", "unknown").replace("Object missing required", "missing")
    field = path.removeprefix("$").removeprefix(".")
    text = text.replace("Expected ", "expected ").replace(" | null", "")  # which TOML cannot say
    return (f"{field}: " if field else "") + text


def as_rows(rows: Any) -> list[Any]:
    """The rows of an array of tables. A single table (`[window]` instead of `[[window]]`) is one row."""
    return rows if isinstance(rows, list) else [rows]
