"""The schema of `response_format` as the models see it: JSON without the keywords that only bind the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

from proxy.model.lenient_json import Json

# Keywords that recorded requests did not pay for; titles and descriptions they did.
UNSEEN = frozenset(
    "$schema required additionalProperties default minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "minItems maxItems minLength maxLength".split()
)
NUMBERS = ("integer", "number")
UNSEEN_OF_NUMBERS = UNSEEN | {"format"}
NAMED = frozenset({"properties", "$defs", "definitions"})  # their keys are names, not keywords
VALUES = frozenset({"enum", "const", "examples"})  # these hold no schemas


def seen(schema: Json) -> str:
    """The text of a schema that is put before the model: compact JSON, everything but ASCII escaped."""
    return json.dumps(_stripped(schema), separators=(",", ":"))


def _stripped(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_stripped(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    unseen = UNSEEN_OF_NUMBERS if schema.get("type") in NUMBERS else UNSEEN
    return {key: _kept(key, value) for key, value in schema.items() if key not in unseen}


def _kept(key: str, value: Json) -> Json:
    if key in VALUES:
        return value
    if key in NAMED and isinstance(value, Mapping):
        return {name: _stripped(part) for name, part in value.items()}
    return _stripped(value)
