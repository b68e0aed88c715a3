"""Parses and merges families.toml: each row is validated alone, then merged with the rows of another file.

It reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.config.rows import parse_named_rows
from proxy.tokens.families import Family, parse_family

KIND = "family"


def parse_families(table: Mapping[str, Any]) -> tuple[tuple[Family, ...], list[str]]:
    """The families of a file, in order, and its problems: one line per invalid row, with its number from 1."""
    return parse_named_rows(table, KIND, parse_family)


def merge_families(upper: Sequence[Family], lower: Sequence[Family]) -> tuple[Family, ...]:
    """The rows of two files. An upper row replaces the lower row with its name; all other upper rows come first."""
    named, replaced = {family.name: family for family in upper}, {family.name for family in lower}
    new = (family for family in upper if family.name not in replaced)
    return (*new, *(named.get(family.name, family) for family in lower))
