"""Decodes the JSON in results and arguments. Too deeply nested JSON is rejected; callers treat it as text."""

from __future__ import annotations

import msgspec

from proxy.model.lenient_json import Json

DEEPEST = 100  # levels: a recursive walk uses several of the interpreter's 1000 frames per level; real results have ten
OPENING = ("[", "{")
SIGNS = (",", *OPENING)
VALUES = 200_000  # the most that are decoded: each takes 60 to 300 bytes, and some microseconds of every walk


def decoded(text: str) -> Json:
    """The decoded value.

    Raises `msgspec.DecodeError` for invalid JSON, more than `VALUES` values, or more than `DEEPEST` levels. Both limits
    are fixed: the interpreter's recursion limit depends on the caller's stack, and a cut must not depend on it.
    """
    if sum(map(text.count, SIGNS)) > VALUES:
        raise msgspec.DecodeError("there is too much in it")
    try:
        value = msgspec.json.decode(text)
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(type(error).__name__) from None
    if sum(map(text.count, OPENING)) > DEEPEST and _deeper(value):
        raise msgspec.DecodeError("it nests too deep")
    return value


def _deeper(value: Json) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
