"""Finds what a line stands under: headings, file names and fences, tags, definitions of code. It scores nothing.

Code is read by its indentation and its closing brackets; no parser is needed. Time and memory are linear in the text.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from proxy.fit.relevance.text.heuristics import DEFINITION, FUNCTION, NUMBERED

HEADING = re.compile(
    r"(?P<marks>#{1,6})[ \t]+\S|(?P<numbers>\d++(?:\.\d++)*+)\.?[ \t]++[A-Z]|(?P<capitals>[A-Z][A-Z0-9 _-]{3,60}\s*\Z)"
)
UNDERLINE = re.compile(r"(=|-|~)\1\1+\s*\Z")
MARKED = 6  # the deepest level of a heading with marks or a line below; others stand under these
UNDERLINED = {"=": 1, "-": 2, "~": 3}  # levels
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)")
TAG = re.compile(r"[ \t]*<([A-Za-z][\w:.-]*)(?:\s[^<>\n]*)?>\s*\Z")
END_TAG = re.compile(r"[ \t]*</([A-Za-z][\w:.-]*)>\s*\Z")
DEFINED = re.compile(rf"{DEFINITION.pattern}(?:[ \t*&]*(?:\([^)\n]*\)[ \t]*)?(?P<defined>[\w$]+))?")
CLOSING = (")", "]", "}", "{", "end", "else", "elif", "except", "finally", "catch")  # lines of a body at its own indent
STARTS_WITH_DIGIT = re.compile(r"\s*+\d")
# Lines that may open a scope; most texts have few, and other lines outside of scopes are not looked at.
OPENS = re.compile(rf"[ \t]*(?:[#`~<]|\d|[A-Z]{{2}}|{DEFINITION.pattern})")
NAME = 200  # characters of a line directly before a fence, up to which it names what is fenced: a file's path
DEEPEST = 4  # enclosing lines that stay with a passage: the nearest ones tell where it is


class Kind(Enum):
    """What encloses lines."""

    FENCE = auto()
    TAG = auto()
    HEADING = auto()
    DEFINITION = auto()


Scope = tuple[Kind, str | int, int]  # kind; fence, name of a tag, level of a heading or indent; the line that opens it


@dataclass(frozen=True, slots=True)
class Outline:
    """Of the lines of a text, by index. `parents`: the line that each stands under, -1 for none. `ends`: of a fence or
    a tag the line that closes it. `headings`: the level of each, from 1. `defined`: the name of each definition with a
    body, empty if it has none. `until`: for each line that encloses others, the one after the last of these."""

    parents: Sequence[int]
    ends: Mapping[int, int]
    headings: Mapping[int, int]
    defined: Mapping[int, str]
    until: Mapping[int, int]

    def above(self, place: int) -> list[int]:
        """The lines that must stay with a line: those that it stands under, and what closes them."""
        found: list[int] = []
        for _ in range(DEEPEST):
            if place in self.ends:
                found.append(self.ends[place])
            place = self.parents[place]
            if place < 0:
                break
            found.append(place)
        return found


def outline(texts: Sequence[str], starts: Sequence[int], *, titles: bool = False) -> Outline:
    """The outline of a text, given as its lines. A line may have its line break and blank lines behind it; one with a
    false value in `starts` is a piece of the line before it. `titles`: lines that are underlined, numbered or in
    capitals are headings too, as in manuals."""
    reader = _Reader(texts, starts, titles)
    for place in range(len(texts)):
        reader.read(place)
    while reader.scopes:
        reader.leave(len(texts))
    return Outline(reader.parents, reader.ends, reader.headings, reader.defined, reader.until)


class _Reader:
    """Reads lines in order. `scopes` are those that enclose the current one."""

    def __init__(self, texts: Sequence[str], starts: Sequence[int], titles: bool) -> None:
        self.texts = [NUMBERED.sub("", text, count=1) if STARTS_WITH_DIGIT.match(text) else text for text in texts]
        self.starts, self.titles = starts, titles
        self.closed = {match[1] for text in self.texts if (match := END_TAG.match(text))}
        self.parents = array("i")
        self.ends: dict[int, int] = {}
        self.closers: set[int] = set()
        self.headings: dict[int, int] = {}
        self.defined: dict[int, str] = {}
        self.until: dict[int, int] = {}
        self.scopes: list[Scope] = []
        self.tags: Counter[str | int] = Counter()  # the open ones
        self.fence = ""
        self.last = -1  # the last line that is not blank

    def read(self, place: int) -> None:
        """Adds the parent of a line, and opens or closes the scopes that begin or end with it."""
        text = self.texts[place]
        if not (self.starts[place] and text.strip()):
            self._under()
            return
        if self.scopes or OPENS.match(text) or self._is_underlined(place) or _opens_body(self.texts, place):
            self._read(text, place)
        else:
            self._under()
        self.last = place

    def leave(self, until: int) -> Scope:
        """Closes the innermost scope before the line `until`."""
        scope = self.scopes.pop()
        kind, depth, place = scope
        if kind is Kind.TAG:
            self.tags[depth] -= 1
        if kind is Kind.DEFINITION and (until := min(until, self.last + 1)) == place + 1:
            del self.defined[place]
        self.until[place] = until
        return scope

    def _read(self, text: str, place: int) -> None:
        if not self._fenced(text, place) and (
            self.fence or not (self._tagged(text, place) or self._headed(text, place))
        ):
            self._coded(text, place)

    def _under(self) -> None:
        self.parents.append(self.scopes[-1][2] if self.scopes else -1)

    def _open(self, kind: Kind, depth: str | int, place: int) -> None:
        self._under()
        self.scopes.append((kind, depth, place))

    def _close(self, kind: Kind, depth: str | int, place: int) -> None:
        """Closes the innermost open scope of this kind and depth, and those in it; the line belongs to it."""
        while (scope := self.leave(place))[:2] != (kind, depth):
            pass
        self.ends[scope[2]] = place
        self.closers.add(place)
        self.parents.append(scope[2])

    def _fenced(self, text: str, place: int) -> bool:
        match = FENCE.match(text)
        if match is None:
            return False
        if self.fence:
            if not match[1].startswith(self.fence) or match[2].strip():
                return False
            self._close(Kind.FENCE, self.fence, place)
            self.fence = ""
            return True
        self.fence = match[1]
        self._leave_definitions()
        if self._is_named(place):
            self.parents.append(place - 1)
            self.scopes.append((Kind.FENCE, self.fence, place))
        else:
            self._open(Kind.FENCE, self.fence, place)
        return True

    def _is_named(self, place: int) -> bool:
        """Whether the line before a fence may name what is fenced: a short line without a blank line after it."""
        before = self.texts[place - 1] if place else ""
        short = bool(before.strip()) and len(before) <= NAME and before.count("\n") <= 1
        return short and place - 1 not in self.closers

    def _tagged(self, text: str, place: int) -> bool:
        if (match := END_TAG.match(text)) and self.tags[match[1]]:
            self._close(Kind.TAG, match[1], place)
            return True
        if (match := TAG.match(text)) and match[1] in self.closed:
            self._leave_definitions()
            self._open(Kind.TAG, match[1], place)
            self.tags[match[1]] += 1
            return True
        return False

    def _headed(self, text: str, place: int) -> bool:
        level = self._level(text, place)
        if not level:
            return False
        self._leave_definitions()
        while self.scopes and self.scopes[-1][0] is Kind.HEADING and _at_least(self.scopes[-1][1], level):
            self.leave(place)
        self.headings[place] = level
        self._open(Kind.HEADING, level, place)
        return True

    def _level(self, text: str, place: int) -> int:
        """The level of a heading, from 1; 0 for any other line."""
        if self._is_underlined(place):
            return UNDERLINED[self.texts[place + 1][0]]
        match = HEADING.match(text)
        if match is None or not self._may_head(place):
            return 0
        if match["marks"]:
            return len(match["marks"])
        if not self.titles:
            return 0
        return MARKED + 1 + (match["numbers"].count(".") + 1 if match["numbers"] else 0)

    def _is_underlined(self, place: int) -> bool:
        """Whether a line has a line of signs below it that is about as long."""
        below = self.texts[place + 1] if self.titles and place + 1 < len(self.texts) else ""
        if below[:3] not in ("===", "---", "~~~") or not UNDERLINE.match(below):
            return False
        text = self.texts[place]
        return text[:1].isalnum() and text.count("\n") <= 1 and len(text.rstrip()) <= len(below.rstrip()) + 2

    def _may_head(self, place: int) -> bool:
        """Whether a heading may stand here: after a blank line or a tag. A comment in code as a rule has none before
        it."""
        if place == 0 or (self.scopes and self.scopes[-1][0] is Kind.TAG and self.scopes[-1][2] == place - 1):
            return True
        before = self.texts[place - 1]
        return before.count("\n") > 1 or not before.strip()

    def _coded(self, text: str, place: int) -> None:
        """Reads a line that is none of these: of code, as far as it is code."""
        bare = text.lstrip(" \t")
        indent = len(text) - len(bare)
        self._leave_definitions(indent, bare, place)
        found = DEFINED.match(bare)
        if found is None and _opens_body(self.texts, place):
            found = FUNCTION.match(bare if bare.rstrip().endswith("{") else f"{bare.rstrip()} {{")
        if found is None:
            self._under()
        else:
            self._open(Kind.DEFINITION, indent, place)
            self.defined[place] = found["defined"] or ""

    def _leave_definitions(self, indent: int = 0, line: str = "", place: int = 0) -> None:
        """Closes the definitions that end before a line with this indent, or with it."""
        while self.scopes and self.scopes[-1][0] is Kind.DEFINITION and _at_least(self.scopes[-1][1], indent):
            if self.scopes[-1][1] == indent and line.startswith(CLOSING):
                if line.startswith("}"):
                    self.last = place
                    self.leave(place + 1)
                return
            self.leave(self.last + 1)


def _at_least(depth: str | int, least: int) -> bool:
    return isinstance(depth, int) and depth >= least


def _opens_body(texts: Sequence[str], place: int) -> bool:
    """Whether a line ends with the bracket that opens a body, or has it alone below."""
    return texts[place].rstrip().endswith("{") or (place + 1 < len(texts) and texts[place + 1].strip() == "{")
