"""Renders the schema of `response_format` as the model reads it: JSON without validation-only keywords."""

from __future__ import annotations

import json
from collections.abc import Mapping

from proxy.model.lenient_json import Json

# Keywords that recorded requests were not billed for. Titles and descriptions were billed.
OMITTED = frozenset(
    "$schema required additionalProperties default minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "minItems maxItems minLength maxLength".split()
)
NUMBERS = ("integer", "number")
OMITTED_OF_NUMBERS = OMITTED | {"format"}
NAME_MAPS = frozenset({"properties", "$defs", "definitions"})  # their keys are names, not keywords
VALUE_KEYS = frozenset({"enum", "const", "examples"})  # they contain values, not schemas


def render(schema: Json) -> str:
    """A schema as text: compact JSON, with everything but ASCII escaped."""
    return json.dumps(_stripped(schema), separators=(",", ":"))


def _stripped(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_stripped(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    omitted = OMITTED_OF_NUMBERS if schema.get("type") in NUMBERS else OMITTED
    return {key: _kept(key, value) for key, value in schema.items() if key not in omitted}


def _kept(key: str, value: Json) -> Json:
    if key in VALUE_KEYS:
        return value
    if key in NAME_MAPS and isinstance(value, Mapping):
        return {name: _stripped(part) for name, part in value.items()}
    return _stripped(value)
