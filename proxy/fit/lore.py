"""Lorebook entries, and which of them a text activates by their keys. It ranks nothing and reads no file.

Keys are matched as SillyTavern does by default: whole words, case-insensitive. A key is never read as a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from proxy.fit.relevance.text.words import UNSPACED

LOREBOOKS = "lorebooks"  # the key in `Facts.knowledge` of the entries that the request selects
LETTER = re.compile(rf"(?![{UNSPACED}])\w")  # a word continues at these; scripts without spaces have no word boundaries


class Logic(IntEnum):
    """The condition on an entry's secondary keys once a primary key matches; SillyTavern's numbers."""

    AND_ANY = 0
    NOT_ALL = 1
    NOT_ANY = 2
    AND_ALL = 3


VERDICTS: Mapping[Logic, Callable[[Sequence[bool]], bool]] = {
    Logic.AND_ANY: any,
    Logic.NOT_ALL: lambda found: not all(found),
    Logic.NOT_ANY: lambda found: not any(found),
    Logic.AND_ALL: all,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its text and the conditions that activate it.

    `title`: shown before the content (a Markdown heading). `constant`: the entry is always active. `searched`:
    relevance activates it too, not only its keys. `order`: among equal scores, the highest comes first.
    """

    content: str
    title: str = ""
    keys: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    logic: Logic = Logic.AND_ANY
    constant: bool = False
    searched: bool = False
    order: float = 0

    @property
    def text(self) -> str:
        """The text that the model gets: title and content."""
        return f"{self.title}: {self.content}" if self.title else self.content


def is_called(entry: Entry, text: str) -> bool:
    """Whether a text (lower case, by `str.casefold`) activates an entry."""
    if entry.constant:
        return True
    if not any(is_named(key, text) for key in entry.keys):
        return False
    found = [is_named(key, text) for key in entry.secondary]
    return not found or VERDICTS[entry.logic](found)


def is_named(key: str, text: str) -> bool:
    """Whether a text (lower case) contains a key as a whole word or as whole words."""
    key = key.casefold().strip()
    start = text.find(key) if key else -1
    while start >= 0:
        end = start + len(key)
        if not _goes_on(text, start) and not _goes_on(text, end):
            return True
        start = text.find(key, start + 1)
    return False


def _goes_on(text: str, place: int) -> bool:
    """Whether the characters before and after a place belong to one word."""
    return 0 < place < len(text) and all(LETTER.match(c) for c in text[place - 1 : place + 1])
