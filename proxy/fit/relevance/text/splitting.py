"""Splits text into tokens: identifiers, numbers and words, as written. It does not interpret them (see `words`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat

PIECE = 1 << 16  # characters for one regular-expression call, which holds the GIL for about 2 ms
LINE_BATCH = 512  # lines that are split together

# Combining marks, which belong to the letter before them and which `\w` excludes: accents, vowel points and signs.
MARKS = (
    r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff"
    r"\u0f18-\u0fbc\u1000-\u109f\u1780-\u17d3"
)
# Runs of letters, digits and "_@#$", joined by "./:+-": a path, a dotted name or a date is one token. All quantifiers
# are possessive, so no input causes backtracking. ASCII comes first in the class because it is matched fastest.
WORD = r"[A-Za-z0-9_@#$\w]"
TOKEN = re.compile(rf"{WORD}++(?:[{MARKS}./:+-]++{WORD}++)*+[{MARKS}]*+")
NON_ASCII_WORD = re.compile(rf"[{MARKS}\w]")
# ASCII text is split at blanks instead, which is faster; every character that is neither in a token nor joins one is
# replaced by a blank first.
JOINERS = "./:+-"
ASCII = bytes(range(128))
SEPARATED = "".join(c if c in f"_@#$\n{JOINERS}" or c.isalnum() else " " for c in map(chr, ASCII))


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order. A text longer than `PIECE` characters is split in pieces."""
    if len(text) > PIECE:
        return [token for piece in pieces(text) for token in tokens(piece)]
    plain = _ascii(text)
    return TOKEN.findall(text) if plain is None else _split(plain.translate(SEPARATED))


def tokens_by_line(lines: Sequence[str]) -> list[list[str]]:
    """The tokens of each line; lines must not contain line breaks. Faster than calling `tokens` for each."""
    found: list[list[str]] = []
    for start in range(0, len(lines), LINE_BATCH):
        batch = lines[start : start + LINE_BATCH]
        plain = _ascii("\n".join(batch)) if sum(map(len, batch)) + len(batch) <= PIECE else None
        found += map(tokens, batch) if plain is None else map(_split, plain.translate(SEPARATED).split("\n"))
    return found


def _split(text: str) -> list[str]:
    """The tokens between blanks, without joiners at their ends."""
    return list(filter(None, map(str.strip, text.split(), repeat(JOINERS))))


def _ascii(text: str) -> str | None:
    """The text with "?" for each character that is not ASCII. None if one of those is a letter, a digit or a mark: it
    may be part of a token."""
    if text.isascii():
        return text
    others = set(text.encode("utf-8", "surrogatepass").translate(None, ASCII).decode("utf-8", "surrogatepass"))
    return None if NON_ASCII_WORD.search("".join(others)) else text.encode("ascii", "replace").decode()


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of at most `PIECE` characters, cut at line ends, else at blanks, else anywhere."""
    start = 0
    while len(text) - start > PIECE:
        limit = start + PIECE
        end = max(text.rfind("\n", start, limit), text.rfind(" ", limit - 256, limit)) + 1
        end = end if end > start else limit
        yield text[start:end]
        start = end
    yield text[start:]


def count_tokens(found: Sequence[str]) -> Counter[str]:
    """The number of occurrences of each token, in order of first appearance. Counted in pieces, because one long call
    would hold the GIL."""
    if len(found) <= PIECE:
        return Counter(found)
    counts: Counter[str] = Counter()
    rest = iter(found)
    while piece := list(islice(rest, PIECE)):
        counts.update(piece)
    return counts


def distinct_tokens(texts: Iterable[Collection[str]]) -> set[str]:
    """The distinct tokens of many texts, collected in pieces for the same reason."""
    distinct: set[str] = set()
    rest = chain.from_iterable(texts)
    while piece := list(islice(rest, PIECE)):
        distinct.update(piece)
    return distinct
