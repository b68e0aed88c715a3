"""Parses counters.toml: how upstreams are asked for their own count of a prompt. It reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.apis import count_bodies
from proxy.config.rows import converted, parse_named_rows
from proxy.tokens.formats import FORMATS
from proxy.wire.counters import Counter

FILE = "counters.toml"
TABLE = "counter"


def parse_counters(table: Mapping[str, Any]) -> tuple[tuple[Counter, ...], list[str]]:
    """The valid rows, and the problems of the others: row and reason."""
    return parse_named_rows(table, TABLE, _counter)


def _counter(row: Any) -> Counter:
    found = converted(row, Counter)
    if found.api not in FORMATS:
        raise ValueError(f"api is {found.api!r}, must be one of {', '.join(FORMATS)}")
    if found.form and found.form not in count_bodies():
        raise ValueError(f"form must be one of {', '.join(count_bodies())}")
    return found


def merged(upper: Sequence[Counter], lower: Sequence[Counter]) -> tuple[Counter, ...]:
    """The rows of both files, the upper ones first. Of two rows with the same name the upper one is kept."""
    names = {row.name for row in upper}
    return (*upper, *(row for row in lower if row.name not in names))
