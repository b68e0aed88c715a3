"""The shape of a law and of what is said to a request that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.errors import ClientError

Body = Mapping[str, Any]
Law = Callable[[Body], ClientError | None]


def wrong(message: str, code: str, param: str) -> ClientError:
    """The answer to a request that breaks a law: 400 in OpenAI's shape."""
    return ClientError(400, message, code=code, param=param)


def empty(place: str) -> ClientError:
    """A list that must hold something is empty."""
    text = f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return wrong(text, "empty_array", place)
