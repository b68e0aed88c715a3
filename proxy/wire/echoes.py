"""Whether an error quotes what a client sent: words and figures that a request itself contains prove nothing.

An upstream may quote in any form: with quotes and escapes, in another case, cut off, blanks folded. So letters and
digits alone are compared, in lower case, whatever stands between them. It is strict: where a request happens to say
what an upstream says, nothing is learned from this refusal, which costs a later request a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from proxy.model.outcome import Quote

LONGEST = 8 << 20  # bytes of a request that are searched; a longer one proves nothing
PIECE = 32_768  # bytes that are read at once, in which no other thread runs: 2 ms
TAIL = 4_096  # letters before a piece in which a passage may begin; no error is read further
# Letters and digits as escapes: no encoder of JSON writes them so.
DISGUISED = re.compile(rb"\\u00(?:3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])")
# What JSON writes for a character, and what errors are folded by (`wire.refusals.folded`).
ESCAPE = re.compile(r"\\+u([0-9a-f]{4})|(?<!\\)\\[bf]|\\+[nrt]?|&gt;")
DROPPED = bytes(code for code in range(128) if not chr(code).isalnum())
BETWEEN = re.compile(r"[\W_]+")
PART = re.compile(rb".*(?:[] ,.:;/+(){}<>=\"-]|[^\\](?=\\))", re.DOTALL)  # ends within no character and no escape


def echoes(quotes: Iterable[Quote], *said: bytes) -> bool:
    """Whether any of these passages of an error stands in what a client said."""
    if sum(map(len, said)) > LONGEST:
        return True
    passages = {passage for quote in quotes for passage in _passages(quote)}
    return bool(passages) and any(_stand_in(passages, text.lower()) for text in said)


def _passages(quote: Quote) -> Iterator[str]:
    """What to look for: a figure beside a word that stands beside it in the error, too; of any other passage its
    words. Those at its ends may be cut off."""
    words = "".join(quote.words)
    if words and not quote.figure:
        yield words
    if quote.figure and quote.before:
        yield quote.before + words
    if quote.figure and quote.after:
        yield words + quote.after


def _stand_in(passages: set[str], text: bytes) -> bool:
    if DISGUISED.search(text):
        return True
    before = ""
    for piece in _pieces(text):
        if piece is None:
            return True
        plain = before + _letters(ESCAPE.sub(_letter, piece.decode(errors="replace")))
        if any(passage in plain for passage in passages):
            return True
        before = plain[-TAIL:]
    return False


def _pieces(text: bytes) -> Iterator[bytes | None]:
    """A text in parts; None, and no more, where it cannot be parted for too long."""
    start = 0
    while start < len(text):
        end = len(text)
        if end - start > PIECE:
            part = PART.match(text, start, start + PIECE)
            if part is None:
                yield None
                return
            end = part.end()
        yield text[start:end]
        start = end


def _letters(text: str) -> str:
    """Letters and digits alone, in lower case."""
    plain = text.encode(errors="replace").translate(None, DROPPED).decode()
    return plain if plain.isascii() else BETWEEN.sub("", plain).lower()


def _letter(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else ""
