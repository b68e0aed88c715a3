"""Finds what of a long text its sender wrote, where the rest is a run of records, a table or JSON: what stands before
and behind these. A retrieved chunk asks nothing and orders nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from proxy.fit.nested import decoded
from proxy.fit.relevance.passages.data import data_in
from proxy.fit.relevance.results.records import Records, begins, common_beginning, records_of, table_of
from proxy.fit.relevance.text.clauses import clauses_in, is_question
from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded

LONGEST = 1 << 19  # characters of a text that is read for it
CACHED, CACHED_BYTES = 1_000, 1 << 20
OUTER, SENTENCE = 1200, 3  # characters around JSON that are searched for a question; words of a text that may ask
Span = tuple[int, int]
FOUND: Bounded[int, tuple[int, int]] = Bounded(CACHED, CACHED_BYTES)


def typed_ends(text: str) -> Span:
    """Where what was pasted into a long text begins and ends, in characters; (length, 0) if it is not seen: then both
    may be anywhere. Cached."""
    if len(text) > LONGEST:
        return len(text), 0
    key = digest(text)
    found = FOUND.get(key)
    return FOUND.put(key, _typed_ends(text), 64) if found is None else found


def _typed_ends(text: str) -> Span:
    start, end = _pasted(text)
    return (start, end) if text[:start].strip() or text[end:].strip() else (len(text), 0)


def _pasted(text: str) -> Span:
    """The run of records, the table or the JSON in a text; all of it if there is none."""
    spans = data_in(text)
    if spans:
        start, end = spans[0][0], spans[-1][1]
        around = text[:start], text[end:]
        return (0, len(text)) if any(_asks(text[a:b], around) for a, b in spans) else (start, end)
    lines = text.split("\n")
    upto = [0, *accumulate(len(line) + 1 for line in lines)]
    records = records_of(lines)
    rows = _rows_of_records(lines, records) if records is not None else table_of(lines)
    return (upto[rows[0]], min(len(text), upto[rows[1]])) if rows is not None else (0, len(text))


def _asks(value: str, around: Sequence[str]) -> bool:
    """Whether a JSON object asks by itself, as programs that fill in templates do: a text of its own is a question, or
    it has sentences where the text around it asks nothing."""
    fields = decoded(value) if value[0] == "{" else {}
    texts = [text for text in fields.values() if isinstance(text, str)]
    if any(is_question(text) for text in texts):
        return True
    asked = any(is_question(text[a:b]) for text in around for a, b in clauses_in(text[-OUTER:]))
    return not asked and any(len(text.split()) >= SENTENCE for text in texts)


def _rows_of_records(lines: Sequence[str], records: Records) -> Span:
    """The first line of a run of records and the one after its last record, which ends as the others do: after as many
    paragraphs. Where they do not begin or end alike, its last paragraph is its sender's; what does not begin as the
    others do is no record."""
    places = [*records.heads]
    beginning = common_beginning(lines, places[:-1])
    if beginning and begins(lines[places[-1]]) != beginning:
        return places[0], places[-1]
    sizes = {len(_paragraphs(lines, place, end)) for place, end in pairwise(places)}
    last = _paragraphs(lines, places[-1], len(lines))
    count = min(sizes) if beginning and len(sizes) == 1 else max(1, len(last) - 1)
    return places[0], last[min(count, len(last)) - 1]


def _paragraphs(lines: Sequence[str], start: int, end: int) -> list[int]:
    """Where the paragraphs of these lines end."""
    blank = [not lines[place].strip() for place in range(start, end)] + [True]
    return [start + k for k in range(1, len(blank)) if blank[k] and not blank[k - 1]]
