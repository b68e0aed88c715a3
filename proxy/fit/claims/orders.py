"""Finds what messages say that holds for later answers: orders, preferences, lasting facts, and what is otherwise now.
It claims nothing.

Nobody gives orders by what they quote or paste: of a long message only the first and the last paragraph are read, and
the turns of a transcript were said by others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from proxy.fit.claims.signs import SignReader, words_in
from proxy.fit.relevance.passages.pasted import typed_ends
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.question import content_words, ends
from proxy.fit.relevance.text.reading import OWN_KEY
from proxy.model.bounded import Bounded
from proxy.model.conventions import Signs
from proxy.model.conversation import Kind, Message, PartKind

LONG = 1200  # characters from which only the first and the last paragraph of a message are its author's for sure, ...
EDGE = 1000  # ... if they are no longer than this; else as much of them
PREFIX = 5  # letters by which words are the same, as in chats of any language (`words.PREFIX`)
GAP = "[…]"  # between lines that are left of a message
SHORTENED = "what holds for later answers, of a longer message"
SHORT = 300  # characters of a message that may say nothing but that something is otherwise now
CACHED, CACHED_BYTES = 10_000, 2 << 20
READERS = 8  # kept: each file of rules that says other signs has one
ENTRY, SPAN = 200, 150  # bytes of what a message says, and of each line
Span = tuple[int, int]


class Said(msgspec.Struct, frozen=True, gc=False):
    """What a message says. `orders`: the lines of its own text that have orders, as (start, end) in characters, if the
    user speaks in it. `changes`: whether it is short and has signs that something is otherwise now."""

    orders: tuple[Span, ...] = ()
    changes: bool = False


NOTHING = Said()


class TurnReader:
    """Reads each message once for all signs. What was read is cached."""

    def __init__(self, orders: Sequence[Signs], reversals: Sequence[Signs]) -> None:
        self._orders, self._reversals = SignReader(orders), SignReader(reversals)
        self._said: Mapping[bool, Bounded[bytes | int, Said]] = {  # by whether the user speaks
            True: Bounded(CACHED, CACHED_BYTES),
            False: Bounded(CACHED, CACHED_BYTES),
        }

    def read(self, message: Message) -> Said:
        """What a message says. Most have no word of any sign: their text is not even decoded."""
        raw, asks = message.raw, message.kind is Kind.USER
        size = len(raw)
        if size > 2 * SHORT and not asks:
            return NOTHING
        key = raw if size <= OWN_KEY else digest(raw)
        found = self._said[asks].get(key)
        if found is None:
            words = words_in(raw)
            orders = asks and self._orders.may_be_in(words)
            changes = size <= 2 * SHORT and self._reversals.may_be_in(words)
            found = self._read(message.own_text(), orders, changes) if orders or changes else NOTHING
            self._said[asks].put(key, found, ENTRY + min(size, OWN_KEY) + SPAN * len(found.orders))
        return found

    def _read(self, text: str, orders: bool, changes: bool) -> Said:
        lines = tuple(_lines_with_orders(text, self._orders)) if orders else ()
        return Said(lines, changes and len(text) <= SHORT and any(True for _ in self._reversals.clauses(text)))


@lru_cache(maxsize=READERS)
def turn_reader(orders: tuple[Signs, ...], reversals: tuple[Signs, ...]) -> TurnReader:
    """The reader of these signs. Cached."""
    return TurnReader(orders, reversals)


def _lines_with_orders(text: str, reader: SignReader) -> Iterator[Span]:
    after = 0
    for low, high in typed_spans(text):
        for start, end in reader.clauses(text[low:high]):
            first = max(low, text.rfind("\n", 0, low + start) + 1)
            last = text.find("\n", low + end, high)
            if first >= after:
                after = high if last < 0 else last
                yield first, after


def typed_spans(text: str) -> Sequence[Span]:
    """What of a text its sender surely typed: all of a short one; of a longer one the first and the last paragraph, and
    nothing of a run of records, a table or JSON."""
    if len(text) <= LONG:
        return [(0, len(text))]
    start, end = typed_ends(text)
    first, last = text.find("\n\n", 0, EDGE), text.rfind("\n\n", len(text) - EDGE) + 2
    head = min(start, first if first >= 0 else _line_end(text))
    tail = max(end, last) if last >= 2 + head else len(text)
    return [span for span in ((0, head), (tail, len(text))) if span[0] < span[1]]


def _line_end(text: str) -> int:
    """Where the first line ends, at most `EDGE`."""
    found = text.find("\n", 0, EDGE)
    return found if found >= 0 else EDGE


def lines_of_message(message: Message, spans: Sequence[Span]) -> str:
    """The text of these lines, with a mark for what is between them."""
    text = message.own_text()
    return f"\n{GAP}\n".join(text[start:end].strip() for start, end in spans)


def shortened(message: Message, spans: Sequence[Span]) -> Message:
    """A message with these lines of its text only; the same message if it has something else than one text."""
    parts = message.parts()
    if len(parts) != 1 or parts[0].kind is not PartKind.TEXT or not parts[0].editable:
        return message
    return message.edit([(parts[0], f"{lines_of_message(message, spans)}\n{GAP}")], SHORTENED)


def agreements(texts: Sequence[str], asked: str) -> list[float]:
    """How well each of these texts agrees with what is asked: the sum of the rarities among them of the words that they
    share. 0 for none."""
    if not texts:
        return []
    wanted = _stems(ends(asked))
    shared = [_stems(text) & wanted for text in texts]
    times = Counter(word for words in shared for word in words)
    return [sum(math.log(1 + len(texts) / times[word]) for word in words) for words in shared]


def _stems(text: str) -> set[str]:
    return {word[:PREFIX] for word in content_words(text)}
