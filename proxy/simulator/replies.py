"""The script that replies follow in every API: which models call tools, the words of a text, the value of a schema.

The same request always gets the same bytes. How an API writes its replies is in its package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import cycle, islice
from typing import Any

import msgspec

from proxy.simulator.json import Json

TOOL_MODEL = "sim-tools"  # a model whose name contains this calls a tool; with PARALLEL in its name, two at once
PARALLEL = "parallel"
# One whose name contains LOOP calls a tool after every result, until one contains END: an agent that runs on and on.
LOOP, END = "sim-tools-loop", "That was all."
TOKEN = re.compile(r"\s*\S+")  # a word with the space before it: easy to count by hand, and close enough
MAX_DEPTH = 8  # levels of a schema that get values
CREATED = 1_700_000_000  # seconds since 1970; constant, so that responses are reproducible
JSON_FORMATS = ("json_object", "json_schema")


def called(tools: Iterable[Mapping[str, Any]], model: str, parallel: bool = True) -> list[Mapping[str, Any]]:
    """The tools that a reply with calls calls: the first one, or two calls at once."""
    return list(islice(cycle(tools), 2 if PARALLEL in model and parallel else 1))


def goes_on(model: str, result: Json) -> bool:
    """Whether a model calls a tool after a result. Most reply with text."""
    return LOOP in model and END not in msgspec.json.encode(result).decode()


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream in OpenAI's shape ends with its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def json_text(kind: Json, schema: Json) -> str:
    """The text of a reply whose format must be of a kind; empty where that is no JSON."""
    return msgspec.json.encode(sample(schema) if schema else {}).decode() if kind in JSON_FORMATS else ""


def sample(schema: Json, root: Json = None, depth: int = MAX_DEPTH) -> Json:
    """The smallest value that a JSON schema allows: required properties only. `root` resolves references."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or not depth:
        return None
    if "$ref" in schema:
        return sample(_resolve(root, str(schema["$ref"])), root, depth - 1)
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        if schema.get(key):
            first = schema[key][0]
            return first if key == "enum" else sample(first, root, depth - 1)
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type", "object")
    return _of_type(kind[0] if isinstance(kind, list) and kind else kind, schema, root, depth)


def _of_type(kind: Json, schema: Mapping[str, Any], root: Json, depth: int) -> Json:
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: sample(properties.get(name), root, depth - 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [sample(schema.get("items"), root, depth - 1)] * min(int(schema.get("minItems") or 0), MAX_DEPTH)
    return {
        "string": "sim",
        "integer": schema.get("minimum", 1),
        "number": schema.get("minimum", 1.5),
        "boolean": True,
    }.get(str(kind))


def _resolve(root: Json, ref: str) -> Json:
    """The schema that a reference such as "#/$defs/X" names."""
    for key in ref.removeprefix("#/").split("/"):
        root = root.get(key) if isinstance(root, dict) else None
    return root


def event(data: Json) -> bytes:
    """One server-sent event with JSON as its data."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
