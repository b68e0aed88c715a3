"""Parses and merges families.toml: each row is validated alone, then merged with the rows of another file.

It reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.config.window_rules import as_rows, error_text
from proxy.tokens.families import Family, parse_family

KIND = "family"


def parse_families(table: Mapping[str, Any]) -> tuple[tuple[Family, ...], list[str]]:
    """The families of a file, in order, and its problems: one line per invalid row, with its number from 1."""
    problems = [f"{key}: unknown table, must be {KIND}" for key in table if key != KIND]
    found: dict[str, Family] = {}
    for number, row in enumerate(as_rows(table.get(KIND, [])), 1):
        try:
            family = parse_family(row)
            if family.name in found:
                raise ValueError("duplicate name")
            found[family.name] = family
        except ValueError as error:
            title = f" ({row['name']})" if isinstance(row, dict) and isinstance(row.get("name"), str) else ""
            problems.append(f"{KIND} {number}{title}: {error_text(error)}")
    return tuple(found.values()), problems


def merge_families(upper: Sequence[Family], lower: Sequence[Family]) -> tuple[Family, ...]:
    """The rows of two files. An upper row replaces the lower row with its name; all other upper rows come first."""
    named, replaced = {family.name: family for family in upper}, {family.name for family in lower}
    new = (family for family in upper if family.name not in replaced)
    return (*new, *(named.get(family.name, family) for family in lower))
