"""The words of a text, whole identifiers and their parts; it knows English from the rest, and folds only English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import compress
from operator import itemgetter, mul

from proxy.fit.relevance.text.heuristics import trouble_of
from proxy.fit.relevance.text.memo import Table
from proxy.fit.relevance.text.splitting import MARKS

LONGEST = 80  # characters of a whole identifier; what is longer (hashes, base64) is known by its parts alone
BLOB = 512  # characters of an unbroken ASCII run that are read; the rest of a base64 image tells nothing
KNOWN_ENGLISH = 0.10  # share of `ENGLISH` words: English chats and minutes have .15 to .30, other languages under .05
SHORTEST_NAME = 7  # characters of an identifier that is no accident
REMEMBERED = 1 << 15  # tokens of which what is known is remembered
FEW = 6  # words: a shorter text may be English without showing it

ASCII_PART = re.compile(r"[a-z]+|[0-9]+|[A-Z][a-z]+|[A-Z]+(?![a-z])")
# Scripts written without blanks between words (and Korean, which glues its particles on): read by pairs of characters.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
OTHER_PART = re.compile(rf"([{UNSPACED}\U00020000-\U0003ffff]++)|(?:(?![{UNSPACED}_\d])[\w{MARKS}])++|\d++")
LATIN = re.compile(r"[\x00-\u024f\u1e00-\u1eff]*")
ESCAPED = re.compile(r"\\[nrtbf\"/\\]|\\u[0-9a-fA-F]{4}")

ENGLISH = frozenset(
    "the and of to is that with what you it this are have how when where which who why does did from they she not"
    " has been would should could there their your".split()
)
STOP = ENGLISH | frozenset(
    "a an or but if then else in on at by for about as was were be being do done had i he we me him her us them my his"
    " its our these those whom whose no so than too very can will shall may might must here up down out over again"
    " into just also any some all both each few more most other such only own same am d ll m o re s t ve y".split()
)
STOP_TOKENS = STOP | {word.capitalize() for word in STOP}
# By the last letter; of each the first that fits.
ENDINGS = {
    "s": (("ies", "y"), ("sses", "ss"), ("es", ""), ("s", "")),
    "g": (("ing", ""),),
    "d": (("ed", ""),),
    "y": (("edly", ""), ("ly", "")),
}


def parts(token: str) -> tuple[str, ...]:
    """What a token is found by, in lower case: itself, and where it is compound, its parts."""
    return KNOWN[token][1]


def names_in(found: Collection[str]) -> frozenset[str]:
    """The identifiers among tokens: compound, with letters in them, and long enough to name one thing."""
    return frozenset(compress(found, map(NAMED, map(KNOWN.__getitem__, found))))


def trouble_in(found: Collection[str]) -> dict[str, int]:
    """The tokens that tell of trouble, and how loud (`trouble_of`)."""
    levels = list(map(TROUBLE, map(KNOWN.__getitem__, found)))
    return dict(compress(zip(found, levels, strict=True), levels))


def found_by(found: Iterable[str], english: bool) -> Iterator[tuple[str, ...]]:
    """What each token is found by: its parts, or in English their stems."""
    return map(STEMS if english else PARTS, map(KNOWN.__getitem__, found))


Known = tuple[str, tuple[str, ...], tuple[str, ...], bool, int, int]


def _known(token: str) -> Known:
    """A token, its parts and their stems, whether it is an identifier, how many of the parts only English uses often,
    and how loud it tells of trouble. Thousands are new in a conversation: what is simple is told first."""
    if not token.isascii():
        found = _other_parts(token)
    elif token.isdigit():
        number = (token[:BLOB],)
        return token, number, number, False, 0, 0
    else:
        lower = token.lower()
        if token.isalpha() and (lower == token or lower[1:] == token[1:]):
            word = (lower[:BLOB],)
            return token, word, (stem(lower[:BLOB]),), False, int(lower in ENGLISH), trouble_of(token)
        found = _parts(token, lower)
    named = len(found) > 1 and SHORTEST_NAME <= len(token) <= LONGEST and any(map(str.isalpha, token))
    english = 0 if ENGLISH.isdisjoint(found) else sum(map(ENGLISH.__contains__, found))
    stems = tuple([stem(part) if part.isalpha() else part for part in found])
    return token, found, stems, named, english, trouble_of(token)


def _parts(token: str, lower: str) -> tuple[str, ...]:
    """The parts of an ASCII token that is no plain word; `lower`: the token in lower case."""
    split = ASCII_PART.findall(token[:BLOB])
    if lower != token:
        split = [part.lower() for part in split]
    if len(split) < 2:
        return tuple(split)
    long = [part for part in split if len(part) > 1 or part.isdigit()]
    return tuple(long) if len(token) > LONGEST else (lower, *long)


def _other_parts(token: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKC", token).lower()
    if LATIN.fullmatch(plain):
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    found: list[str] = []
    for run in OTHER_PART.finditer(plain):
        found += _pairs(run[0]) if run[1] else [run[0]]
    if len(found) > 1 and len(plain) <= LONGEST and not any(run[1] for run in OTHER_PART.finditer(plain)):
        found.insert(0, plain)
    return tuple(found)


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] if len(run) > 1 else [run]


def words_of(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How often each word stands among tokens that stand there so often, in their order."""
    words: dict[str, int] = {}
    for token, times in counts:
        for word in parts(token):
            words[word] = words.get(word, 0) + times
    return words


def summed(times: Mapping[str, int]) -> tuple[tuple[str, ...], int, int, tuple[str, ...]]:
    """Of tokens that stand so often somewhere: the tokens themselves, each the one object that stands for all like it;
    how many words they are, how many of those only English uses often, and which tokens are identifiers."""
    known = list(map(KNOWN.__getitem__, times))
    found, counts = tuple(map(TOKEN_ITSELF, known)), times.values()
    length = sum(map(mul, counts, map(len, map(PARTS, known))))
    return found, length, sum(map(mul, counts, map(IN_ENGLISH, known))), tuple(compress(found, map(NAMED, known)))


def unescaped(text: str) -> str:
    """JSON or a call's arguments with its escapes made blanks, so that no `\\n` grows onto a word."""
    return ESCAPED.sub(" ", text) if "\\" in text else text


def english_in(words: Mapping[str, int]) -> int:
    """How many of these words are those that only English uses often."""
    return sum(words[word] for word in ENGLISH & words.keys())


def is_english(words: Mapping[str, int]) -> bool:
    """Whether a text of these words is known to be English."""
    return bool(words) and english_in(words) >= KNOWN_ENGLISH * sum(words.values())


def _stem(word: str) -> str:
    """An English word without its ending, lightly: plural, -ing, -ed, -ly. Anything else comes back as it is."""
    if not (word.isascii() and word.isalpha()):
        return word
    if len(word) > 4 and word[-1] in ENDINGS:
        word = _without_ending(word)
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def _without_ending(word: str) -> str:
    for ending, instead in ENDINGS[word[-1]]:
        if not word.endswith(ending) or len(word) - len(ending) < 3 or (ending == "s" and word.endswith("ss")):
            continue
        short = word[: -len(ending)] + instead
        doubled = ending in ("ing", "ed") and len(short) > 3 and short[-1] == short[-2] and short[-1] not in "lsz"
        return short[:-1] if doubled else short
    return word


stem = Table(_stem, REMEMBERED, LONGEST).__getitem__
# A conversation says the same few thousand tokens again and again.
KNOWN: Table[Known] = Table(_known, REMEMBERED, LONGEST)
TOKEN_ITSELF, PARTS, STEMS, NAMED, IN_ENGLISH, TROUBLE = map(itemgetter, range(6))
