"""Reads which arguments the tools of a request have, when somebody asks. The keys of an API are data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from proxy.model.conversation import ToolArguments
from proxy.model.lenient_json import mapping, read, string

NAME, PROPERTIES = "name", "properties"


@dataclass(frozen=True)
class DeclaredArguments:
    """Called, it returns the names of the arguments of each tool; read once, at the first call. Never raises.

    `raws`: JSON lists of tools. `schema`: the key of a tool's JSON schema. `inside`: the key of the object that has
    name and schema, where a tool has one. Tools of another shape have no arguments here.
    """

    raws: tuple[bytes, ...]
    schema: str
    inside: str = ""

    def __call__(self) -> ToolArguments:
        return self._found

    @cached_property
    def _found(self) -> ToolArguments:
        found: dict[str, tuple[str, ...]] = {}
        for raw in filter(None, self.raws):
            tools = read(raw)
            for tool in map(mapping, tools if isinstance(tools, list) else ()):
                own = mapping(tool.get(self.inside, tool))
                name, names = string(own.get(NAME)), mapping(mapping(own.get(self.schema)).get(PROPERTIES))
                if name and names:
                    found[name] = tuple(names)
        return found
