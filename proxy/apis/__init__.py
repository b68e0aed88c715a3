"""The APIs, one package each; this module finds them. To add an API, add its package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Protocol

from proxy.model.api import Api, ErrorFields
from proxy.model.lenient_json import raw_fields
from proxy.wire.openai import errors, stream


@cache
def apis() -> tuple[Api, ...]:
    """Every API whose requests are fitted: the `API` of each package here, in the order of the packages' names.

    A package without `API` holds the JSON of requests that only the proxy itself makes.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    packages = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(package.API for package in packages if hasattr(package, "API"))


@cache
def by_path() -> Mapping[str, Api]:
    """Every path that is fitted, with its API."""
    return {path: api for api in apis() for path in api.paths}


def api_of(body: bytes) -> Api | None:
    """The API of a body whose path is not known; None if none recognises its fields."""
    fields = raw_fields(body)
    return next((api for api in apis() if api.request.recognises(fields)), None)


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
    api = found.get(path) or next((found[above] for above in found if path.startswith(above + "/")), None)
    api = api or next((api for api in apis() if api.root and path.startswith(api.root)), None)
    return DEFAULT if api is None else api.response


def error_body(path: str, error: ErrorFields) -> bytes:
    """The JSON of an error of the proxy's own, as clients of the path expect it."""
    return stream_format(path).error_body(error)
