"""The APIs, one package each; this module finds them. To add an API, add its package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from proxy.model.api import Api, ErrorFields
from proxy.wire.openai import errors


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


def error_body(path: str, error: ErrorFields) -> bytes:
    """The JSON of an error of the proxy's own, in the shape of the path's API; in OpenAI's for any other path."""
    api = by_path().get(path)
    return errors.error_body(error) if api is None else api.error_body(error)


def error_event(path: str, error: ErrorFields) -> bytes:
    """The event that reports an error in a stream that has begun, as `error_body` chooses its shape."""
    api = by_path().get(path)
    return errors.as_event(errors.error_body(error)) if api is None else api.error_event(error)
