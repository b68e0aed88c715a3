"""Reads the lines of a result's text, and the numbers that a tool has put before them. It compares no texts."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from proxy.model.bounded import Bounded
from proxy.model.conversation import Message, PartKind

# A number before a line, as agents' tools write it: `12\t`, `12→`, `12 |`, `12:`, `L12:`.
NUMBER = re.compile(r"[ \t]*(?:L(?P<named>\d{1,8})[:|\t ]|(?P<plain>\d{1,8})[ \t]*[→|:\t])")
SAMPLE, FEW = 8, 2  # lines that are looked at first, and how many of them have numbers if all have
NUMBERED, IN_ORDER = 0.6, 0.8  # shares: of the lines that have numbers, and of these that are one more than the last
PLAIN = 12  # characters of a line without a number up to which it is found in any text
MOST_LINES = 20_000  # of a text that is compared by its lines: each takes a hundred bytes of memory
START = 200  # characters of a text that tell whether its call failed
NONE = -1  # the number of a line without one
READ, READ_BYTES = 20_000, 16 << 20  # messages whose lines are remembered: some hundred long runs
ENTRY, LINE = 300, 100  # bytes in memory


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A text of a result. `key`: of all of it. Of each line: in `contents` a key of its text without the number, in
    `numbers` the number (`NONE`: it has none; empty if the text is not numbered), in `sizes` its characters with the
    line break. `lines`: keys of the lines with their numbers that are not found in any text. Keys differ from process
    to process."""

    key: int
    contents: Sequence[int]
    numbers: Sequence[int]
    sizes: Sequence[int]
    lines: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """The characters of the text."""
        return sum(self.sizes)


class ShownPart(msgspec.Struct, frozen=True, gc=False):
    """A result's text in a message: its place among the message's parts, the call that it answers, its lines, and how
    it starts, without case. `alone`: the result has no other part. `json`: it looks like JSON."""

    place: int
    call: str
    shown: Shown
    start: str
    alone: bool
    json: bool = False


SHOWN: Bounded[int, tuple[ShownPart, ...]] = Bounded(READ, READ_BYTES)


def shown_parts(message: Message, least: int) -> tuple[ShownPart, ...]:
    """The texts of a message's results that may be edited and have `least` characters. Cached."""
    key = hash((message.raw, least))  # keyed in each process; that of the bytes is computed once for all who ask
    found = SHOWN.get(key)
    if found is None:
        found = tuple(_read(message, least))
        SHOWN.put(key, found, ENTRY + sum([ENTRY + LINE * len(part.shown.contents) for part in found]))
    return found


def _read(message: Message, least: int) -> Iterator[ShownPart]:
    parts = message.parts()
    answers = [part.call for part in parts if part.kind is not PartKind.CALL]
    for place, part in enumerate(parts):
        if part.kind is PartKind.RESULT and part.editable and len(part.text) >= least:
            start = part.text[:START].lstrip().casefold()
            json = start[:1] + part.text[-START:].rstrip()[-1:] in ("[]", "{}")
            yield ShownPart(place, part.call, shown(part.text), start, answers.count(part.call) == 1, json)


def shown(text: str) -> Shown:
    """The lines of a text; one with more than `MOST_LINES` is one line."""
    if text.count("\n") >= MOST_LINES:
        return Shown(hash(text), array("q", [hash(text)]), array("q"), array("q", [len(text)]))
    lines = text.split("\n")
    sizes = array("q", [len(line) + 1 for line in lines])
    if is_numbered(lines):
        matches = [NUMBER.match(line) for line in lines]
        numbers = array("q", [NONE if m is None else int(m["named"] or m["plain"]) for m in matches])
        pairs = list(pairwise([number for number in numbers if number != NONE]))
        ordered = sum([after == before + 1 for before, after in pairs])
        some = sum([bool(line.strip()) for line in lines])
        if len(pairs) + 1 >= NUMBERED * some and ordered >= IN_ORDER * len(pairs):
            contents = [line if m is None else line[m.end() :] for line, m in zip(lines, matches, strict=True)]
            return _shown(text, contents, numbers, sizes)
    return _shown(text, lines, array("q"), sizes)


def _shown(text: str, contents: Sequence[str], numbers: Sequence[int], sizes: Sequence[int]) -> Shown:
    keys = array("q", map(hash, contents))
    each = zip(numbers or [NONE] * len(keys), keys, sizes, strict=True)
    lines = frozenset([line_key(number, key) for number, key, size in each if size > PLAIN or number != NONE])
    return Shown(hash(text), keys, numbers, sizes, lines)


def line_key(number: int, content: int) -> int:
    """A key of a line with its number."""
    return hash((number, content))


def is_numbered(lines: Sequence[str]) -> bool:
    """Whether a text may have numbers before its lines, by its first lines."""
    first = [line for line in lines[: 2 * SAMPLE] if line.strip()][:SAMPLE]
    return sum([NUMBER.match(line) is not None for line in first]) >= FEW
