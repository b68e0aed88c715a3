"""Splits a long text into passages: its lines, or pieces of a very long line. Joined, they are the text again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

LONG, CHUNK = 1500, 400  # characters: a line over LONG is split into pieces of at most CHUNK
BLANK = 1000  # blank lines with a line at most; each match holds the GIL
LINES = 20_000  # passages of a text; in a text of more lines a passage is several of them, because each takes memory
# A line with the blank lines after it: alone those are worth nothing, and leaving them out would cost a note.
LINE = re.compile(rf"[^\n]*+(?:\n|\Z)(?:[ \t\r]*+\n){{0,{BLANK}}}+")
# Where a piece may end: after a sentence, in any script, or after a statement of minified code.
END = re.compile(r"[.!?:]\s|[。！？；;}]")


class Passage(msgspec.Struct, frozen=True, gc=False):
    """A piece of a text, with its line break. `line`: the number of the line in which it begins, from 1. `starts`: how
    many lines begin in it; 0 for a piece inside a line."""

    text: str
    line: int
    starts: int


def split(text: str, cuts: Sequence[int] = ()) -> list[Passage]:
    """The passages of a text, in order. `cuts`: in ascending order, characters at which one begins in any case."""
    found: list[Passage] = []
    line = 1
    for start, end in pairwise((0, *cuts, len(text))):
        inside = 1 if start and text[start - 1] != "\n" else 0  # the first line began before it
        line -= inside
        own = _passages(text[start:end], line)
        if own and inside:
            own[0] = Passage(own[0].text, line, own[0].starts - 1)
        found += own
        line += sum(passage.starts for passage in own) + inside
    return found


def _passages(text: str, line: int) -> list[Passage]:
    """The passages of a text whose first line has this number."""
    found: list[Passage] = []
    for whole, single in _groups(text, text.count("\n") // LINES + 1):
        starts = whole.count("\n") or 1
        if len(whole) <= LONG or not single:
            found.append(Passage(whole, line, starts))
        else:
            first, *others = _pieces(whole)
            found += [Passage(first, line, starts), *(Passage(piece, line, 0) for piece in others)]
        line += starts
    return found


def _groups(text: str, step: int) -> Iterator[tuple[str, bool]]:
    """The lines of a text, `step` of them at a time but a long one alone, and whether it is a single one. The lines are
    found one by one, because a call for all would hold the GIL."""
    start = held = 0
    for match in LINE.finditer(text):
        low, high = match.span()
        if held and (held == step or high - low > LONG or low == high or low - start > LONG * held):
            yield text[start:low], held == 1
            start, held = low, 0
        held += 1


def _pieces(line: str) -> Iterator[str]:
    """A long line in pieces that end after a sentence, else at a blank, else anywhere."""
    start = 0
    while len(line) - start > CHUNK:
        limit = start + CHUNK
        ends = [match.end() for match in END.finditer(line, start + CHUNK // 2, limit)]
        end = ends[-1] if ends else line.rfind(" ", start, limit) + 1 or limit
        yield line[start:end]
        start = end
    yield line[start:]
