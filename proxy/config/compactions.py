"""Parses compactions.toml: how clients ask for a summary of their conversation. It reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.apis import apis
from proxy.config.rows import converted, parse_named_rows
from proxy.fit.compactions import Compaction

FILE = "compactions.toml"
TABLE = "compaction"
LADDER = "compaction"  # the ladder of such requests


def parse_compactions(table: Mapping[str, Any]) -> tuple[tuple[Compaction, ...], list[str]]:
    """The valid rows, and the problems of the others: row and reason."""
    return parse_named_rows(table, TABLE, _row)


def _row(row: Any) -> Compaction:
    found = converted(row, Compaction)
    known = sorted(api.name for api in apis())
    if not set(found.apis) <= set(known):
        raise ValueError(f"apis must be of {', '.join(known)}")
    return found


def merged(upper: Sequence[Compaction], lower: Sequence[Compaction]) -> tuple[Compaction, ...]:
    """The rows of both files, the upper ones first. Of two rows with the same name the upper one is kept."""
    names = {row.name for row in upper}
    return (*upper, *(row for row in lower if row.name not in names))
