"""Finds the sections of a text: what stands below a heading, and the body of a definition in code.

Code is read by its indentation and its closing brackets; no parser is needed. It scores nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.fit.relevance.text.heuristics import DEFINITION, FUNCTION, NUMBERED

TITLE = re.compile(
    r"(?P<marks>#{1,6})\s+\S|(?P<numbers>\d+(?:\.\d+)*)\.?\s+[A-Z]|(?P<capitals>[A-Z][A-Z0-9 _-]{3,60}\Z)"
)
UNDERLINE = re.compile(r"(=|-|~){3,}\s*\Z")
DEFINED = re.compile(rf"{DEFINITION.pattern}[\s*&]*(?:\([^)\n]*\)\s*)?(?P<defined>[\w$]+)")
CLOSING = (")", "]", "}", "{", "end", "else", "elif", "except", "finally", "catch")  # lines of a body at its own indent
LEVELS = {"=": 1, "-": 2, "~": 3}


@dataclass(frozen=True, slots=True)
class Section:
    """Lines `first` to `end` (exclusive) of a text; the first is the heading or the definition. `name`: what is
    defined; empty for a heading."""

    first: int
    end: int
    name: str = ""


def sections(texts: Sequence[str]) -> list[Section]:
    """The sections of a text, given as its lines, in the order of their first lines. They may contain others."""
    bare = [NUMBERED.sub("", text, count=1) for text in texts]
    return sorted([*_headed(bare), *_defined(bare)], key=lambda section: section.first)


def _headed(lines: Sequence[str]) -> Iterator[Section]:
    """The sections below headings: each ends where a heading of its level or above follows."""
    found = [(place, level) for place, line in enumerate(lines) if (level := _level(lines, place, line))]
    opened: list[tuple[int, int]] = []
    for place, level in [*found, (len(lines), 0)]:
        while opened and opened[-1][1] >= level:
            yield Section(opened.pop()[0], place)
        opened.append((place, level))


def _level(lines: Sequence[str], place: int, line: str) -> int:
    """The level of a heading, from 1; 0 for any other line."""
    below = UNDERLINE.match(lines[place + 1]) if place + 1 < len(lines) else None
    if below and line[:1].isalnum() and len(line) <= len(lines[place + 1]) + 2:
        return LEVELS[below[1]]
    title = TITLE.match(line)
    if title is None or (place and lines[place - 1].strip() and not title["marks"]):
        return 0
    return len(title["marks"] or "") or (title["numbers"] or "").count(".") + 1


def _defined(lines: Sequence[str]) -> Iterator[Section]:
    """The definitions of code with their bodies."""
    for place, line in enumerate(lines):
        bare = line.lstrip(" \t")
        below = lines[place + 1].strip() if place + 1 < len(lines) else ""
        found = DEFINED.match(bare) or FUNCTION.match(f"{bare} {{" if below == "{" else bare)
        if found:
            end = _end(lines, place, len(line) - len(bare))
            if end > place + 1:
                yield Section(place, end, found["defined"])


def _end(lines: Sequence[str], first: int, indent: int) -> int:
    """The end of the body of a definition: what is blank, indented more, or closes it."""
    end = first + 1
    for place in range(first + 1, len(lines)):
        bare = lines[place].lstrip(" \t")
        inner = len(lines[place]) - len(bare) > indent
        if bare and not inner and not (len(lines[place]) - len(bare) == indent and bare.startswith(CLOSING)):
            break
        if bare:
            end = place + 1
        if bare.startswith("}") and not inner:
            break
    return end
