"""Finds the short turns that may change what the best turns for a question say. It decides nothing about room.

A change often names its subject no more ("It becomes June 18."): no word of the question finds it, and what is left is
the old value alone. So a later turn that has signs of a change, and a value of the same kind as one of the best turns,
is worth a share of that turn's score. A value is a date, a number, a name, or a word near in meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from proxy.fit.relevance.text.clauses import is_question
from proxy.fit.relevance.text.question import content_words
from proxy.fit.relevance.text.reading import HEADING
from proxy.fit.relevance.text.word_table import word_table

TARGETS = 8  # best turns that may be changed
DATE, NUMBER, NAME = 1.0, 0.9, 0.7  # share of the old turn's score by the kind of value that both have
MEANING = 0.3  # cosine of two words from which they may be values of one kind
BITS = 512  # of a word's vector
NEWEST = 100  # turns with signs that are compared
WORDS = 12  # words of a turn, from which its worth falls by the square: a long one names what it is about
LEAST = 0.3  # of the best score (measured)
MONTH = re.compile(
    r"\b(?:jan|feb|mar|apr|may|mai|mag|jun|jul|aug|ago|sep|oct|okt|ott|out|nov|dec|dez|dic|янв|фев|мар|апр|мая|июн|июл|авг|"
    r"сен|окт|ноя|дек)[\w.]{0,7}\b|月",
    re.I,
)
WEEKDAY = re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\w+tag\b|\b\d{1,2}:\d\d\b", re.I)
NUMERAL = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred)\b", re.I
)
PROPER = re.compile(r"(?<=[\w,;:] )(?:[A-ZÀ-Þ][\w'-]+)|(?:Mrs?|Ms|Dr)\. [A-Z]\w+")


class _Values:
    """The values in a text without its heading."""

    def __init__(self, text: str) -> None:
        match = HEADING.match(text)
        own = text[match.end() :].strip() if match else text
        self.date = MONTH.search(own) is not None or WEEKDAY.search(own) is not None
        self.number = NUMERAL.search(own) is not None
        self.names = {name.casefold() for name in PROPER.findall(own)}
        self._own = own
        self.short = 0.0 if is_question(own) else min(1.0, WORDS / max(1, len(own.split()))) ** 2

    @cached_property
    def vectors(self) -> frozenset[int]:
        """The vectors of its words, as bits."""
        vectors = (word_table().vector(word) for word in content_words(self._own))
        return frozenset(vector for vector in vectors if vector is not None)


def changing(
    places: Collection[int], text_of: Callable[[int], str], scores: Sequence[float], most: int
) -> list[tuple[float, int]]:
    """(worth, place) of the turns among `places` that may change one of the best turns before them, the best first, at
    most `most`. `scores`: of all turns, 1 for the best."""
    best = sorted(range(len(scores)), key=[-score for score in scores].__getitem__)[:TARGETS]
    targets = [(place, scores[place], _Values(text_of(place))) for place in best if scores[place] > 0]
    found = []
    for place in sorted(places)[-NEWEST:]:
        before = [(score, values) for at, score, values in targets if at < place]
        if before:
            own = _Values(text_of(place))
            worth = own.short and own.short * max(score * _alike(own, values) for score, values in before)
            if worth >= LEAST:
                found.append((worth, place))
    return sorted(found, key=lambda each: (-each[0], -each[1]))[:most]


def _alike(one: _Values, other: _Values) -> float:
    if one.date and other.date:
        return DATE
    if one.number and other.number:
        return NUMBER
    if one.names and other.names - one.names:
        return NAME
    nearest = min([(a ^ b).bit_count() for a in one.vectors for b in other.vectors if a != b], default=BITS)
    worth = math.cos(math.pi * nearest / BITS)
    return worth if worth >= MEANING else 0.0
