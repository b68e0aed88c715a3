"""Splits a text into its lines, and a long line into chunks, so that one line cannot take all the room."""

from __future__ import annotations

import re

import msgspec

LONG, CHUNK = 1000, 400  # characters: a line over LONG is split, so that one line cannot take all the room
LINES = 20_000  # lines of a text that are considered
CHUNKS = re.compile(rf".{{1,{CHUNK}}}(?:\s|$)|.{{1,{CHUNK}}}", re.DOTALL)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line, or a chunk of a long one. `starts` is the number of lines of the text that begin in it."""

    text: str
    starts: int


def lines_of(text: str) -> list[Line]:
    """The lines of a text. If there are more than `LINES`, those in the middle become one line with their number,
    because each takes 300 bytes of memory here."""
    found: list[Line] = []
    for line in _split(text):
        if isinstance(line, int):
            found.append(Line(f"… {line} lines …", line))
        elif len(line) <= LONG:
            found.append(Line(line, 1))
        else:
            found += [Line(chunk, int(place == 0)) for place, chunk in enumerate(CHUNKS.findall(line))]
    return found


def _split(text: str) -> list[str | int]:
    """The lines; a number stands for so many omitted lines."""
    if text.count("\n") < LINES:
        return [*text.split("\n")]
    *head, rest = text.split("\n", LINES // 2)
    middle, *tail = rest.rsplit("\n", LINES // 2)
    return [*head, middle.count("\n") + 1, *tail]
