"""BM25 over messages, with an index that grows with its conversation and is kept between requests.

In English, and where a query is in another language than the documents, a word of the query also matches words of
similar meaning (`word_table`). Documents are only appended, so the scores of a request never depend on which requests
came before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, chain, islice, repeat
from operator import itemgetter

from proxy.fit.relevance.text.languages import FUNCTION_WORDS, language_of, language_of_all
from proxy.fit.relevance.text.reading import Reading
from proxy.fit.relevance.text.vocabulary import SHORTEST, Vocabulary
from proxy.fit.relevance.text.word_table import language_table, word_table
from proxy.fit.relevance.text.words import KNOWN_ENGLISH, SHORT_TEXT, STOP, prefix, stem, terms
from proxy.model.bounded import Bounded

K1, B = 1.2, 0.3  # measured on chats and meetings (proxy/fit/relevance/README.md)
ALIKE = 0.8  # weight of a word of similar meaning (measured), ...
SHARPNESS = 1.5  # ... times its similarity to this power
TRANSLATED = 0.4  # factor of agreements across languages; with more, follow-ups would stand alone (measured)
COMMON, FEW = 0.25, 4  # share of the documents (or their number), over which a word is too common to agree on
FORMS = 256  # words with one stem or prefix that are matched: a bound for hostile texts, which others stay far below
MEANT = 200  # words of a query that words of similar meaning match too: each is compared with the whole vocabulary
MAX_INDEXES, MAX_BYTES = 1_000, 40 << 20  # kept: 8 chats of 75k tokens, 40 runs of agents
POSTING_BYTES = 64  # measured: 50 to 70
READING_POSTINGS = 16  # memory of a reading besides its tokens, in postings (measured: 18 in chats, more in runs)


@dataclass(frozen=True, slots=True)
class Query:
    """Words and their weights. An English query has no stop words and matches by stems. `asked_in`: the language of the
    words, if it is another one than that of the documents; `english` is then said of these."""

    words: tuple[tuple[str, float], ...]
    english: bool
    asked_in: str = ""

    def keys(self) -> dict[str, float]:
        """Terms (stems if English, else words) and the sums of their weights."""
        found: dict[str, float] = {}
        for word, weight in self.words:
            key = stem(word) if self.english else word
            found[key] = found.get(key, 0.0) + weight
        return found


def query(words: Mapping[str, float], english: bool) -> Query:
    """A query of weighted words, without stop words if it is English."""
    return Query(tuple((w, n) for w, n in words.items() if not (english and w in STOP)), english)


def translated(words: Mapping[str, float], english: bool, asked_in: str) -> Query:
    """A query of weighted words in another language than the documents', without its function words. `english`: whether
    the documents are English."""
    return Query(tuple((w, n) for w, n in words.items() if w not in FUNCTION_WORDS[asked_in]), english, asked_in)


# document, count, document, count, ... of a word. A tuple for one document: most words have no more, and those that are
# in it once share one tuple.
Postings = tuple[int, int] | list[int]
Document = Sequence[Reading]  # the reading of one message, or of all messages of a block


class Index:
    """An inverted index of documents. Postings are computed at the first query that needs them. Not thread-safe."""

    def __init__(self) -> None:
        self._postings: dict[str, Postings] = {}
        self._posted = 0  # documents that are in the postings
        self._counts: dict[bool, tuple[list[dict[str, int]], Counter[str]]] = {}  # by language; see `_counted`
        self._lengths: list[int] = []
        self._english = self._words = 0
        # By language: the words of each term (stem or prefix) besides the term itself, which most words are, and how
        # many words of `_postings` were looked at for it.
        self._forms: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
        self._formed = {True: 0, False: 0}
        self._vocabularies: dict[str, Vocabulary] = {}
        self._language = (0, "")  # of so many documents
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
            self.weight += len(reading.tokens) + READING_POSTINGS
        self._lengths.append(sum(r.length for r in document))
        self.documents.append(document)
        self.number = _next_number(self.number, document)

    @property
    def is_english(self) -> bool:
        """Whether the documents together are certainly English."""
        return self._english >= KNOWN_ENGLISH * max(1, self._words)

    @property
    def language(self) -> str:
        """The language of the documents together, of those with a table of words; "" if it is none of them."""
        if self.is_english:
            return "en"
        if self._language[0] != len(self):
            self._index_new_documents(False)
            found = language_of_all(self._occurrences, self._words)
            self._language = len(self), "" if found == "en" else found
        return self._language[1]

    def _occurrences(self, word: str) -> int:
        return sum(self._postings.get(word, ())[1::2])

    def asked_in(self, asked: Reading) -> str:
        """The language of a text, if it is another one than that of the documents and both have a table of words."""
        if asked.is_english and self.is_english:
            return ""
        found = language_of(asked)
        return found if found and self.language not in ("", found) else ""

    def query(self, asked: Reading) -> Query:
        """The query for a text. If the text is too short to show its language, that of the documents decides."""
        english = asked.is_english or (asked.length < SHORT_TEXT and self.is_english)
        return query(asked.words, english)

    def scores(self, asked: Query, *, k1: float = K1, b: float = B, meaning: bool = False) -> list[float]:
        """The BM25 score of each document. With `meaning`, and if the query is English, a word of the query counts by
        the best match in a document among the word itself and words of similar meaning; of a query of very many words
        at most the `MEANT` that weigh most."""
        out, norms = [0.0] * len(self), self._norms(k1, b)
        self._index_new_documents(asked.english)
        by_weight = sorted(asked.words, key=itemgetter(1), reverse=True)
        least = by_weight[MEANT][1] if len(by_weight) > MEANT else 0.0
        for word, weight in asked.words:
            for place, value in self._best(word, asked, meaning and weight > least, norms).items():
                out[place] += weight * value * (k1 + 1)
        return out

    def scores_at(self, places: Iterable[int], asked: Query, *, k1: float = K1, b: float = B) -> dict[int, float]:
        """The BM25 scores of the documents at these places, without meaning and by whole words.

        Faster if they are few of many."""
        (own, holding), norms = self._counted(asked.english), self._norms(k1, b)
        gains = {k: weight * (k1 + 1) * self._idf(holding[k]) for k, weight in asked.keys().items() if k in holding}
        found = {}
        for place in places:
            counts, norm = own[place], norms[place]
            hits = gains.keys() & counts.keys()  # a set: their order must not matter
            found[place] = math.fsum([gains[key] * counts[key] / (counts[key] + norm) for key in hits])
        return found

    def agreements(
        self, groups: Sequence[Sequence[str]], besides: int = -1, asked_in: Sequence[str] = ()
    ) -> list[float]:
        """For each group of distinct words: the largest sum, over the documents (`besides` one), of the rarity of those
        of its words that the document contains. `asked_in`: the language of each group, empty for that of the
        documents.

        Rarity: the idf as a share of that of a word in one document; in English and of a word in another language than
        the documents' times its rarity in the language. A word of more than `COMMON` of the documents does not count.
        """
        said = list(zip(groups, asked_in or repeat(""), strict=False))
        words = dict.fromkeys((word, language) for group, language in said for word in group)
        translated = set(islice((pair for pair in words if pair[1]), MEANT))
        rare = {
            pair: self._translated(*pair, besides) if pair in translated else [self._rare(pair[0], besides)]
            for pair in words
        }
        return [_agreement(chain.from_iterable(rare[w, language] for w in group)) for group, language in said]

    def rarity(self, word: str) -> float:
        """The idf of a word as a share of that of a word in one document."""
        return self._idf(len(self._places(word))) / self._idf(1)

    def contains(self, word: str, besides: int = -1) -> bool:
        """Whether a document (`besides` one) contains a word."""
        return bool(self._places(word) - {besides})

    def _rare(self, word: str, besides: int) -> tuple[float, Iterable[int]]:
        """The rarity of a word and the documents that contain it; none if they are many."""
        places = self._places(word)
        if len(places) > max(FEW, COMMON * len(self)):
            return 0.0, ()
        rarity = self._idf(len(places)) / self._idf(1)
        return rarity * (word_table().rarity(word) if self.is_english else 1.0), places - {besides}

    def _translated(self, word: str, language: str, besides: int) -> list[tuple[float, Iterable[int]]]:
        """The rarity and the documents of a word of another language: as it is, and of words that mean nearly the same,
        each document once."""
        if word in FUNCTION_WORDS[language]:
            return []
        found = [self._rare(word, besides)]
        seen = {besides, *found[0][1]}
        rarity = TRANSLATED * language_table(language).rarity(word) / self._idf(1)
        for _, other in self._similar(word, stem(word) if self.is_english else prefix(word), language):
            places = self._holding(other)
            if len(places) <= max(FEW, COMMON * len(self)):
                found.append((rarity * self._idf(len(places)), places - seen))
                seen |= places
        return found

    def _places(self, word: str) -> Set[int]:
        """The documents that contain a word."""
        self._index_new_documents(self.is_english)
        return self._holding(stem(word) if self.is_english else prefix(word))

    def _holding(self, key: str) -> Set[int]:
        """The documents that contain a word of a term."""
        return set[int]().union(*[pairs[::2] for pairs in self._pairs(key, self.is_english)])

    def _counted(self, english: bool) -> tuple[list[dict[str, int]], Counter[str]]:
        """The number of occurrences of each term in each document, and the number of documents with each term."""
        own, holding = self._counts.setdefault(english, ([], Counter()))
        for document in islice(self.documents, len(own), None):
            found: dict[str, int] = {}
            for reading in document:
                for keys, times in zip(terms(reading.tokens, english), reading.times, strict=True):
                    for key in keys:
                        if key in found:
                            found[key] += times
                        else:
                            found[key] = times
            own.append(found)
            holding.update(found.keys())
        return own, holding

    def _index_new_documents(self, english: bool) -> None:
        holding = self._postings
        for place in range(self._posted, len(self)):
            once = (place, 1)
            for reading in self.documents[place]:
                for word, count in reading.words.items():
                    pairs = holding.get(word)
                    if pairs is None:
                        holding[word] = once if count == 1 else (place, count)
                    elif isinstance(pairs, tuple):
                        holding[word] = [*pairs, place, count]
                    else:
                        pairs += place, count
        self._posted = len(self)
        forms = self._forms[english]
        if self._formed[english] < len(holding):  # `islice` walks through all words before the first new one
            for word in islice(holding, self._formed[english], None):
                key = stem(word) if english else prefix(word)
                if key != word and len(alike := forms.setdefault(key, [])) < FORMS:
                    alike.append(word)
            self._formed[english] = len(holding)

    def _best(self, word: str, asked: Query, meaning: bool, norms: Sequence[float]) -> dict[int, float]:
        english = asked.english
        key = stem(word) if english else prefix(word)
        held = self._documents_with(key, english)
        own = self._idf(len(held))
        best = {place: own * count / (count + norms[place]) for place, count in held.items()}
        meaning = meaning and (english or bool(asked.asked_in))
        for alike, other in self._similar(word, key, asked.asked_in) if meaning else ():
            held = self._documents_with(other, english)
            gain = ALIKE * alike**SHARPNESS * (min(own, self._idf(len(held))) if own else self._idf(len(held)))
            for place, count in held.items():
                value = gain * count / (count + norms[place])
                if value > best.get(place, 0.0):
                    best[place] = value
        return best

    def _documents_with(self, key: str, english: bool) -> dict[int, int]:
        """The documents that contain a term, and its occurrences there."""
        found: dict[int, int] = {}
        for pairs in self._pairs(key, english):
            if not found:
                found = dict(zip(pairs[::2], pairs[1::2], strict=True))
                continue
            for place, count in zip(pairs[::2], pairs[1::2], strict=True):
                found[place] = found.get(place, 0) + count
        return found

    def _pairs(self, key: str, english: bool) -> list[Postings]:
        """The postings of the words of a term."""
        holding = self._postings
        found = [holding[word] for word in self._forms[english].get(key, ())]
        if key in holding and (stem(key) if english else prefix(key)) == key:
            found.append(holding[key])
        return found

    def _idf(self, holding: int) -> float:
        return math.log(1 + (len(self) - holding + 0.5) / (holding + 0.5)) if holding else 0.0

    def _norms(self, k1: float, b: float) -> list[float]:
        mean = sum(self._lengths) / max(1, len(self)) or 1.0
        return [k1 * (1 - b + b * length / mean) for length in self._lengths]

    def _similar(self, word: str, key: str, asked_in: str = "") -> list[tuple[float, str]]:
        """(similarity, term) of the terms of the documents that mean nearly the same as a word: as a word of their
        language (English), or of the language that it is asked in. `key`: the word's own term."""
        if len(word) < SHORTEST and not asked_in:
            return []
        own = self.language if asked_in else ""
        vocabulary = self._vocabularies.setdefault(own, Vocabulary(own))
        vocabulary.look_up(self._postings)
        return [pair for pair in vocabulary.similar(word, asked_in) if pair[1] != key]


def _agreement(rare: Iterable[tuple[float, Iterable[int]]]) -> float:
    """The largest sum of rarities at one place."""
    sums: dict[int, float] = {}
    for rarity, places in rare:
        for place in places:
            sums[place] = sums.get(place, 0.0) + rarity
    return max(sums.values(), default=0.0)


INDEXED: Bounded[int, Index] = Bounded(MAX_INDEXES, MAX_BYTES)


def acquire_index(documents: Sequence[Document]) -> Index:
    """The index of these documents. It takes the kept index of their longest beginning and appends the rest, so that a
    turn costs only what is new in it. The caller owns the index until it calls `release_index`."""
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
    """The cache key of a document and all before it. A hash: the documents found under it are compared too."""
    for reading in document:
        number = hash((number, reading.key))
    return number


def release_index(index: Index) -> None:
    """Returns an index to the cache once its user is done with it."""
    INDEXED.put(index.number, index, POSTING_BYTES * index.weight)
