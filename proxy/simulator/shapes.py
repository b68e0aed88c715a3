"""The JSON types of requests, as data: finds the first value of a wrong type. The wording is its callers'.

A shape is a type (`TEXT`), a list of one shape (`[TEXT]`), the fields of an object by name (`{"id": TEXT}`; others may
have any value), or alternatives (`(TEXT, [PART])`). A field may be null: what is required is checked elsewhere. An item
of a list may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.simulator.json import Json

TEXT, INTEGER, NUMBER, BOOLEAN, ANY = "string", "integer", "number", "boolean", "any"
OBJECT: dict[str, Any] = {}
Shape = Any
Place = tuple[str | int, ...]
NAMES = {TEXT: "a string", INTEGER: "an integer", NUMBER: "a number", BOOLEAN: "a boolean"}


@dataclass(frozen=True, slots=True)
class Wrong:
    """A value of a wrong type: where it stands, what it should be, and what it is."""

    place: Place
    shape: Shape
    value: Json

    @property
    def expected(self) -> str:
        """What it should be, as OpenAI names it."""
        shapes = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        named = [_named(shape) for shape in shapes]
        return named[0] if len(named) == 1 else f"one of {' or '.join(named)}"

    def path(self, dotted: bool = False) -> str:
        """Where it stands: `input[0].content`, or `dotted` `input.0.content`."""
        if dotted:
            return ".".join(map(str, self.place))
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.place).removeprefix(".")


def wrong_type(value: Json, shape: Shape, place: Place = ()) -> Wrong | None:
    """The first value of a wrong type in a value; None if there is none. Never raises."""
    if value is None or shape == ANY:
        return None
    shapes = shape if isinstance(shape, tuple) else (shape,)
    found = next((one for one in shapes if _is(value, one)), None)
    if found is None:
        return Wrong(place, shape, value)
    if isinstance(found, list):
        inner = (_wrong_item(item, found[0], (*place, i)) for i, item in enumerate(value))
        return next((wrong for wrong in inner if wrong is not None), None)
    if isinstance(found, dict):
        fields = ((key, value[key], one) for key, one in found.items() if key in value)
        return next((wrong for key, item, one in fields if (wrong := wrong_type(item, one, (*place, key)))), None)
    return None


def _wrong_item(item: Json, shape: Shape, place: Place) -> Wrong | None:
    return Wrong(place, shape, item) if item is None and shape != ANY else wrong_type(item, shape, place)


def _is(value: Json, shape: Shape) -> bool:
    """Whether a value itself is of the type of a shape, whatever is inside."""
    if isinstance(shape, list | dict):
        return isinstance(value, type(shape))
    if isinstance(value, bool) or shape == BOOLEAN:
        return isinstance(value, bool) and shape == BOOLEAN
    kinds: dict[str, Any] = {TEXT: str, INTEGER: int, NUMBER: int | float}
    return isinstance(value, kinds[shape])


def _named(shape: Shape) -> str:
    if isinstance(shape, list):
        return "an array of objects" if isinstance(shape[0], dict) else "an array"
    return "an object" if isinstance(shape, dict) else NAMES[shape]


def type_of(value: Json) -> str:
    """The type of a value, as OpenAI names it."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    if value is None:
        return "null"
    return NAMES[TEXT if isinstance(value, str) else INTEGER if isinstance(value, int) else NUMBER]
