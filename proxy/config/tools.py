"""Parses tools.toml: how agents and their tools write. It reads no file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.config.rows import converted, error_text
from proxy.model.conventions import Conventions, Signs

FILE = "tools.toml"
ARGUMENTS = "arguments"  # the parameter of the steps that use names of arguments, ...
STEPS = ("trim_tool_results", "prune_history")  # ... which are these, ...
KINDS = ("paths", "offsets", "limits", "pages", "ends", "ranges")  # ... and the names that they use
Names = tuple[str, ...] | msgspec.UnsetType


class GivenArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of arguments that a file gives; see `Conventions`."""

    paths: Names = msgspec.UNSET
    offsets: Names = msgspec.UNSET
    limits: Names = msgspec.UNSET
    pages: Names = msgspec.UNSET
    ends: Names = msgspec.UNSET
    ranges: Names = msgspec.UNSET
    commands: Names = msgspec.UNSET
    free: Names = msgspec.UNSET
    changes: Names = msgspec.UNSET


class GivenCommands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The programs that a file gives."""

    readers: Names = msgspec.UNSET
    writers: Names = msgspec.UNSET


class GivenTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of texts that a file gives."""

    stubs: Names = msgspec.UNSET
    failures: Names = msgspec.UNSET
    sent_by_client: Names = msgspec.UNSET


class GivenSigns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signs of one language that a file gives."""

    words: tuple[str, ...]
    patterns: tuple[str, ...]
    start: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.start, *self.patterns):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no pattern: {error}") from None


class ToolsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    arguments: GivenArguments = GivenArguments()
    commands: GivenCommands = GivenCommands()
    texts: GivenTexts = GivenTexts()
    orders: dict[str, GivenSigns] = {}
    reversals: dict[str, GivenSigns] = {}


SignsOf = dict[str, dict[str, Signs]]  # by what they are signs of, then by language


def parse_tools(table: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], SignsOf, list[str]]:
    """The names and words by kind, and the signs of orders and of reversals by language, as far as the file gives them,
    and its problems."""
    try:
        given = converted(table, ToolsFile)
    except ValueError as error:
        return {}, {}, [error_text(error)]
    tables = [msgspec.structs.asdict(each) for each in (given.arguments, given.commands, given.texts)]
    kinds = {kind: names for each in tables for kind, names in each.items() if names is not msgspec.UNSET}
    signs = {"orders": given.orders, "reversals": given.reversals}
    return kinds, {of: {name: _signs(row) for name, row in rows.items()} for of, rows in signs.items() if rows}, []


def _signs(given: GivenSigns) -> Signs:
    return Signs(tuple(map(str.casefold, given.words)), given.patterns, given.start)


def conventions(given: Mapping[str, tuple[str, ...]], signs: Mapping[str, Mapping[str, Signs]]) -> Conventions:
    """What the files give, as steps use it: all but patterns in lower case."""
    of = {kind: tuple(row for row in signs.get(kind, {}).values() if row.patterns) for kind in ("orders", "reversals")}
    names: dict[str, Any] = {kind: tuple(map(str.casefold, names)) for kind, names in given.items()}
    return Conventions(**names, orders=of["orders"], reversals=of["reversals"])
