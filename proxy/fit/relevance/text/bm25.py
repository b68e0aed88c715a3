"""BM25 over documents that come one after the other, and over what English words mean; it only ever appends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from proxy.fit.relevance.text.reading import Reading
from proxy.fit.relevance.text.word_table import word_table
from proxy.fit.relevance.text.words import FEW, KNOWN_ENGLISH, STOP, found_by, stem
from proxy.model.bounded import Bounded

K1, B = 1.2, 0.3  # measured on chats and meetings (facts); messages differ in length less than documents do
ALIKE = 0.8  # what a word counts that only means the same (measured), ...
SHARPNESS = 1.5  # ... times its similarity to this power
SHORTEST = 3  # letters of a word that is looked up in the table
MOST, LIMIT = 1_000, 40 << 20  # indices, and their bytes: 8 chats of 75k tokens, 40 agents' runs
POSTING = 64  # bytes (measured: 50 to 70)
READING = 16  # postings that what else a reading holds weighs (measured)


@dataclass(frozen=True, slots=True)
class Query:
    """Words and what each of them weighs. In English, stop words are out and words are matched by their stems."""

    words: tuple[tuple[str, float], ...]
    english: bool

    def keys(self) -> dict[str, float]:
        """What the query is matched by (stems or words) and the sum of weights."""
        found: dict[str, float] = {}
        for word, weight in self.words:
            key = stem(word) if self.english else word
            found[key] = found.get(key, 0.0) + weight
        return found


def query(words: Mapping[str, float], english: bool) -> Query:
    """The query of weighted words."""
    return Query(tuple((w, n) for w, n in words.items() if not (english and w in STOP)), english)


Document = Sequence[Reading]  # of one message, or of all of a block


class Index:
    """Which documents hold which words. Documents are added at the end only; nothing of one is ever changed."""

    def __init__(self) -> None:
        self._holding: dict[str, list[int]] = {}  # word -> place, count, place, count, ...
        self._posted = 0  # documents that are in it
        self._own: dict[bool, tuple[list[dict[str, int]], Counter[str]]] = {}  # see `_counted`
        self._lengths: list[int] = []
        self._english = self._words = 0
        self._kin: dict[str, list[str]] = {}  # stem -> its words
        self._stemmed = 0  # words of `_holding` that are in `_kin` already
        self._vocabulary: list[tuple[int, str]] = []  # vector of a stem's first word that has one, and the stem
        self._meant: set[str] = set()  # stems that are in the vocabulary
        self._looked_up = 0  # words of `_holding` that were tried for it
        self.documents: list[Document] = []
        self.number = 0
        self.weight = 1

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, document: Document) -> None:
        """Appends a document."""
        for reading in document:
            self._english += reading.english
            self._words += reading.length
            self.weight += len(reading.tokens) + READING
        self._lengths.append(sum(r.length for r in document))
        self.documents.append(document)
        self.number = _next_number(self.number, document)

    @property
    def is_english(self) -> bool:
        """Whether the documents together are known to be English."""
        return self._english >= KNOWN_ENGLISH * max(1, self._words)

    def query(self, asked: Reading) -> Query:
        """A text as a query. Whether it is English it shows itself; where it is very short, the documents tell."""
        english = asked.is_english or (asked.length < FEW and self.is_english)
        return query(dict(zip(asked.words, asked.counts, strict=True)), english)

    def scores(self, asked: Query, *, k1: float = K1, b: float = B, meaning: bool = False) -> list[float]:
        """How well each document answers: per word of the query the best of itself and, where `meaning` is asked for
        and the language is English, of what means nearly the same; then the sum."""
        out, norms = [0.0] * len(self), self._norms(k1, b)
        self._post_new()
        if asked.english:
            self._stem_new()
        for word, weight in asked.words:
            for place, value in self._best(word, asked.english, meaning, norms).items():
                out[place] += weight * value * (k1 + 1)
        return out

    def scores_at(self, places: Iterable[int], asked: Query, *, k1: float = K1, b: float = B) -> dict[int, float]:
        """The same, without meanings, of these documents alone: quicker where few of many are asked for."""
        (own, holding), norms = self._counted(asked.english), self._norms(k1, b)
        gains = {k: weight * (k1 + 1) * self._idf(holding[k]) for k, weight in asked.keys().items() if k in holding}
        found = {}
        for place in places:
            counts, norm = own[place], norms[place]
            hits = gains.keys() & counts.keys()  # a set: their order must not matter
            found[place] = math.fsum([gains[key] * counts[key] / (counts[key] + norm) for key in hits])
        return found

    def _counted(self, english: bool) -> tuple[list[dict[str, int]], Counter[str]]:
        """How often each word (in English, each stem) stands in each document, and in how many it stands."""
        own, holding = self._own.setdefault(english, ([], Counter()))
        for document in islice(self.documents, len(own), None):
            found: dict[str, int] = {}
            for reading in document:
                for keys, times in zip(found_by(reading.tokens, english), reading.times, strict=True):
                    for key in keys:
                        if key in found:
                            found[key] += times
                        else:
                            found[key] = times
            own.append(found)
            holding.update(found.keys())
        return own, holding

    def _post_new(self) -> None:
        holding = self._holding
        for place in range(self._posted, len(self)):
            for reading in self.documents[place]:
                for word, count in zip(reading.words, reading.counts, strict=True):
                    pairs = holding.get(word)
                    if pairs is None:
                        holding[word] = [place, count]
                    else:
                        pairs += place, count
        self._posted = len(self)

    def _best(self, word: str, english: bool, meaning: bool, norms: Sequence[float]) -> dict[int, float]:
        key = stem(word) if english else word
        held = self._held(key, english)
        own = self._idf(len(held))
        best = {place: own * count / (count + norms[place]) for place, count in held.items()}
        for alike, other in self._near(word, key) if english and meaning else ():
            held = self._held(other, True)
            gain = ALIKE * alike**SHARPNESS * (min(own, self._idf(len(held))) if own else self._idf(len(held)))
            for place, count in held.items():
                value = gain * count / (count + norms[place])
                if value > best.get(place, 0.0):
                    best[place] = value
        return best

    def _held(self, key: str, english: bool) -> dict[int, int]:
        """In which documents a word (or in English, any word of a stem) stands, and how often."""
        found: dict[int, int] = {}
        for word in self._kin.get(key, ()) if english else (key,):
            pairs = self._holding.get(word)
            if pairs is not None:
                for place, count in zip(pairs[::2], pairs[1::2], strict=True):
                    found[place] = found.get(place, 0) + count
        return found

    def _idf(self, holding: int) -> float:
        return math.log(1 + (len(self) - holding + 0.5) / (holding + 0.5)) if holding else 0.0

    def _norms(self, k1: float, b: float) -> list[float]:
        mean = sum(self._lengths) / max(1, len(self)) or 1.0
        return [k1 * (1 - b + b * length / mean) for length in self._lengths]

    def _stem_new(self) -> None:
        for word in islice(self._holding, self._stemmed, None):
            self._kin.setdefault(stem(word), []).append(word)
        self._stemmed = len(self._holding)

    def _near(self, word: str, key: str) -> list[tuple[float, str]]:
        vector = word_table().vector(word) if len(word) >= SHORTEST else None
        if vector is None:
            return []
        self._look_up_new()
        return [pair for pair in word_table().nearest(vector, self._vocabulary) if pair[1] != key]

    def _look_up_new(self) -> None:
        """A stem means what the first of its words means that is in the table."""
        table = word_table()
        for word in islice(self._holding, self._looked_up, None):
            key = stem(word)
            if key not in self._meant and len(key) >= SHORTEST and (vector := table.vector(word)) is not None:
                self._meant.add(key)
                self._vocabulary.append((vector, key))
        self._looked_up = len(self._holding)


INDEXED: Bounded[int, Index] = Bounded(MOST, LIMIT)


def indexed(documents: Sequence[Document]) -> Index:
    """The index of these documents. One that was kept (`keep`) of their beginning is taken and grows; so a
    conversation is indexed once, and a turn costs what is new in it."""
    documents = [tuple(document) for document in documents]
    index = _longest_kept(documents) or Index()
    for document in documents[len(index) :]:
        index.add(document)
    return index


def _longest_kept(documents: list[Document]) -> Index | None:
    numbers = list(accumulate(documents, _next_number, initial=0))
    for place in range(len(documents), 0, -1):
        found = INDEXED.take(numbers[place])
        if found is not None and found.documents == documents[:place]:
            return found
    return None


def _next_number(number: int, document: Document) -> int:
    """A number for a document and all before it. It says where to look; what is found there is still compared."""
    for reading in document:
        number = hash((number, reading.key))
    return number


def keep(index: Index) -> None:
    """Remembers an index once its user is done with it."""
    INDEXED.put(index.number, index, POSTING * index.weight)
