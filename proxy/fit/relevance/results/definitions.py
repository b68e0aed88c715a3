"""Finds the definitions and sections of a text by name: functions, classes, types, headings. It scores nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proxy.fit.relevance.results.text_lines import lines_of
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.outline import outline
from proxy.model.bounded import Bounded

DECORATORS = ("@", "#[", "[[", "template<", "template <")  # lines before a definition that belong to it
PLACES = 3  # definitions of one name, such as a method of several classes
OUTLINES, OUTLINES_BYTES = 4096, 4 << 20
Range = tuple[int, int]
Ranges = Mapping[str, tuple[Range, ...]]
OUTLINED: Bounded[int, Ranges] = Bounded(OUTLINES, OUTLINES_BYTES)


def definitions_of(text: str) -> Ranges:
    """The definitions and sections of a text by name, each with its first line and the one after its last, as
    `lines_of` counts. Decorators belong to it. Of a name that is defined often the first `PLACES` count. Cached."""
    key = digest("definitions", text)
    found = OUTLINED.get(key)
    if found is None:
        found = _definitions(text)
        OUTLINED.put(key, found, 256 + sum(64 + len(name) for name in found))
    return found


def _definitions(text: str) -> Ranges:
    lines = lines_of(text)
    texts = [line.text for line in lines]
    seen = outline(texts, [line.starts for line in lines], titles=True)
    found: dict[str, list[Range]] = {}
    for place, name in seen.defined.items():
        if name and place in seen.until:
            first = place
            while first and bare(texts[first - 1]).startswith(DECORATORS):
                first -= 1
            found.setdefault(name, []).append((first, _last(texts, place, seen.until[place])))
    for place in seen.headings:
        title = bare(texts[place]).strip("#*=-~ \t").casefold()
        if title and place in seen.until:
            found.setdefault(title, []).append((place, _last(texts, place, seen.until[place])))
    return {name: tuple(sorted(places)[:PLACES]) for name, places in found.items()}


NUMBER = re.compile(r"\s*+\d++(?:→|\t|[|:]\s?)")


def bare(line: str) -> str:
    """A line without the number that a tool has put before it, and without its indentation."""
    return NUMBER.sub("", line, count=1).strip()


def _last(texts: list[str], place: int, until: int) -> int:
    """The end of a definition without the blank lines behind it."""
    while until > place + 1 and not bare(texts[until - 1]):
        until -= 1
    return until
