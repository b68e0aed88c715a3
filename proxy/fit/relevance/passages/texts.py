"""A long text as passages, and which of them stay within a number of tokens. It renders nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate

import msgspec

from proxy.fit.relevance.passages.data import data_in
from proxy.fit.relevance.passages.rendering import FIRST, GAP, render
from proxy.fit.relevance.passages.splitting import Passage, split
from proxy.fit.relevance.results.records import Records, records_of, rows_of
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.outline import Outline, outline
from proxy.model.bounded import Bounded
from proxy.model.oversized_json import is_cut

COST_EXPONENT = 0.15  # preference for short passages: score / tokens ** this (measured)
AROUND = 600  # characters of a first or last paragraph up to which it stays: it says what the text is, or what to do
MAX_TEXTS, MAX_BYTES, PASSAGE_BYTES = 64, 8 << 20, 160  # cached analyses of texts
LONGEST = 1 << 19  # characters of a text that is searched for records and rows
MISSES = 64  # passages in a row that do not fit, after which the room counts as full
Span = tuple[int, int]
Shortened = Callable[[str, int], str]


class _Analysis(msgspec.Struct, frozen=True, gc=False):
    """What `Text` has of a text without regard to a question."""

    passages: list[Passage]
    outline: Outline
    records: Records | None
    rows: int
    data: tuple[Span, ...]


ANALYSED: Bounded[int, _Analysis] = Bounded(MAX_TEXTS, MAX_BYTES)


@dataclass(frozen=True, slots=True)
class Text:
    """`key`: a digest of the text. `always`: the indices of the passages that stay in any case. `rate`: tokens per
    character, estimated. `records`: of the passages, if it is a run of records. `rows`: of a table. `data`: the JSON
    values in it, as (first passage, one after the last)."""

    key: int
    passages: Sequence[Passage]
    outline: Outline
    always: frozenset[int]
    rate: float
    records: Records | None = None
    rows: int = 0
    data: Sequence[Span] = ()

    def cost(self, place: int, chosen: set[int]) -> float:
        """The tokens that a passage adds to the chosen ones, with the notes that come or go."""
        gaps = 1 - ((place == 0 or place - 1 in chosen) + (place + 1 == len(self.passages) or place + 1 in chosen))
        return self.rate * len(self.passages[place].text) + GAP * gaps

    def with_above(self, place: int, chosen: set[int]) -> list[int]:
        """A passage and the lines that must stay with it, without those that are chosen already."""
        head = () if self.records is None else self.records.along(place)
        if self.outline.parents[place] < 0 and place not in self.outline.ends and not head:
            return [place]
        return [p for p in dict.fromkeys((*self.outline.above(place), *head, place)) if p not in chosen]

    def value(self, span: Span) -> str:
        """A JSON value in the text."""
        return "".join([passage.text for passage in self.passages[slice(*span)]])

    def rendered(self, chosen: set[int], shortened: Shortened) -> str:
        """The text with the chosen passages only, and notes of what is missing. Of a JSON value the chosen passages
        tell how long it may be: `shortened` makes it valid JSON in so many tokens."""
        instead = {
            span: shortened(self.value(span), int(self.rate * sum(len(self.passages[p].text) for p in kept)))
            for span in self.data
            if len(kept := chosen.intersection(range(*span))) < span[1] - span[0]
        }
        return render(self.passages, chosen, self._counted(chosen), instead)

    def _counted(self, chosen: set[int]) -> str:
        """How many of how many records or rows stay."""
        if self.records is not None:
            shown = {self.records.of[p] for p in chosen if p not in self.records.along(p)} - {-1}
            return f"{len(shown)} of {len(self.records.heads)} results shown in part"
        return f"{self.rows} rows in all" if self.rows else ""


def read(text: str, rate: float, spans: Sequence[Span] = ()) -> Text:
    """A text as passages. What always stays are its first and last paragraph, if they are short, and the passages that
    overlap one of the `spans` (start, end in characters)."""
    key = digest(text)
    found = ANALYSED.get(key)
    if found is None:
        found = _analysis(text)
        ANALYSED.put(key, found, len(text) + PASSAGE_BYTES * len(found.passages))
    asked = {*_within(found.passages, spans)}
    data = [span for span in found.data if asked.isdisjoint(range(*span))]  # a question in JSON stays word for word
    always = frozenset({*_ends(found.passages), *asked})
    return Text(key, found.passages, found.outline, always, rate, found.records, found.rows, data)


def _analysis(text: str) -> _Analysis:
    spans = data_in(text)
    passages = split(text, [cut for span in spans for cut in span if 0 < cut < len(text)])
    lines = outline([passage.text for passage in passages], [passage.starts for passage in passages])
    at = {start: place for place, start in enumerate(accumulate((len(p.text) for p in passages), initial=0))}
    data = tuple((at[start], at[end]) for start, end in spans)
    regular = not data and len(text) <= LONGEST
    records = _records(passages) if regular else None
    rows = rows_of([passage.text.rstrip() for passage in passages]) if regular and records is None else 0
    return _Analysis(passages, lines, records, 0 if is_cut(text) else rows, data)


def _records(passages: Sequence[Passage]) -> Records | None:
    """The records of a text, by its passages: lines with the blank ones after them."""
    lines: list[str] = []
    owner: list[int] = []
    for place, passage in enumerate(passages):
        own, *blank = passage.text.removesuffix("\n").split("\n")
        lines += [own, *blank]
        owner += [place] * (1 + len(blank))
    found = records_of(lines)
    if found is None:
        return None
    heads = {owner[first]: tuple(dict.fromkeys(owner[place] for place in head)) for first, head in found.heads.items()}
    of = [-1] * len(passages)
    for place, first in enumerate(found.of):
        of[owner[place]] = -1 if first < 0 else owner[first]
    return Records(heads, of)


def _ends(passages: Sequence[Passage]) -> set[int]:
    """The first paragraph, or the first passage of a longer one; and the last paragraph."""
    first = _paragraph(passages, range(len(passages)), after=True)
    last = _paragraph(passages, range(len(passages) - 1, -1, -1), after=False)
    return {*(first or [0]), *last}


def _paragraph(passages: Sequence[Passage], places: range, *, after: bool) -> list[int]:
    """The passages up to a blank line; none if they have more than `AROUND` characters."""
    found: list[int] = []
    size = 0
    for place in places:
        blank = passages[place].text.count("\n") > 1
        if blank and not after and found:
            return found
        found.append(place)
        size += len(passages[place].text)
        if size > AROUND:
            return []
        if blank and after:
            return found
    return []


def _within(passages: Sequence[Passage], spans: Sequence[Span]) -> Iterable[int]:
    """The passages that overlap a span, in one pass over both."""
    waiting = sorted(spans, reverse=True)
    start = reach = 0
    for place, passage in enumerate(passages):
        end = start + len(passage.text)
        while waiting and waiting[-1][0] < end:
            reach = max(reach, waiting.pop()[1])
        if reach > start:
            yield place
        start = end


@dataclass(frozen=True, slots=True)
class Choice:
    """The passages of each text that stay (`chosen`). `tokens`: what they cost, estimated; `turns`: what the chosen
    turns cost. `whole`: nothing is left out."""

    chosen: Sequence[set[int]]
    tokens: float
    turns: int
    whole: bool


def choose(
    texts: Sequence[Text],
    scores: Sequence[Sequence[float]],
    room: float,
    turns: Sequence[tuple[float, int]] = (),
    least: float = 0.0,
) -> Choice:
    """The passages of each text that stay in `room` tokens together, estimated: the best for their cost.

    Each text first gets its best passages, up to `least` tokens. `turns` are (score, tokens) of whole turns that
    compete for the same room. What is left of it goes to passages without a score, from the ends of the texts.
    """
    picked, taken = _Picked(texts, room), 0
    streams = []  # read one by one: lists of tuples of all lines would take more memory than their text
    for number, (text, row) in enumerate(zip(texts, scores, strict=True)):
        keys = _keys(text, row)
        order = sorted((place for place, score in enumerate(row) if score > 0), key=keys.__getitem__)
        picked.add_up_to(least, number, order)
        streams.append(_numbered(keys, number, order))
    keys = array("d", [-score / max(1, cost) ** COST_EXPONENT for score, cost in turns])
    streams.append(_numbered(keys, len(texts), sorted(range(len(turns)), key=keys.__getitem__)))
    misses = 0
    for _, number, place in merge(*streams):
        if misses > MISSES:
            break
        if number < len(texts):
            misses = 0 if picked.add(number, place) else misses + 1
        elif turns[place][1] <= picked.left:
            picked.left -= turns[place][1]
            taken += turns[place][1]
    for number, text in enumerate(texts):
        picked.add_up_to(picked.left, number, _from_ends(text))
    whole = all(len(some) == len(text.passages) for some, text in zip(picked.chosen, texts, strict=True))
    return Choice(picked.chosen, room - taken - picked.left, taken, whole)


def _keys(text: Text, scores: Sequence[float]) -> array[float]:
    """The value of each passage for its cost, negative: sorted, the best is first and of equals the older."""
    rated = zip(text.passages, scores, strict=True)
    return array("d", [-score / max(1.0, text.rate * len(p.text)) ** COST_EXPONENT for p, score in rated])


def _numbered(keys: Sequence[float], number: int, order: Iterable[int]) -> Iterator[tuple[float, int, int]]:
    """(key, number of the text, index) of each passage, in order."""
    return ((keys[place], number, place) for place in order)


def _from_ends(text: Text) -> Iterator[int]:
    """Headings, then the passages in turn from the beginning and from the end."""
    last = len(text.passages) - 1
    yield from text.outline.headings
    for place in range(last // 2 + 1):
        for each in (place, last - place) if place < last - place else (place,):
            if each not in text.outline.headings:
                yield each


class _Picked:
    """The passages chosen so far, and the room that is left."""

    def __init__(self, texts: Sequence[Text], room: float) -> None:
        self.texts = texts
        self.chosen: list[set[int]] = [set() for _ in texts]
        self.left = room - FIRST * len(texts)
        for number, text in enumerate(texts):
            for place in sorted(text.always):
                self._take(number, [place])

    def add(self, number: int, place: int) -> bool:
        """Adds a passage and what must stay with it. False if they do not fit."""
        text, chosen = self.texts[number], self.chosen[number]
        if place in chosen:
            return True
        wanted = text.with_above(place, chosen)
        if sum([text.cost(p, chosen) for p in wanted]) > self.left:
            return False
        self._take(number, wanted)
        return True

    def add_up_to(self, tokens: float, number: int, places: Iterable[int]) -> None:
        """Adds passages of a text until they have taken this many tokens."""
        stop, misses = max(0.0, self.left - tokens), 0
        for place in places:
            if self.left <= stop or misses > MISSES:
                break
            misses = 0 if self.add(number, place) else misses + 1

    def _take(self, number: int, places: Iterable[int]) -> None:
        text, chosen = self.texts[number], self.chosen[number]
        for place in places:
            self.left -= text.cost(place, chosen)
            chosen.add(place)
