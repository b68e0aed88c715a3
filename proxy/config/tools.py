"""Parses tools.toml: names of tools' arguments. It reads no file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.config.rows import error_text

FILE = "tools.toml"
ARGUMENTS = "arguments"  # the table of the file, and the parameter of the steps that use the names, ...
STEPS = ("trim_tool_results", "prune_history")  # ... which are these
Names = tuple[str, ...] | msgspec.UnsetType


class GivenNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names that a file gives; see `ArgumentNames`."""

    paths: Names = msgspec.UNSET
    offsets: Names = msgspec.UNSET
    limits: Names = msgspec.UNSET
    pages: Names = msgspec.UNSET


class ToolsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    arguments: GivenNames = GivenNames()


def parse_tools(table: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The names of tools' arguments by kind, as far as the file gives them, and its problems."""
    try:
        given = msgspec.convert(table, ToolsFile).arguments
    except ValueError as error:
        return {}, [error_text(error)]
    return {kind: names for kind, names in msgspec.structs.asdict(given).items() if names is not msgspec.UNSET}, []
