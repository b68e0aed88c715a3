"""Finds the clauses of a text that have the signs of something: of an order, of a change. It claims nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proxy.fit.relevance.text.clauses import clauses_in, is_question
from proxy.model.conventions import Signs

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?(?:-[^\W\d_]+)?")
HEAD = re.compile(r"\s*(?:[\[(][^\])\n]{1,60}[\])]\s*)?(?:[-*•–]\s+|\(?\w{1,2}[.)]\s+)?")  # a date, the mark of a list
SEGMENT = re.compile(r"[,;:–—，、；] ?|(?: - )")  # behind it a part of a clause may begin as a clause does
LETTERS = re.compile(r"[a-z]+")
ESCAPED = re.compile(rb"\\[^u]")  # in JSON: no letter, but one of a character by its number may be one
BREAKS = bytes(c if chr(c).isalpha() else ord(" ") for c in range(128)) + bytes(128)
UNBROKEN = "\u2e80"  # the first character of scripts without blanks
LONGEST = 600  # characters of a clause that is read
MOST_RAW = 1 << 16  # bytes of a message whose words are found in its JSON: to replace escapes takes 60 bytes for each
QUOTED = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*>.*$|<([a-z][\w-]*)[^<>]*>.*?</\1>"
    r"|\"[^\"\n]{12,}?\"|“[^”\n]{12,}?”|„[^“\n]{12,}?“|«[^»\n]{12,}?»|「[^」\n]{6,}?」",
    re.S | re.M,
)


class _Language:
    """The signs of one language, ready to be found."""

    def __init__(self, signs: Signs) -> None:
        firsts = [pattern[1:] for pattern in signs.patterns if pattern.startswith("^")]
        others = [pattern for pattern in signs.patterns if not pattern.startswith("^")]
        self.words = frozenset(word for word in signs.words if word < UNBROKEN)
        self.parts = tuple(word for word in signs.words if word >= UNBROKEN)
        self._start = re.compile(signs.start, re.I)
        self._first = re.compile("|".join(f"(?:{each})" for each in firsts), re.I) if firsts else None
        self._other = re.compile("|".join(f"(?:{each})" for each in others), re.I) if others else None

    def has(self, clause: str) -> bool:
        """Whether a clause has a sign."""
        if self._other is not None and self._other.search(clause):
            return True
        if self._first is None or is_question(clause):
            return False
        starts = [0, *(match.end() for match in SEGMENT.finditer(clause))]
        return any(
            self._first.match(clause, at) or self._first.match(clause, self._behind(clause, at)) for at in starts
        )

    def _behind(self, clause: str, at: int) -> int:
        match = self._start.match(clause, at)
        return match.end() if match else at


class SignReader:
    """Finds clauses with the signs of some languages."""

    def __init__(self, signs: Sequence[Signs]) -> None:
        self._languages = tuple(map(_Language, signs))
        words = [word for each in self._languages for word in each.words if word.isascii()]
        self._firsts = frozenset(match[0].encode() for match in map(LETTERS.match, words) if match)

    def may_be_in(self, words: Sequence[bytes] | None) -> bool:
        """Whether a message of these words (`words_in`) may have words of any of the languages. Only a no is sure."""
        return words is None or not self._firsts.isdisjoint(words)

    def clauses(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the clauses with signs as (start, end) in characters. What is quoted has none."""
        plain = text.replace("’", "'")
        found = self._spoken(plain.casefold(), self._languages)
        if not found:
            return
        own = QUOTED.sub(lambda match: " " * len(match[0]), plain)
        for start, end in clauses_in(plain):
            head = HEAD.match(own, start, end)
            clause = own[head.end() if head else start : end]
            if len(clause) <= LONGEST and any(each.has(clause) for each in self._spoken(clause.casefold(), found)):
                yield start, end

    @staticmethod
    def _spoken(text: str, languages: Sequence[_Language]) -> list[_Language]:
        """Those of the languages that have a word of theirs in a text in lower case."""
        words = set(WORD.findall(text))
        plain = text.isascii()
        return [
            each
            for each in languages
            if not each.words.isdisjoint(words) or (not plain and any(part in text for part in each.parts))
        ]


def words_in(raw: bytes) -> list[bytes] | None:
    """The words of a message in JSON, in lower case, without decoding it: in a tenth of the time. None where they may
    be others than those of its text, because it is not ASCII, and of a very long one."""
    if len(raw) > MOST_RAW:
        return None
    plain = ESCAPED.sub(b" ", raw) if b"\\" in raw else raw
    return plain.lower().translate(BREAKS).split() if plain.isascii() and b"\\" not in plain else None
