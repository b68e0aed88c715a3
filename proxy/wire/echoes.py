"""Whether an error quotes the request: words and figures that the client itself sent prove nothing.

An upstream may quote in any form: with quotes and escapes, in another case, truncated, with whitespace folded.
Therefore only letters and digits are compared, in lower case. The test is strict: if a request happens to contain the
upstream's own words, nothing is learned from the refusal, which costs a later request a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from proxy.model.outcome import Quote

LONGEST = 8 << 20  # bytes of a request that are searched; for a longer one the answer is yes
PIECE = 32_768  # bytes that are searched at once, while no other thread can run: 2 ms
TAIL = 4_096  # letters before a piece in which a passage may begin; passages are never longer
# Letters and digits as escapes: no JSON encoder writes them so.
DISGUISED = re.compile(rb"\\u00(?:3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])")
# Escapes in JSON, and what `wire.refusals.folded` replaces.
ESCAPE = re.compile(r"\\+u([0-9a-f]{4})|(?<!\\)\\[bf]|\\+[nrt]?|&gt;")
DROPPED = bytes(code for code in range(128) if not chr(code).isalnum())
BETWEEN = re.compile(r"[\W_]+")
PART = re.compile(rb".*(?:[] ,.:;/+(){}<>=\"-]|[^\\](?=\\))", re.DOTALL)  # does not end inside a character or an escape


def echoes(quotes: Iterable[Quote], *sent: bytes) -> bool:
    """Whether one of these passages of an error is in one of the texts that the client sent."""
    if sum(map(len, sent)) > LONGEST:
        return True
    passages = {passage for quote in quotes for passage in _passages(quote)}
    return bool(passages) and any(_is_in(passages, text.lower()) for text in sent)


def _passages(quote: Quote) -> Iterator[str]:
    """The texts to search: a figure with the word before or after it; of any other passage its words."""
    words = "".join(quote.words)
    if words and not quote.figure:
        yield words
    if quote.figure and quote.before:
        yield quote.before + words
    if quote.figure and quote.after:
        yield words + quote.after


def _is_in(passages: set[str], text: bytes) -> bool:
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
    """The text in pieces; None at the end if there is no place to split it."""
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
    """The letters and digits of a text, in lower case."""
    plain = text.encode(errors="replace").translate(None, DROPPED).decode()
    return plain if plain.isascii() else BETWEEN.sub("", plain).lower()


def _letter(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else ""
