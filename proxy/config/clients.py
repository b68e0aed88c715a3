"""Parses clients.toml: how a program is told to ask a proxy of ours. It starts nothing and reads no environment."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from proxy.config.rows import converted, parse_named_rows

FILE = "clients.toml"
API, CLIENT = "api", "client"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
URL = "{url}"
VERSION = "/v1"  # the path of an upstream's URL; some programs want it, others add it themselves


class ApiRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[api]]`: its `upstream`, and the variables by which programs are told another one, each with its form
    (`{url}` is the proxy's address). `default`: for programs that no `[[client]]` is about."""

    name: str
    upstream: str
    variables: Mapping[str, str]
    default: bool = True

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("upstream must be a URL with http or https")
        _check_variables(self.variables)
        if not self.variables or any(URL not in form for form in self.variables.values()):
            raise ValueError("variables must have at least one, and {url} in each")

    def named_by(self, environ: Mapping[str, str]) -> str:
        """The upstream's URL that an environment names already; empty if it names none."""
        for name, form in self.variables.items():
            if url := environ.get(name, "").strip().rstrip("/"):
                url = url if "://" in url else f"http://{url}"
                return url if form.endswith(VERSION) or url.endswith(VERSION) else url + VERSION
        return ""


class ClientRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[client]]`: a program by the glob `command` of its file's name, and what it gets besides the variables of
    its `apis`: `arguments` before its own, and `variables`."""

    name: str
    command: str
    apis: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not self.command.strip() or not self.apis:
            raise ValueError("needs a command and apis")
        _check_variables(self.variables)

    def is_about(self, program: str) -> bool:
        """Whether a program, by its name or path, is this client."""
        name = PurePath(program.replace("\\", "/")).name.lower()
        return fnmatch.fnmatchcase(name.removesuffix(".exe").removesuffix(".cmd"), self.command.lower())


class Clients(msgspec.Struct, frozen=True):
    """The rows of the files, the user's first."""

    apis: tuple[ApiRow, ...] = ()
    clients: tuple[ClientRow, ...] = ()

    def of(self, program: str) -> ClientRow:
        """The first row about a program; else one with all APIs of `default`."""
        defaults = tuple(api.name for api in self.apis if api.default)
        other = ClientRow("", program or "-", defaults or ("-",))
        return next((client for client in self.clients if client.is_about(program)), other)

    def apis_of(self, client: ClientRow) -> tuple[ApiRow, ...]:
        """The APIs that a client needs, in the order in which it names them."""
        found = {api.name: api for api in self.apis}
        return tuple(found[name] for name in client.apis if name in found)


def _check_variables(variables: Iterable[str]) -> None:
    if wrong := [name for name in variables if not VARIABLE.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is no name of a variable")


def parse_clients(table: Mapping[str, Any]) -> tuple[Clients, list[str]]:
    """The valid rows of a file, and its problems."""
    apis, problems = parse_named_rows({API: table.get(API, [])}, API, lambda row: converted(row, ApiRow))
    clients, more = parse_named_rows({CLIENT: table.get(CLIENT, [])}, CLIENT, lambda row: converted(row, ClientRow))
    unknown = [f"{key}: unknown table, must be {API} or {CLIENT}" for key in table if key not in (API, CLIENT)]
    return Clients(apis, clients), [*unknown, *problems, *more]


def merged(upper: Clients, lower: Clients) -> Clients:
    """The rows of both files, the upper ones first. Of two rows with the same name the upper one is kept."""
    apis, clients = ({row.name for row in rows} for rows in (upper.apis, upper.clients))
    return Clients(
        (*upper.apis, *(row for row in lower.apis if row.name not in apis)),
        (*upper.clients, *(row for row in lower.clients if row.name not in clients)),
    )


def unknown_apis(clients: Clients) -> list[str]:
    """A line for each client that needs an API which no row has."""
    known = {api.name for api in clients.apis}
    return [
        f"client {number} ({row.name}): unknown api {name!r}, known are {', '.join(sorted(known)) or 'none'}"
        for number, row in enumerate(clients.clients, 1)
        for name in row.apis
        if name not in known
    ]


def filled(text: str, urls: Mapping[str, str]) -> str:
    """A text with the address of each API's proxy in place of its name in braces."""
    for name, url in urls.items():
        text = text.replace(f"{{{name}}}", url)
    return text


def variables_for(client: ClientRow, apis: Sequence[ApiRow], urls: Mapping[str, str]) -> dict[str, str]:
    """The variables of a client, given the address of each API's proxy."""
    found = {name: form.replace(URL, urls[api.name]) for api in apis for name, form in api.variables.items()}
    return found | {name: filled(text, urls) for name, text in client.variables.items()}
