"""Parses polyfills.toml: which upstreams do not know the edits of context that requests ask for. It reads no file."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from proxy.config.rows import converted, parse_named_rows

FILE = "polyfills.toml"
TABLE = "polyfill"


class Polyfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[polyfill]]`: at upstreams with one of these `hosts` (globs, without a port) the edits that a request asks
    for are made by us."""

    name: str
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.hosts:
            raise ValueError("needs a name and hosts")
        if any("/" in host or host.count(":") == 1 or not host.strip() for host in self.hosts):
            raise ValueError("hosts must be names or addresses, without scheme, port and path")


def parse_polyfills(table: Mapping[str, Any]) -> tuple[tuple[Polyfill, ...], list[str]]:
    """The valid rows, and the problems of the others: row and reason."""
    return parse_named_rows(table, TABLE, lambda row: converted(row, Polyfill))


def is_polyfilled(rows: Iterable[Polyfill], host: str) -> bool:
    """Whether a row is about the upstream at a host."""
    return any(fnmatch.fnmatchcase(host.lower(), glob.lower()) for row in rows for glob in row.hosts)
