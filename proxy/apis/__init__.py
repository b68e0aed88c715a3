"""The APIs, one package each; this module finds them, and by a path, a body or headers the right one. To add an API,
add its package."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Protocol

from proxy.model.api import Api, ErrorFields
from proxy.model.lenient_json import raw_fields
from proxy.model.server import Header, Server
from proxy.wire.headers import value_of
from proxy.wire.openai import errors, stream
from proxy.wire.openai.server import OPENAI

USUAL = OPENAI  # the server whose paths are all that are no other's, and whose formats hold where no other's are known
MODEL = "{model}"  # the place of the model's name in a path
CountBody = Callable[[str, Mapping[str, bytes]], bytes]


@cache
def _packages() -> Mapping[str, ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


@cache
def apis() -> tuple[Api, ...]:
    """Every API whose requests are fitted: the `API` of each package here, in the order of the packages' names.

    A package without `API` holds the JSON of requests that only the proxy itself makes.
    """
    return tuple(package.API for package in _packages().values() if hasattr(package, "API"))


@cache
def servers() -> Mapping[str, Server]:
    """Every kind of server, by name: the usual one, that of each API, then the further `SERVERS` of packages."""
    further = (server for package in _packages().values() for server in getattr(package, "SERVERS", ()))
    return {server.name: server for server in (USUAL, *(api.server for api in apis()), *further)}


@cache
def count_bodies() -> Mapping[str, CountBody]:
    """What writes the body of a count in another API than the client's: the `COUNT_BODY` of each package, by its name.
    It takes the model and the fields of a chat request, and raises `proxy.wire.counters.NotCountable`."""
    return {name: package.COUNT_BODY for name, package in _packages().items() if hasattr(package, "COUNT_BODY")}


@cache
def by_path() -> Mapping[str, Api]:
    """Every path that is fitted, with its API, but for those that name a model: see `named`."""
    return {path: api for api in apis() for path in api.paths}


@cache
def named_paths() -> tuple[tuple[str, re.Pattern[str], Api], ...]:
    """The paths that name a model: what they begin with, and the whole."""
    found = []
    for api in apis():
        for path in api.named_paths:
            before, _, after = path.partition(MODEL)
            found.append((before, re.compile(f"{re.escape(before)}([^/]+){re.escape(after)}"), api))
    return tuple(found)


def named(path: str) -> tuple[Api, str] | None:
    """The API of a fitted path that names a model, and the name as it is written there; None for any other path."""
    for before, whole, api in named_paths():
        if path.startswith(before) and (match := whole.fullmatch(path)) is not None:
            return api, match[1]
    return None


def at(path: str) -> Api | None:
    """The API of a fitted path."""
    api = by_path().get(path)
    if api is None and (found := named(path)) is not None:
        return found[0]
    return api


def api_of(body: bytes) -> Api | None:
    """The API of a body whose path is not known; None if none recognises its fields."""
    fields = raw_fields(body)
    return next((api for api in apis() if api.request.recognises(fields)), None)


def asked_in(server: Server) -> Api | None:
    """The API in which the proxy itself asks servers of a kind; None if it asks none."""
    return by_path().get(server.asked_at)


def usual() -> Api:
    """The API of a body that none recognises."""
    return by_path()[USUAL.asked_at]


def server_of(path: str) -> Server:
    """The kind of server that has a path."""
    return next((one for one in servers().values() if path.startswith(one.roots)), USUAL)


def has_path(server: Server, path: str) -> bool:
    """Whether servers of a kind have a path."""
    return path in server.paths if server.paths else server_of(path) is server


def clients_server(headers: Sequence[Header]) -> Server:
    """The kind of server for which the sender of these headers is written."""
    marked = (one for one in servers().values() if one.mark and value_of(headers, one.mark) is not None)
    return next(marked, USUAL)


class StreamFormat(Protocol):
    """How a client of some path expects errors and the end of a stream; every `ResponseFormat` is one."""

    def error_body(self, error: ErrorFields) -> bytes:
        """The body of an error response of the proxy's own."""

    def error_event(self, error: ErrorFields) -> bytes:
        """The server-sent event that reports an error in a stream that has begun."""

    def is_end_of_stream(self, tail: bytes) -> bool:
        """Whether a stream's last bytes (32 are enough) are its last event."""


class OpenAIFormat:
    """The format of paths that are not fitted: that of OpenAI's APIs."""

    error_body = staticmethod(errors.error_body)
    error_event = staticmethod(errors.error_event)
    is_end_of_stream = staticmethod(stream.is_end_of_stream)


DEFAULT: StreamFormat = OpenAIFormat()


def stream_format(path: str) -> StreamFormat:
    """The path's API, or that of the path above it; OpenAI's format for a path that belongs to no API."""
    found = by_path()
    api = at(path) or next((found[above] for above in found if path.startswith(above + "/")), None)
    api = api or next((api for api in apis() if path.startswith(api.server.roots)), None)
    return DEFAULT if api is None else api.response


def error_body(path: str, error: ErrorFields) -> bytes:
    """The JSON of an error of the proxy's own, as clients of the path expect it."""
    return stream_format(path).error_body(error)
