"""Finds the names of the files that the lines of a text are from: before a fence, in a heading, in a tag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.fit.relevance.text.outline import NAME, Outline

PATH = r"(?:[\w.@~+-]*[/\\])*+[\w@~+-][\w.@~+-]*\.[A-Za-z]\w{0,9}|(?:[\w.@~+-]*[/\\])++[\w@~+-][\w.@~+-]*"
# A line with nothing but a path and a word that says what it is: "### `a.py`", "File: a.py", "<source>a.py</source>".
NAMING = re.compile(rf"[^\w/~.]*(?:\w+[^\w/~.]+)?(?P<path>{PATH})(?:</\w+>|[^\w<])*\Z")
ATTRIBUTE = re.compile(rf"=\s*[\"']?(?P<path>{PATH})[\"'\s>]")


@dataclass(frozen=True, slots=True)
class FileNames:
    """`of`: for each line the file that it is from, empty for none. `naming`: the lines that only name a file."""

    of: Sequence[str]
    naming: frozenset[int]


def file_names(texts: Sequence[str], outline: Outline) -> FileNames:
    """The files of the lines of a text."""
    found: list[str] = []
    naming: set[int] = set()
    for place, parent in enumerate(outline.parents):
        name, line = _opened(texts, outline, place) if place in outline.until else ("", -1)
        if name:
            naming.add(line)
        found.append(name or (found[parent] if parent >= 0 else ""))
    return FileNames(found, frozenset(naming))


def _opened(texts: Sequence[str], outline: Outline, place: int) -> tuple[str, int]:
    """The file that begins with a line, and the line that names it."""
    if place in outline.headings:
        return _named(texts[place]), place
    if place in outline.defined:
        return "", place
    if texts[place].lstrip().startswith("<"):
        found = ATTRIBUTE.search(texts[place][:NAME])
        inner = _named(texts[place + 1]) if found is None and place + 1 < len(texts) else ""
        return (found["path"], place) if found else (inner, place + 1)
    return (_named(texts[place - 1]), place - 1) if outline.parents[place] == place - 1 else ("", place)


def _named(line: str) -> str:
    """The path in a line that only names a file."""
    found = NAMING.match(line) if len(line) <= NAME else None
    return found["path"] if found else ""
