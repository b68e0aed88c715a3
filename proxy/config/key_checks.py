"""Parses key_checks.toml: which upstreams check the keys of their clients. It reads no file."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.config.rows import converted, parse_named_rows

FILE = "key_checks.toml"
TABLE = "key_check"
PROBE = re.compile(r"/v1/[a-z0-9_/-]+(?:\?[a-z0-9_=&-]+)?")


class KeyCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[key_check]]`: whether upstreams with one of these `hosts` (globs), or litellm's `providers` of these
    names, check each request's key. `probe`: a path that answers GET with 2xx to a key that the upstream knows, and
    to no other; empty: none is known."""

    name: str
    hosts: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    checks: bool = True
    probe: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if not self.hosts and not self.providers:
            raise ValueError("needs hosts or providers")
        if any("/" in host or host.count(":") == 1 or not host.strip() for host in self.hosts):
            raise ValueError("hosts must be names or addresses, without scheme, port and path")
        if self.probe and not PROBE.fullmatch(self.probe):
            raise ValueError("probe must be a path that begins with /v1/, such as /v1/models")
        if self.probe and not self.checks:
            raise ValueError("probe needs checks = true")

    def is_of(self, host: str, provider: str) -> bool:
        """Whether it is the row of an upstream at a host, or of a litellm provider that has none (`host` is empty)."""
        if not host:
            return provider in self.providers
        return any(fnmatch.fnmatchcase(host.lower(), pattern.lower()) for pattern in self.hosts)


def parse_key_checks(table: Mapping[str, Any]) -> tuple[tuple[KeyCheck, ...], list[str]]:
    """The valid rows, and the problems of the others: row and reason."""
    return parse_named_rows(table, TABLE, lambda row: converted(row, KeyCheck))


def merged(upper: Sequence[KeyCheck], lower: Sequence[KeyCheck]) -> tuple[KeyCheck, ...]:
    """The rows of both files, the upper ones first. Of two rows with the same name the upper one is kept."""
    names = {row.name for row in upper}
    return (*upper, *(row for row in lower if row.name not in names))


def row_of(rows: Iterable[KeyCheck], host: str, provider: str = "") -> KeyCheck | None:
    """The first row of an upstream; None if none is about it."""
    return next((row for row in rows if row.is_of(host, provider)), None)


def stated(rows: Iterable[KeyCheck], host: str, provider: str = "") -> bool | None:
    """What the first row of an upstream says of its checks; None if none is about it."""
    row = row_of(rows, host, provider)
    return None if row is None else row.checks
