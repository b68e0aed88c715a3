"""Reads calls and their results: what a call reads, and what it may change. It claims nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.results.messages import parts_of_results
from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded
from proxy.model.conventions import Conventions
from proxy.model.conversation import Block, Message, PartKind
from proxy.model.lenient_json import Json

SHELL = frozenset("|;&<>$`\n(){}")  # a command with one of these does more than to print a file
IN_PLACE = re.compile(r"-\w*i|--in-place")  # an option of sed: it writes the file
LONGEST = 100_000  # characters of arguments that are read; in longer ones is the text of a whole file
DEEPEST = 4  # levels of arguments that are searched for paths and changes
CACHED, CACHED_BYTES = 20_000, 8 << 20


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call. `reads`: what it reads and nothing else, as a key; empty if it does more, or reads nothing that it names.
    `same`: a key of the whole call but for arguments that say nothing of what is read. `path`: what it names, normal.
    `changed`: the paths that it may change, and in `text`, if it is long, others."""

    id: str
    tool: str
    same: str
    reads: str = ""
    path: str = ""
    changed: tuple[str, ...] = ()
    text: str = ""


class Texts:
    """The texts of the results of a message, decoded when one of them is first asked for."""

    __slots__ = ("_found", "_message")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._found: dict[str, str] | None = None

    def of(self, call: str) -> str:
        """The text of one call's result."""
        if self._found is None:
            parts = parts_of_results(self._message)
            self._found = {call: "".join([part.text for part in found]) for call, found in parts.items()}
        return self._found[call]


class Result:
    """The result of a call: the message that has it (the place of its block, its place `at` in that block, its index in
    the client's list), and its text, which is decoded when somebody asks: of a long run hardly any is read again at
    each turn."""

    __slots__ = ("_texts", "at", "call", "index", "place")

    def __init__(self, call: Call, place: int, at: int, index: int, texts: Texts) -> None:
        self.call, self.place, self.at, self.index, self._texts = call, place, at, index, texts

    @property
    def text(self) -> str:
        """Its text."""
        return self._texts.of(self.call.id)


READ: Bounded[int, tuple[Call, ...]] = Bounded(CACHED, CACHED_BYTES)


def results_of(block: Block, place: int, conventions: Conventions) -> Iterator[Result]:
    """Yields the results of a block in order, each with its call; those without a known call are left out."""
    calls: dict[str, Call] = {}
    for at, message in enumerate(block.messages):
        if message.calls:
            calls |= {call.id: call for call in calls_of(message, conventions)}
        if message.answers and calls:
            texts = Texts(message)
            for ident in dict.fromkeys(message.answers):
                if ident in calls:
                    yield Result(calls[ident], place, at, message.index, texts)


def calls_of(message: Message, conventions: Conventions) -> tuple[Call, ...]:
    """The calls of a message. Cached."""
    key = digest(message.raw, str(hash(conventions)))
    found = READ.get(key)
    if found is None:
        parts = [part for part in message.parts() if part.kind is PartKind.CALL]
        found = tuple([_call(part.call, part.name, part.text, conventions) for part in parts])
        READ.put(key, found, 256 + sum(len(call.same) + len(call.text) for call in found))
    return found


def _call(ident: str, name: str, text: str, conventions: Conventions) -> Call:
    tool = name.casefold()
    given = _arguments(text)
    if not given:
        return Call(ident, tool, f"{tool} {text[:LONGEST]}" if text.strip() not in ("", "{}") else "")
    command = _command(given, conventions)
    if command is not None:
        return _shell(ident, tool, command, conventions)
    kept = {key: value for key, value in given.items() if key.casefold() not in conventions.free}
    paths = [path for key, value in given.items() if key.casefold() in conventions.paths for path in _paths(value)]
    part = conventions.parts
    reads = bool(paths) and all(key.casefold() in part for key in kept)
    changes = bool(paths) and any(key.casefold() in conventions.changes for key in _keys(given))
    same = f"{tool} {_plain(kept, paths)}"
    changed = tuple(paths) if changes else ()
    written = text[:LONGEST] if not reads and not changes and len(text) > 200 else ""
    return Call(ident, tool, same, same if reads else "", paths[0] if paths else "", changed, written)


def _arguments(text: str) -> Mapping[str, Json]:
    try:
        given = decoded(text[:LONGEST]) if len(text) <= LONGEST else None
    except msgspec.DecodeError:
        return {}
    return given if isinstance(given, dict) else {}


def _command(given: Mapping[str, Json], conventions: Conventions) -> str | None:
    """The shell command of a call; None if it has none."""
    for key, value in given.items():
        if key.casefold() in conventions.commands:
            if isinstance(value, str):
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return (
                    str(value[-1]) if len(value) == 3 and str(value[1]).startswith("-") else shlex.join(map(str, value))
                )
    return None


def _shell(ident: str, tool: str, command: str, conventions: Conventions) -> Call:
    """A call of a shell: it reads if its program prints files and nothing is done with what it prints."""
    try:
        words = shlex.split(command[:LONGEST])
    except ValueError:
        words = command.split()
    same = f"{tool} {' '.join(words)}"
    program = words[0].rpartition("/")[2].casefold() if words else ""
    named = [normal(word) for word in words[1:] if not word.startswith("-")]
    plain = SHELL.isdisjoint(command.strip())
    in_place = any(IN_PLACE.match(word) for word in words)
    if plain and program in conventions.readers and named and not in_place:
        return Call(ident, tool, same, same, named[-1])
    writes = ">" in command or any(word.rpartition("/")[2].casefold() in conventions.writers for word in words)
    return Call(ident, tool, same, "", "", (), command[:LONGEST] if writes else "")


def normal(path: str) -> str:
    """A path as it is compared: without `./` before it and quotes around it."""
    path = path.strip().strip("'\"`")
    while path.startswith("./"):
        path = path[2:]
    return path


def _paths(value: Json) -> Iterator[str]:
    if isinstance(value, str) and value.strip():
        yield normal(value)
    elif isinstance(value, list):
        for item in value[:16]:
            yield from _paths(item)


def _keys(value: Json, depth: int = DEEPEST) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for inner in value.values() if depth else ():
            yield from _keys(inner, depth - 1)
    elif isinstance(value, list) and depth:
        for inner in value[:16]:
            yield from _keys(inner, depth - 1)


def _plain(kept: Mapping[str, Json], paths: Sequence[str]) -> str:
    """The arguments as a key, in one order, with normal paths."""
    named = set(paths)
    plain = {
        key: normal(value) if isinstance(value, str) and normal(value) in named else value
        for key, value in kept.items()
    }
    return msgspec.json.encode(plain, order="deterministic").decode()
