"""Ranks the older blocks of an agent's run for what it is about to do; it chooses none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proxy.fit.relevance.text.bm25 import Document, Index, Query, query
from proxy.fit.relevance.text.reading import Reading
from proxy.fit.relevance.text.words import KNOWN_ENGLISH

B = 0.5  # blocks differ in length more than chat messages do (measured)
ACTIONS = 3  # the last so many actions of the assistant tell what it is at
REUSE = 5.0  # weight of the prior beside the best match (measured): what was used again will be used again
COST_EXPONENT = 0.3  # how much cheaper blocks are preferred


class Reuse:
    """How often what a block was first to name the assistant named again later. Blocks are added in their order."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._times: list[int] = []

    def add(self, document: Document, spoken: Iterable[Reading]) -> None:
        """The next block: all of its messages, and of those the assistant's own."""
        place = len(self._times)
        self._times.append(0)
        for name in {name for reading in spoken for name in reading.names}:
            first = self._first.get(name)
            if first is not None:
                self._times[first] += 1
        for reading in document:
            for name in reading.names:
                self._first.setdefault(name, place)

    def __getitem__(self, place: int) -> int:
        return self._times[place]


def asked_now(user: Reading | None, actions: Sequence[Sequence[Reading]], index: Index) -> Query:
    """What the run is at: the words of the last user message, and those of the last actions, each action's once."""
    words: dict[str, float] = {}
    spoken = [reading for action in actions for reading in action]
    for reading in (user,) if user is not None else ():
        _add(words, dict(zip(reading.words, reading.counts, strict=True)))
    for action in actions:
        _add(words, {word: 1 for reading in action for word in reading.words})
    every = [user, *spoken] if user is not None else spoken
    english = sum(r.english for r in every) >= KNOWN_ENGLISH * max(1, sum(r.length for r in every))
    return query(words, english or index.is_english)


def _add(words: dict[str, float], more: Mapping[str, float]) -> None:
    for word, weight in more.items():
        words[word] = words.get(word, 0.0) + weight


def rank_blocks(index: Index, asked: Query, reuse: Reuse, places: Sequence[int]) -> dict[int, float]:
    """What each of these blocks is worth: how well it matches, and how often what it brought was needed again, both in
    units of the best of them."""
    scores = index.scores_at(places, asked, b=B)
    best = max(scores.values(), default=0.0) or 1.0
    most = max((reuse[place] for place in places), default=0) or 1
    return {place: scores[place] / best + REUSE * reuse[place] / most for place in places}
