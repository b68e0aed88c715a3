"""Reads the JSON in results and arguments: what nests so deep that no walk over it would end well is text to us."""

from __future__ import annotations

import msgspec

from proxy.model.lenient_json import Json

DEEPEST = 100  # levels: a walk takes several of the interpreter's thousand frames for each; real results have ten
OPENING = ("[", "{")
SIGNS = (",", *OPENING)
VALUES = 200_000  # that are read at most: each takes 60 to 300 bytes, and some microseconds of every walk


def decoded(text: str) -> Json:
    """The value. Raises `msgspec.DecodeError` for what is no JSON, for more than `VALUES`, and for more than `DEEPEST`
    levels: by the value alone, for what the interpreter can bear depends on who asks, and a cut must not."""
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
