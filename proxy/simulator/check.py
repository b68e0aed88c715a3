"""Errors in OpenAI's shape, and what checks of requests are: their type, and their order. It checks nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from proxy.simulator.shapes import Wrong, type_of


class ApiError(Exception):
    """An error response of the simulated API: its HTTP status and the four values of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        code: str = "",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.code, self.param = status, message, kind, code, param

    def body(self) -> bytes:
        """Its JSON. All four keys are always present."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code or None}
        return msgspec.json.encode({"error": error})


Body = Mapping[str, Any]
Check = Callable[[Body], ApiError | None]  # returns the error for an invalid body, else None
Asked = TypeVar("Asked")


def validate(asked: Asked, checks: Sequence[Callable[[Asked], ApiError | None]]) -> ApiError | None:
    """The error of the first check that fails; None for a valid request."""
    return next((error for check in checks if (error := check(asked)) is not None), None)


def invalid(message: str, code: str, param: str) -> ApiError:
    """A 400 in OpenAI's error shape. `param` is the path of the invalid field."""
    return ApiError(400, message, code=code, param=param)


def invalid_type(wrong: Wrong) -> ApiError:
    """The error for a value of a wrong type, in OpenAI's wording."""
    path = wrong.path()
    text = f"Invalid type for '{path}': expected {wrong.expected}, but got {type_of(wrong.value)} instead."
    return invalid(text, "invalid_type", path)


def empty_array(param: str) -> ApiError:
    """The error for an array that must not be empty, in OpenAI's wording."""
    text = f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return invalid(text, "empty_array", param)
