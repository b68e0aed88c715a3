"""Ranks the older blocks of an agent's run for its current task. It chooses none of them (see `replay`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from proxy.fit.relevance.text.bm25 import Document, Index, Query, query
from proxy.fit.relevance.text.reading import Reading
from proxy.fit.relevance.text.words import KNOWN_ENGLISH

B = 0.5  # BM25's length normalisation: blocks differ more in length than chat messages (measured)
ACTIONS = 3  # latest actions of the assistant that are part of the query
REUSE = 5.0  # weight of reuse against the best match (measured): what was used again will be used again
NEW = 8.0  # weight of what the assistant named and no kept block tells yet, against the best match (measured)
COST_EXPONENT = 0.3  # preference for short blocks: score / tokens ** this


class Reuse:
    """Counts for each block how often the assistant later used an identifier that the block was the first to contain.

    Blocks must be added in order. `named`: the identifiers that the assistant used in each block. `uses`: in how many
    blocks it used each.
    """

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._times: list[int] = []
        self.named: list[set[str]] = []
        self.uses: Counter[str] = Counter()

    def add(self, document: Document, spoken: Iterable[Reading]) -> None:
        """Adds the next block: the readings of all its messages, and of those the assistant's."""
        place = len(self._times)
        self._times.append(0)
        named = {name for reading in spoken for name in reading.names}
        self.named.append(named)
        self.uses.update(named)
        for name in named:
            first = self._first.get(name)
            if first is not None:
                self._times[first] += 1
        for reading in document:
            for name in reading.names:
                self._first.setdefault(name, place)

    def __getitem__(self, place: int) -> int:
        return self._times[place]


class News:
    """What a block would tell besides the kept blocks: how often the assistant used the identifiers that it used in the
    block and that no kept block contains, as a share of the most among `places`.

    What was used often is used again, and one of the blocks that tell it is enough.
    """

    def __init__(self, reuse: Reuse, known: Iterable[str], places: Iterable[int]) -> None:
        self._reuse = reuse
        self._known = set(known)
        self._most = max(map(self._new, places), default=0) or 1

    def __getitem__(self, place: int) -> float:
        return self._new(place) / self._most

    def keep(self, place: int) -> None:
        """Adds a block to the kept ones."""
        self._known |= self._reuse.named[place]

    def _new(self, place: int) -> int:
        return sum([self._reuse.uses[name] for name in self._reuse.named[place] - self._known])


def asked_now(user: Reading | None, actions: Sequence[Sequence[Reading]], index: Index) -> Query:
    """The query for the current task: the words of the last user message with their occurrences, and the distinct words
    of each of the latest actions."""
    words: dict[str, float] = {}
    spoken = [reading for action in actions for reading in action]
    for reading in (user,) if user is not None else ():
        _add(words, reading.words)
    for action in actions:
        _add(words, {word: 1 for reading in action for word in reading.words})
    every = [user, *spoken] if user is not None else spoken
    english = sum(r.english for r in every) >= KNOWN_ENGLISH * max(1, sum(r.length for r in every))
    return query(words, english or index.is_english)


def _add(words: dict[str, float], more: Mapping[str, float]) -> None:
    for word, weight in more.items():
        words[word] = words.get(word, 0.0) + weight


def rank_blocks(index: Index, asked: Query, reuse: Reuse, places: Sequence[int]) -> dict[int, float]:
    """The value of each of these blocks: its BM25 score plus `REUSE` times its reuse, each as a share of the highest
    among them."""
    scores = index.scores_at(places, asked, b=B)
    best = max(scores.values(), default=0.0) or 1.0
    most = max((reuse[place] for place in places), default=0) or 1
    return {place: scores[place] / best + REUSE * reuse[place] / most for place in places}
