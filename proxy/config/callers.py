"""Parses callers.toml: the names that the metrics' label `caller` may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FILE = "callers.toml"
MAX_CALLERS = 50  # each has series of its own in nearly every metric
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,63}")


def parse_callers(table: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """The names of a parsed callers.toml, and its problems."""
    unknown = [f"{key}: unknown key, must be callers" for key in table if key != "callers"]
    names = table.get("callers", [])
    if not isinstance(names, list):
        return (), [*unknown, "callers must be a list of names"]
    form = "must be a name of at most 64 letters, digits and ._@/-"
    wrong = [f"callers: {name!r} {form}" for name in names if not _is_name(name)]
    if len(names) > MAX_CALLERS:
        wrong.append(f"callers: there are {len(names)}, at most {MAX_CALLERS} are told apart")
    return (() if wrong else tuple(dict.fromkeys(names))), unknown + wrong


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None
