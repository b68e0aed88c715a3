"""Renders tools as the models read them: functions and their JSON schemas as TypeScript. It does not count.

The format was derived from recorded requests and the prompt tokens that the provider reported for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.model.lenient_json import Json, mapping

MAX_DEPTH = 16  # schemas may be recursive; below this depth a type is `any`
MAX_SIZE = 2_000_000  # characters; references can expand exponentially, and after this every type is `any`
NODE_SIZE = 16  # characters that every node of a schema counts for
SCALARS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
# Keywords that are written after a value's type, by type.
BOUNDS = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("minItems", "maxItems"),
}


class Typed(NamedTuple):
    """A rendered schema: the comment lines before it, its type, and the comment after it."""

    comments: tuple[str, ...]
    type: str
    after: str

    @property
    def plain(self) -> bool:
        """Whether it fits inside a line."""
        return not self.comments and not self.after and "\n" not in self.type


def render(functions: Sequence[Mapping[str, Json]], legacy: bool = False) -> str:
    """The namespace with these functions (fields: name, description, parameters).

    `legacy` is the format of the models of June 2023: every object on several lines, no titles, no bounds.
    """
    return "namespace functions {\n\n" + "".join(_function(f, legacy) for f in functions) + "} // namespace functions"


def _function(function: Mapping[str, Json], legacy: bool) -> str:
    parameters = mapping(function.get("parameters"))
    schema = Schema(parameters, legacy)
    title = [] if legacy else _comment(parameters.get("title"))
    lines = [*title, *(["//"] if title else []), *_comment(function.get("description"))]
    lines += _comment(parameters.get("description"))
    argument = f"(_: {schema.object(parameters)})" if mapping(parameters.get("properties")) else "()"
    return "".join(f"{line}\n" for line in lines) + f"type {function.get('name', '')} = {argument} => any;\n\n"


@dataclass(slots=True)
class Schema:
    """Renders one JSON schema. `root` resolves its references; `written` counts characters, up to `MAX_SIZE`."""

    root: Mapping[str, Json]
    legacy: bool = False
    written: int = 0

    def object(self, schema: Mapping[str, Json], depth: int = 0) -> str:
        """An object's properties; on one line if none has a comment."""
        properties = mapping(schema.get("properties"))
        if not properties:
            return "object"
        required = schema.get("required")
        needed = required if isinstance(required, list) else ()
        parts = [
            (f"{key}{'' if key in needed else '?'}:", self.typed(value, depth + 1)) for key, value in properties.items()
        ]
        if not self.legacy and all(part.plain for _, part in parts):
            return "{ " + ", ".join(f"{key} {part.type}" for key, part in parts) + " }"
        return "{\n" + "".join(_property(key, part) for key, part in parts) + "}"

    def typed(self, schema: Json, depth: int) -> Typed:
        """A schema's type with its comments."""
        found = self.resolved(schema)
        kinds = found.get("type")
        after = [] if self.legacy else _bounds(found, kinds if isinstance(kinds, str) else "")
        if "default" in found:
            after.insert(0, f"default: {_dumped(found['default'])}")
        comments = self._comments(found)
        self.written += NODE_SIZE + sum(map(len, comments))
        return Typed(comments, self.type(found, depth), ", ".join(after))

    def _comments(self, schema: Mapping[str, Json]) -> tuple[str, ...]:
        title = [] if self.legacy else _comment(schema.get("title"))
        description = _comment(schema.get("description"))
        return (*title, *(["//"] if title and description else []), *description)

    def type(self, schema: Mapping[str, Json], depth: int) -> str:
        """A schema's type without comments."""
        if depth > MAX_DEPTH or self.written > MAX_SIZE:
            return "any"
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return self._union((self.resolved(part) for part in schema[key]), depth)
        if isinstance(schema.get("allOf"), list):
            return self.type(self._merged(schema["allOf"]), depth + 1)
        if isinstance(schema.get("enum"), list):
            return " | ".join(map(_dumped, schema["enum"]))
        if "const" in schema:
            return _dumped(schema["const"])
        kind = schema.get("type")
        if isinstance(kind, list):
            rest = {key: value for key, value in schema.items() if key not in ("title", "default")}
            return self._union(({**rest, "type": one} for one in kind), depth)
        if kind == "object" or (kind is None and "properties" in schema):
            return self.object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return SCALARS.get(kind, "any") if isinstance(kind, str) else "any"

    def _array(self, schema: Mapping[str, Json], depth: int) -> str:
        item = self.typed(schema.get("items"), depth + 1)
        if item.comments or "\n" in item.type:
            return "Array<\n" + "".join(f"{line}\n" for line in item.comments) + f"{item.type}\n>"
        return f"{item.type}[]"

    def _union(self, parts: Iterable[Mapping[str, Json]], depth: int) -> str:
        variants = [self.typed(part, depth + 1) for part in parts]
        if all(variant.plain for variant in variants):
            return " | ".join(variant.type for variant in variants)
        return "\n" + "".join(_line(v.comments, f"| {v.type}", v.after) for v in variants)

    def _merged(self, parts: Iterable[Json]) -> dict[str, Json]:
        merged: dict[str, Json] = {}
        for part in map(self.resolved, parts):
            properties = {**mapping(merged.get("properties")), **mapping(part.get("properties"))}
            merged = {**merged, **part, **({"properties": properties} if properties else {})}
        merged.pop("allOf", None)
        return merged

    def resolved(self, schema: Json) -> Mapping[str, Json]:
        """A schema with its reference replaced by the target; keywords next to the reference override the target's."""
        found = mapping(schema)
        for _ in range(MAX_DEPTH):
            path = found.get("$ref")
            if not isinstance(path, str):
                break
            target: Mapping[str, Json] = self.root
            for step in path.split("/")[1:]:
                target = mapping(target.get(step))
            found = {**target, **{key: value for key, value in found.items() if key != "$ref"}}
        return found


def _property(key: str, part: Typed) -> str:
    space = "" if part.type.startswith("\n") else " "
    return _line(part.comments, f"{key}{space}{part.type},", part.after)


def _line(comments: Iterable[str], text: str, after: str) -> str:
    return "".join(f"{line}\n" for line in comments) + text + (f" // {after}" if after else "") + "\n"


def _bounds(schema: Mapping[str, Json], kind: str) -> list[str]:
    return [f"{key}: {_dumped(schema[key])}" for key in BOUNDS.get(kind, ()) if key in schema]


def _comment(text: Json) -> list[str]:
    """A text as comment lines, each stripped; blank lines at both ends are removed."""
    if not isinstance(text, str) or not text.strip():
        return []
    return [f"// {line.strip()}".rstrip() for line in text.strip().split("\n")]


def _dumped(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
