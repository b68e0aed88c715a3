"""Parses counters.toml: how upstreams are asked for their own count of a prompt. It reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.config.window_rules import as_rows, error_text
from proxy.tokens.formats import FORMATS
from proxy.wire.counters import Counter

FILE = "counters.toml"
TABLE = "counter"


def parse_counters(table: Mapping[str, Any]) -> tuple[tuple[Counter, ...], list[str]]:
    """The valid rows, and the problems of the others: row and reason."""
    rows: dict[str, Counter] = {}
    problems = [f"unknown table {key!r}, must be {TABLE}" for key in table if key != TABLE]
    for number, row in enumerate(as_rows(table.get(TABLE, [])), 1):
        try:
            found = msgspec.convert(row, Counter)
            if found.api not in FORMATS:
                raise ValueError(f"api is {found.api!r}, must be one of {', '.join(FORMATS)}")
            if found.name in rows:
                raise ValueError("another row has this name")
            rows[found.name] = found
        except ValueError as error:
            title = f" ({row['name']})" if isinstance(row, dict) and isinstance(row.get("name"), str) else ""
            problems.append(f"{TABLE} {number}{title}: {error_text(error)}")
    return tuple(rows.values()), problems


def merged(upper: Sequence[Counter], lower: Sequence[Counter]) -> tuple[Counter, ...]:
    """The rows of both files, the upper ones first. Of two rows with the same name the upper one is kept."""
    names = {row.name for row in upper}
    return (*upper, *(row for row in lower if row.name not in names))
