"""Splits text into tokens: every identifier, number and word as it stands; what a token means it does not know."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat

PIECE = 1 << 16  # characters that one pattern call may read: it holds the interpreter's lock, about 2 ms for so many
TOGETHER = 512  # lines that are read together

# Signs that belong to the letter before them and that `\w` leaves out: accents, vowel points, the Indic vowel signs.
MARKS = (
    r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff"
    r"\u0f18-\u0fbc\u1000-\u109f\u1780-\u17d3"
)
# Runs of letters, digits and "_@#$", joined by "./:+-": a path, a dotted name, a date is one token. Possessive
# throughout, so no input makes it look twice at a character. What is ASCII is named first: it is found fastest.
WORD = r"[A-Za-z0-9_@#$\w]"
TOKEN = re.compile(rf"{WORD}++(?:[{MARKS}./:+-]++{WORD}++)*+[{MARKS}]*+")
OTHER_SIGN = re.compile(rf"[{MARKS}\w]")
# A text that is ASCII is split instead, which is faster: what is neither in a token nor joins one becomes a blank.
JOINTS = "./:+-"
ASCII = bytes(range(128))
APART = "".join(c if c in f"_@#$\n{JOINTS}" or c.isalnum() else " " for c in map(chr, ASCII))


def tokens(text: str) -> list[str]:
    """Every identifier, number and word as it stands. Long texts are read a piece at a time."""
    if len(text) > PIECE:
        return [token for piece in pieces(text) for token in tokens(piece)]
    plain = _ascii(text)
    return TOKEN.findall(text) if plain is None else _split(plain.translate(APART))


def tokens_by_line(lines: Sequence[str]) -> list[list[str]]:
    """The tokens of each of many lines, which hold no line break; read together they cost less than one by one."""
    found: list[list[str]] = []
    for start in range(0, len(lines), TOGETHER):
        some = lines[start : start + TOGETHER]
        whole = "\n".join(some)
        plain = _ascii(whole) if len(whole) <= PIECE else None
        found += map(tokens, some) if plain is None else map(_split, plain.translate(APART).split("\n"))
    return found


def _split(text: str) -> list[str]:
    """The tokens between blanks: what joins them stands at no token's end, and is none itself."""
    return list(filter(None, map(str.strip, text.split(), repeat(JOINTS))))


def _ascii(text: str) -> str | None:
    """The text with one "?" for every sign that is not ASCII: an arrow or a bullet is in no token. None where one of
    them is a letter, a digit or a mark."""
    if text.isascii():
        return text
    others = set(text.encode("utf-8", "surrogatepass").translate(None, ASCII).decode("utf-8", "surrogatepass"))
    return None if OTHER_SIGN.search("".join(others)) else text.encode("ascii", "replace").decode()


def pieces(text: str) -> Iterator[str]:
    """The text in parts of at most `PIECE` characters, parted at line ends, else at blanks, where there are any."""
    start = 0
    while len(text) - start > PIECE:
        limit = start + PIECE
        end = max(text.rfind("\n", start, limit), text.rfind(" ", limit - 256, limit)) + 1
        end = end if end > start else limit
        yield text[start:end]
        start = end
    yield text[start:]


def times_of(found: Iterable[str]) -> Counter[str]:
    """How often each token stands there; counted in pieces, for a long call would hold the interpreter's lock."""
    times: Counter[str] = Counter()
    rest = iter(found)
    while piece := list(islice(rest, PIECE)):
        times.update(piece)
    return times


def every(found: Iterable[Collection[str]]) -> set[str]:
    """All tokens of many texts, likewise."""
    tokens: set[str] = set()
    rest = chain.from_iterable(found)
    while piece := list(islice(rest, PIECE)):
        tokens.update(piece)
    return tokens
