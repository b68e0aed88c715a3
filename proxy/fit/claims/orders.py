"""Finds what users said that holds for later answers: orders, preferences, lasting facts. It claims nothing.

Nobody gives orders by what they quote or paste: of a long message only the first and the last paragraph are read, and
the turns of a transcript were said by others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from proxy.fit.claims.signs import SignReader
from proxy.fit.relevance.passages.pasted import typed_ends
from proxy.fit.relevance.text.memo import digest
from proxy.fit.relevance.text.question import content_words, ends
from proxy.model.bounded import Bounded
from proxy.model.conversation import Message, PartKind

LONG = 1200  # characters from which only the first and the last paragraph of a message are its author's for sure, ...
EDGE = 1000  # ... if they are no longer than this; else as much of them
PREFIX = 5  # letters by which words are the same, as in chats of any language (`words.PREFIX`)
GAP = "[…]"  # between lines that are left of a message
SHORTENED = "what holds for later answers, of a longer message"
CACHED, CACHED_BYTES = 20_000, 4 << 20
Span = tuple[int, int]
FOUND: Bounded[int, tuple[Span, ...]] = Bounded(CACHED, CACHED_BYTES)


def orders_of(message: Message, reader: SignReader) -> tuple[Span, ...]:
    """The lines of a message's own text that have orders, as (start, end) in characters. Cached."""
    key = digest(message.raw, reader.key)
    found = FOUND.get(key)
    if found is None:
        found = tuple(_lines_with_orders(message.own_text(), reader))
        FOUND.put(key, found, 100 + 32 * len(found))
    return found


def has_signs(message: Message, reader: SignReader, most: int) -> bool:
    """Whether a message of at most `most` characters has signs. Cached."""
    if len(message.raw) > 2 * most:
        return False
    key = digest(message.raw, reader.key)
    found = FOUND.get(key)
    if found is None:
        text = message.own_text()
        found = tuple(islice(reader.clauses(text), 1)) if len(text) <= most else ()
        FOUND.put(key, found, 100 + 32 * len(found))
    return bool(found)


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
