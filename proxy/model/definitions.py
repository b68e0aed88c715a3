"""The tools that a request defines, in the terms that every API shares: their names and descriptions.

The JSON of a definition belongs to its API. A step reads descriptions and has shorter ones written through the
`Definitions` that a prompt carries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

ToolArguments = Mapping[str, tuple[str, ...]]  # the names of the arguments of each tool, by the name of the tool
Place = tuple[str | int, ...]  # where something stands: a field of the request, then keys and places of lists


class Description(msgspec.Struct, frozen=True, gc=False):
    """One description: its place, its text, and whether it is the tool's own (else a parameter's). `name`: that of the
    parameter; empty for a schema without a name."""

    place: Place
    text: str
    own: bool
    name: str = ""


class Definition(msgspec.Struct, frozen=True, gc=False):
    """One tool. `deferred`: the provider adds it to the prompt only once a search has found it. `marked`: the client
    marks it as the end of what is to be cached."""

    place: Place
    name: str
    descriptions: tuple[Description, ...] = ()
    deferred: bool = False
    marked: bool = False


class Definitions(Protocol):
    """The tools of one request: pure functions of its bytes, and all that knows their JSON keys."""

    @property
    def fields(self) -> Mapping[str, bytes]:
        """The fields of the request that define tools, as raw JSON; empty if there are none."""

    @property
    def changed(self) -> bool:
        """Whether these are not the tools as the client sent them."""

    def read(self) -> tuple[Definition, ...]:
        """Every tool in order; none of JSON that cannot be decoded. Never raises."""

    def arguments(self) -> ToolArguments:
        """The names of the arguments of each tool that has any. Never raises."""

    def chosen(self) -> Collection[str]:
        """The names in the request's tool choice. Never raises."""

    def edited(self, texts: Mapping[Place, str | None], without: Collection[Place] = ()) -> Definitions:
        """The tools with other descriptions at places that `read` returned (None: without that description), and
        without the tools at some places. All else keeps its bytes."""

    def with_fields(self, fields: Mapping[str, bytes]) -> Definitions:
        """The tools of the same request with other values of its fields."""


class _NoDefinitions:
    """Implements `Definitions` for a request that defines no tools."""

    @property
    def fields(self) -> Mapping[str, bytes]:
        return {}

    @property
    def changed(self) -> bool:
        return False

    def read(self) -> tuple[Definition, ...]:
        return ()

    def arguments(self) -> ToolArguments:
        return {}

    def chosen(self) -> Collection[str]:
        return ()

    def edited(self, texts: Mapping[Place, str | None], without: Collection[Place] = ()) -> Definitions:
        return self

    def with_fields(self, fields: Mapping[str, bytes]) -> Definitions:
        return self


NO_DEFINITIONS: Definitions = _NoDefinitions()
