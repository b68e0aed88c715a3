"""A families.toml as model families: each row is checked alone, then laid over the rows of another file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.config.window_rules import listed, reason
from proxy.tokens.families import Family, parse_family

KIND = "family"


def parse_families(table: Mapping[str, Any]) -> tuple[tuple[Family, ...], list[str]]:
    """The families of a file in their order, and all problems: a line for each row, with its place from 1."""
    problems = [f"{key}: no such kind of row, there is {KIND}" for key in table if key != KIND]
    found: dict[str, Family] = {}
    for place, row in enumerate(listed(table.get(KIND, [])), 1):
        try:
            family = parse_family(row)
            if family.name in found:
                raise ValueError("there is another family of that name")
            found[family.name] = family
        except ValueError as error:
            title = f" ({row['name']})" if isinstance(row, dict) and isinstance(row.get("name"), str) else ""
            problems.append(f"{KIND} {place}{title}: {reason(error)}")
    return tuple(found.values()), problems


def laid_over(upper: Sequence[Family], lower: Sequence[Family]) -> tuple[Family, ...]:
    """The rows of two files: an upper row replaces the lower row of its name in its place, all others come first."""
    named, replaced = {family.name: family for family in upper}, {family.name for family in lower}
    new = (family for family in upper if family.name not in replaced)
    return (*new, *(named.get(family.name, family) for family in lower))
