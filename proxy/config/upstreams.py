"""Parses upstreams.toml: upstreams beside PLIMSOLL_UPSTREAM, and which requests go to them.

It reads no environment: a row has the name of the variable with its key. It opens no file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from proxy.apis import USUAL, servers
from proxy.config.rows import converted, parse_named_rows
from proxy.config.window_rules import MAX_TOKENS

FILE = "upstreams.toml"
DEFAULT = "default"  # the name of PLIMSOLL_UPSTREAM
TABLE = "upstream"
LITELLM = "litellm"  # an upstream that is a library: it translates chat requests for its providers
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
HEADER = re.compile(r"[a-z0-9-]{1,80}")
CREDENTIALS = frozenset((*KEY_HEADERS, "cookie", "proxy-authorization"))  # of clients: for the default upstream alone
ACCEPTED, ANY = "accepted", "any"  # who may spend the key of a row
FILES = ("ca", "cert", "cert_key")


class UpstreamRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[upstream]]`.

    A request goes to the first row whose `models` and `paths` (globs) match it and that speaks its `api`. `key` is the
    name of the environment variable with the key, which goes in `key_header`. `callers` says who may spend it.
    `headers` are names of further headers of clients that it gets. `window` bounds the windows of its models, in
    tokens. `serves` (names and globs): it serves these models and no others. `ca`, `cert` and `cert_key` are PEM files,
    relative to the folder of upstreams.toml. `provider` is litellm's name of a provider.
    """

    name: str
    url: str = ""
    api: str = USUAL.name
    models: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    key: str = ""
    key_header: str = KEY_HEADERS[0]
    callers: str = ACCEPTED
    headers: tuple[str, ...] = ()
    window: int | None = None
    serves: tuple[str, ...] = ()
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    provider: str = ""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ValueError(problem)

    @property
    def translates(self) -> bool:
        """Whether litellm translates its requests."""
        return self.api == LITELLM


def _problems(row: UpstreamRow) -> list[str]:
    """What is wrong with a row, field first."""
    named: tuple[tuple[str, str, Collection[str]], ...] = (
        ("api", row.api, servers()),
        ("key_header", row.key_header, KEY_HEADERS),
        ("callers", row.callers, (ACCEPTED, ANY)),
    )
    found = [f"{field} must be one of {', '.join(allowed)}" for field, value, allowed in named if value not in allowed]
    if not NAME.fullmatch(row.name) or row.name == DEFAULT:
        found.append(f"name must be lower-case letters, digits, - and _, and not {DEFAULT}")
    if row.key and not VARIABLE.fullmatch(row.key):
        found.append("key must be the name of an environment variable, not a key")
    found += [
        f"{field} must not be empty"
        for field, patterns in (("models", row.models), ("serves", row.serves))
        if any(not pattern.strip() for pattern in patterns)
    ]
    if any(not path.startswith("/") for path in row.paths):
        found.append("paths must begin with /, such as /v1/messages*")
    if any(not HEADER.fullmatch(name) or name.startswith("x-plimsoll-") or name in CREDENTIALS for name in row.headers):
        found.append("headers must be names of headers in lower case, and none of a client's credentials")
    if row.window is not None and not 0 < row.window <= MAX_TOKENS:
        found.append(f"window must be from 1 to {MAX_TOKENS:,} tokens")
    return [*found, *(_of_litellm(row) if row.translates else _of_a_server(row))]


def _of_a_server(row: UpstreamRow) -> list[str]:
    found = [] if row.url else ["url is missing"]
    if row.url and not _is_url(row.url):
        found.append("url must be an http or https URL without password, query and fragment")
    if row.provider:
        found.append(f'provider needs api = "{LITELLM}"')
    if row.cert_key and not row.cert:
        found.append("cert_key needs cert")
    return found


def _of_litellm(row: UpstreamRow) -> list[str]:
    found = [] if row.provider else ['provider is missing: litellm\'s name of it, such as "anthropic"']
    if row.provider and not NAME.fullmatch(row.provider):
        found.append("provider must be a name of litellm's, such as anthropic, gemini or vertex_ai")
    if row.url and not _is_url(row.url):
        found.append("url must be an http or https URL without password, query and fragment")
    unused = [name for name in ("paths", "headers", *FILES) if getattr(row, name)]
    return [*found, *(f'{name} has no effect with api = "{LITELLM}"' for name in unused)]


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        more = "@" in url.netloc or url.query or url.fragment
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not more
    except ValueError:
        return False


def parse_upstreams(table: Mapping[str, Any], folder: Path) -> tuple[tuple[UpstreamRow, ...], list[str]]:
    """The rows of a parsed upstreams.toml, and its problems: one line per invalid row, with its number from 1.

    `folder` is where relative paths of files start.
    """
    return parse_named_rows(table, TABLE, lambda row: _with_files(converted(row, UpstreamRow), folder))


def _with_files(row: UpstreamRow, folder: Path) -> UpstreamRow:
    paths = {field: folder / name for field in FILES if (name := getattr(row, field)) is not None}
    for field, path in paths.items():
        if not path.is_file():
            raise ValueError(f"{field}: no such file: {path}")
    return msgspec.structs.replace(row, **{field: str(path) for field, path in paths.items()}) if paths else row
