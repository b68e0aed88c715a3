"""Finds what a passage stands under: headings, file names and fences, tags, definitions of code. It scores nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.fit.relevance.passages.splitting import Passage
from proxy.fit.relevance.text.heuristics import DEFINITION, LINE_KIND

HEADING = re.compile(r"(#{1,6})[ \t]+\S")
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)")
TAG = re.compile(r"[ \t]*<([A-Za-z][\w:.-]*)(?:\s[^<>\n]*)?>\s*\Z")
END_TAG = re.compile(r"[ \t]*</([A-Za-z][\w:.-]*)>\s*\Z")
# Lines that may open a scope; most texts have few, and other lines outside of scopes are not looked at.
OPENS = re.compile(rf"[ \t]*(?:[#`~<]|\d|{DEFINITION.pattern})")
NAME = 200  # characters of a line directly before a fence, up to which it names what is fenced: a file's path
DEEPEST = 4  # enclosing lines that stay with a passage: the nearest ones tell where it is


@dataclass(frozen=True, slots=True)
class Outline:
    """`parents`: for each passage the index of the line that it stands under, -1 for none. `ends`: for a fence or a
    tag the index of the line that closes it. `headings`: the level of each heading, from 1."""

    parents: Sequence[int]
    ends: Mapping[int, int]
    headings: Mapping[int, int]

    def above(self, place: int) -> list[int]:
        """The lines that must stay with a passage: those that it stands under, and what closes them."""
        found: list[int] = []
        for _ in range(DEEPEST):
            if place in self.ends:
                found.append(self.ends[place])
            place = self.parents[place]
            if place < 0:
                break
            found.append(place)
        return found


def outline(passages: Sequence[Passage]) -> Outline:
    """The outline of a text."""
    reader = _Reader(passages)
    for place in range(len(passages)):
        reader.read(place)
    return Outline(reader.parents, reader.ends, reader.headings)


class _Reader:
    """Reads passages in order. `scopes` are the lines that enclose the current one: (kind, depth, index)."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.closed = {match[1] for passage in passages if (match := END_TAG.match(passage.text))}
        self.parents: list[int] = []
        self.ends: dict[int, int] = {}
        self.headings: dict[int, int] = {}
        self.scopes: list[tuple[str, str | int, int]] = []
        self.fence = ""

    def read(self, place: int) -> None:
        """Adds the parent of a passage, and opens or closes the scopes that begin or end with it."""
        text = self.passages[place].text
        if not self.passages[place].starts or not (self.scopes or OPENS.match(text)):
            self._under()
        elif not self._fenced(text, place) and (
            self.fence or not (self._tagged(text, place) or self._headed(text, place))
        ):
            self._defined(text, place)

    def _under(self) -> None:
        self.parents.append(self.scopes[-1][2] if self.scopes else -1)

    def _open(self, kind: str, depth: str | int, place: int) -> None:
        self._under()
        self.scopes.append((kind, depth, place))

    def _close(self, kind: str, depth: str | int, place: int) -> None:
        """Closes the innermost open scope of this kind and depth, and those in it; the line belongs to it."""
        opened = -1
        while opened < 0:
            found, at, inner = self.scopes.pop()
            opened = inner if (found, at) == (kind, depth) else -1
        self.ends[opened] = place
        self.parents.append(opened)

    def _fenced(self, text: str, place: int) -> bool:
        match = FENCE.match(text)
        if match is None:
            return False
        if self.fence:
            if not match[1].startswith(self.fence) or match[2].strip():
                return False
            self._close("fence", self.fence, place)
            self.fence = ""
            return True
        self.fence = match[1]
        self._drop_definitions(0)
        before = place - 1
        if before >= 0 and _names(self.passages[before]) and before not in self.ends.values():
            self.parents.append(before)
            self.scopes.append(("fence", self.fence, place))
        else:
            self._open("fence", self.fence, place)
        return True

    def _tagged(self, text: str, place: int) -> bool:
        if (match := END_TAG.match(text)) and any(scope[:2] == ("tag", match[1]) for scope in self.scopes):
            self._close("tag", match[1], place)
            return True
        if (match := TAG.match(text)) and match[1] in self.closed:
            self._drop_definitions(0)
            self._open("tag", match[1], place)
            return True
        return False

    def _headed(self, text: str, place: int) -> bool:
        match = HEADING.match(text)
        if match is None or not self._may_head(place):
            return False
        level = len(match[1])
        while (
            self.scopes
            and self.scopes[-1][0] != "tag"
            and (self.scopes[-1][0] != "heading" or _at_least(self.scopes[-1][1], level))
        ):
            self.scopes.pop()
        self.headings[place] = level
        self._open("heading", level, place)
        return True

    def _may_head(self, place: int) -> bool:
        """Whether a heading may stand here: after a blank line or a tag. A comment in code as a rule has none before
        it."""
        tagged = bool(self.scopes) and self.scopes[-1][0] == "tag" and self.scopes[-1][2] == place - 1
        return tagged or place == 0 or _ends_paragraph(self.passages[place - 1])

    def _defined(self, text: str, place: int) -> None:
        found = LINE_KIND.match(text)
        indent = len(text) - len(text.lstrip(" \t"))
        self._drop_definitions(indent)
        if found is not None and found.lastgroup == "defines":
            self._open("definition", indent, place)
        else:
            self._under()

    def _drop_definitions(self, indent: int) -> None:
        while self.scopes and self.scopes[-1][0] == "definition" and _at_least(self.scopes[-1][1], indent):
            self.scopes.pop()


def _at_least(depth: str | int, least: int) -> bool:
    return isinstance(depth, int) and depth >= least


def _names(passage: Passage) -> bool:
    """Whether a line may name what is fenced after it: a short line without a blank line after it."""
    return bool(passage.text.strip()) and len(passage.text) <= NAME and passage.text.count("\n") == 1


def _ends_paragraph(passage: Passage) -> bool:
    """Whether a blank line follows a passage."""
    return passage.text.count("\n") > 1 or not passage.text.strip()
