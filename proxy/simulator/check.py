"""The type of a validation check, and the errors that checks return. It checks nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.errors import ClientError

Body = Mapping[str, Any]
Check = Callable[[Body], ClientError | None]  # returns the error for an invalid body, else None


def invalid(message: str, code: str, param: str) -> ClientError:
    """A 400 in OpenAI's error shape. `param` is the path of the invalid field."""
    return ClientError(400, message, code=code, param=param)


def empty_array(param: str) -> ClientError:
    """The error for an array that must not be empty, in OpenAI's wording."""
    text = f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return invalid(text, "empty_array", param)
