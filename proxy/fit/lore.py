"""Entries of lorebooks, and which of them a text calls for by their keys; it ranks nothing and reads no file.

Keys are matched as SillyTavern does by default: whole words, capitals or not. A key is never read as a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from proxy.fit.relevance.text.words import UNSPACED

LOREBOOKS = "lorebooks"  # the facts' knowledge under this name: the entries that a request asks for
LETTER = re.compile(rf"(?![{UNSPACED}])\w")  # next to one of these a word goes on; other scripts part no words


class Logic(IntEnum):
    """What an entry's secondary keys must do once a primary one is there; SillyTavern's numbers."""

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
    """One entry: what it says, and what calls for it. `title` is shown before it (a Markdown heading). `constant`: it
    is called for always. `searched`: relevance calls for it too, not its keys alone. Of equals the highest `order`
    comes first."""

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
        """What the model is shown of it."""
        return f"{self.title}: {self.content}" if self.title else self.content


def is_called(entry: Entry, text: str) -> bool:
    """Whether a text (in lower case, as `str.casefold` makes it) calls for an entry."""
    if entry.constant:
        return True
    if not any(is_named(key, text) for key in entry.keys):
        return False
    found = [is_named(key, text) for key in entry.secondary]
    return not found or VERDICTS[entry.logic](found)


def is_named(key: str, text: str) -> bool:
    """Whether a key stands in a text (in lower case) as a whole word, or words."""
    key = key.casefold().strip()
    start = text.find(key) if key else -1
    while start >= 0:
        end = start + len(key)
        if not _goes_on(text, start) and not _goes_on(text, end):
            return True
        start = text.find(key, start + 1)
    return False


def _goes_on(text: str, place: int) -> bool:
    """Whether a word goes on from the character before a place to the one behind it."""
    return 0 < place < len(text) and all(LETTER.match(c) for c in text[place - 1 : place + 1])
