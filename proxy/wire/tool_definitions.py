"""Reads the tools that a request defines, and writes other descriptions into them. The keys of an API are data.

The JSON schema of a tool's parameters is the same for all APIs: descriptions stand beside its types, at any depth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from proxy.model.definitions import Definition, Definitions, Description, Place, ToolArguments
from proxy.model.lenient_json import RAWS, UNREADABLE, Json, mapping, read, string
from proxy.wire.body import RAW_LIST
from proxy.wire.cache_marks import KEY

NAME, TYPE, DESCRIPTION, DEFERRED, LISTED = "name", "type", "description", "defer_loading", "tools"
PROPERTIES = "properties"
# Keywords of JSON schemas whose value is a schema, a list of schemas, or schemas by name.
SCHEMAS = frozenset(
    "items additionalItems additionalProperties unevaluatedItems unevaluatedProperties contains not if then else"
    " propertyNames anyOf oneOf allOf prefixItems".split()
)
BY_NAME = frozenset({PROPERTIES, "patternProperties", "$defs", "definitions", "dependentSchemas"})
DEEPEST = 32  # levels of schemas inside schemas that are read; real ones have less than ten
MAX_TOOLS = 20_000  # of a request; of more none is read
Tree = dict[str | int, "Tree | str | None"]  # new texts by the keys that lead to them; None: nothing is to stand there


@dataclass(frozen=True)
class DeclaredTools:
    """Implements `Definitions`. The tools are read once, when somebody asks.

    `schema`: the key of a tool's JSON schema. `inside`: the keys of the objects that have name and schema, where a tool
    has one. `types`: the types of tools that the client defines itself, None for a tool without a type; empty: all.
    `choice`: the JSON of the tool choice.
    """

    fields: Mapping[str, bytes]
    schema: str
    inside: tuple[str, ...] = ()
    types: tuple[str | None, ...] = ()
    choice: bytes = b"null"
    changed: bool = False

    def read(self) -> tuple[Definition, ...]:
        """Every tool that the client defines; see `Definitions.read`."""
        return self._found

    @cached_property
    def _found(self) -> tuple[Definition, ...]:
        try:
            listed = [(key, msgspec.json.decode(raw)) for key, raw in self.fields.items()]
        except UNREADABLE:
            return ()
        if sum(len(tools) for _, tools in listed if isinstance(tools, list)) > MAX_TOOLS:
            return ()
        return tuple([self._definition(*each) for key, tools in listed for each in self._tools(tools, (key,), False)])

    def _tools(self, tools: Json, place: Place, deferred: bool) -> Iterator[tuple[Mapping[str, Json], Place, bool]]:
        """The tools of a list, each with its place and whether it is deferred; for a namespace, the tools in it."""
        for i, tool in enumerate(tools if isinstance(tools, list) else ()):
            if not isinstance(tool, dict):
                continue
            later = deferred or tool.get(DEFERRED) is True
            if isinstance(tool.get(LISTED), list) and len(place) == 1:
                yield from self._tools(tool[LISTED], (*place, i, LISTED), later)
            elif not self.types or tool.get(TYPE) in self.types:
                yield tool, (*place, i), later

    def _definition(self, tool: Mapping[str, Json], place: Place, deferred: bool) -> Definition:
        inside, own = self._own(tool)
        at = (*place, *inside)
        texts: list[Description] = []
        if isinstance(own.get(DESCRIPTION), str):
            texts.append(Description((*at, DESCRIPTION), own[DESCRIPTION], own=True))
        _add(own.get(self.schema), (*at, self.schema), texts)
        return Definition(place, string(own.get(NAME)), tuple(texts), deferred, tool.get(KEY) is not None)

    def arguments(self) -> ToolArguments:
        """The names of the arguments of each tool; tools of another shape have none here. See `Definitions`."""
        return self._arguments

    @cached_property
    def _arguments(self) -> ToolArguments:
        """Without descriptions, which are not looked for: of each request whose results are shortened it is read."""
        found: dict[str, tuple[str, ...]] = {}
        for key, raw in self.fields.items():
            for tool, _, _ in self._tools(read(raw), (key,), False):
                own = self._own(tool)[1]
                name, names = string(own.get(NAME)), mapping(mapping(own.get(self.schema)).get(PROPERTIES))
                if name and names:
                    found[name] = tuple(names)
        return found

    def _own(self, tool: Mapping[str, Json]) -> tuple[Place, Mapping[str, Json]]:
        """The object that has a tool's name and schema, and where it stands in the tool."""
        around = next((key for key in self.inside if isinstance(tool.get(key), dict)), "")
        return ((around,), mapping(tool[around])) if around else ((), tool)

    def chosen(self) -> Collection[str]:
        """The texts in the tool choice; names are among them."""
        try:
            return frozenset(_texts(msgspec.json.decode(self.choice)))
        except UNREADABLE:
            return ()

    def edited(self, texts: Mapping[Place, str | None], without: Collection[Place] = ()) -> Definitions:
        """The tools with other descriptions, and without some tools; see `Definitions.edited`."""
        tree: Tree = {}
        for place, text in [*texts.items(), *((place, None) for place in without)]:
            _plant(tree, place, text)
        changed = {key: _put(msgspec.Raw(self.fields[str(key)]), inner) for key, inner in tree.items()}
        return self.with_fields({key: bytes(changed.get(key, raw)) for key, raw in self.fields.items()})

    def with_fields(self, fields: Mapping[str, bytes]) -> Definitions:
        """The tools of the same request with other values of its fields."""
        return replace(self, fields=fields, changed=True)


def declared(
    head: Mapping[str, bytes],
    keys: tuple[str, ...],
    schema: str,
    inside: tuple[str, ...] = (),
    types: tuple[str | None, ...] = (),
    choices: tuple[str, ...] = (),
) -> DeclaredTools:
    """The tools in these fields of a request; see `DeclaredTools`. `choices`: the fields that may name one of them."""
    fields = {key: head[key] for key in keys if len(head.get(key, b"")) > len(b"null")}
    return DeclaredTools(fields, schema, inside, types, next((head[key] for key in choices if key in head), b"null"))


def _add(schema: Json, place: Place, texts: list[Description], levels: int = DEEPEST, name: str = "") -> None:
    """Adds the descriptions in a schema, with those of the schemas in it. `name`: of what the schema is."""
    if not isinstance(schema, dict) or not levels:
        return
    for key, value in schema.items():
        if key == DESCRIPTION and isinstance(value, str):
            texts.append(Description((*place, key), value, own=False, name=name))
        elif key in SCHEMAS and isinstance(value, list):
            for i, one in enumerate(value):
                _add(one, (*place, key, i), texts, levels - 1)
        elif key in SCHEMAS:
            _add(value, (*place, key), texts, levels - 1)
        elif key in BY_NAME and isinstance(value, dict):
            for inner, one in value.items():
                _add(one, (*place, key, inner), texts, levels - 1, inner)


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value if isinstance(value, list) else value.values():
            yield from _texts(one)


def _plant(tree: Tree, place: Place, text: str | None) -> None:
    """Puts a text at a place of the tree. What is to go as a whole has nothing inside."""
    for key in place[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[place[-1]] = text


def _put(raw: msgspec.Raw, tree: Tree | str | None) -> msgspec.Raw:
    """JSON with other values at places in it, and without what is None there. Every value beside them keeps its
    bytes."""
    if not isinstance(tree, dict):
        return _raw(tree)
    if any(isinstance(key, int) for key in tree):
        listed = enumerate(RAW_LIST.decode(raw))
        return _raw([_at(value, i, tree) for i, value in listed if tree.get(i, "") is not None])
    fields = RAWS.decode(raw).items()
    return _raw({key: _at(value, key, tree) for key, value in fields if tree.get(key, "") is not None})


def _at(raw: msgspec.Raw, key: str | int, tree: Tree) -> msgspec.Raw:
    return _put(raw, tree[key]) if key in tree else raw


def _raw(value: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
