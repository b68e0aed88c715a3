"""Turns tokens into the words by which they are matched: a token in lower case, its parts, and in English its stems.

It also recognises identifiers and English text. Texts in other languages are matched by their words as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import compress
from operator import itemgetter, mul

from proxy.fit.relevance.text.memo import MemoTable
from proxy.fit.relevance.text.severity import severity_of
from proxy.fit.relevance.text.splitting import MARKS

LONGEST = 80  # characters of an identifier; a longer token (hash, base64) is matched by its parts only
BLOB = 512  # characters of one token that are split into parts; more of a base64 image would add nothing
KNOWN_ENGLISH = 0.10  # share of `ENGLISH` words: English chats and minutes have .15 to .30, other languages under .05
SHORTEST_NAME = 7  # characters of an identifier; a shorter one may recur by accident
CACHED_TOKENS, CACHED_CHARACTERS = 1 << 15, 1 << 18
SOUGHT = 64  # words that are searched for at once: the time of a search grows with their number
PREFIX = 5  # letters by which the words of a language without a stemmer are matched (McNamee et al. 2009)
SHORT_TEXT = 6  # words; a shorter text may be English without containing a function word

ASCII_PART = re.compile(r"[a-z]+|[0-9]+|[A-Z][a-z]+|[A-Z]+(?![a-z])")
# Scripts without blanks between words (and Korean, which attaches its particles): matched by pairs of characters.
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
# (ending, replacement) by the last letter of a word; the first that fits is applied.
SUFFIXES = {
    "s": (("ies", "y"), ("sses", "ss"), ("es", ""), ("s", "")),
    "g": (("ing", ""),),
    "d": (("ed", ""),),
    "y": (("edly", ""), ("ly", "")),
}


def parts(token: str) -> tuple[str, ...]:
    """The words by which a token is matched, in lower case: itself and, if it is compound, its parts."""
    return KNOWN[token][1]


def identifiers_in(found: Collection[str]) -> frozenset[str]:
    """The identifiers among tokens: compound, containing letters, and at least `SHORTEST_NAME` characters long."""
    return frozenset(compress(found, map(NAMED, map(KNOWN.__getitem__, found))))


def severities(found: Collection[str]) -> dict[str, int]:
    """The tokens about trouble, with their severity (`severity_of`)."""
    levels = list(map(SEVERITY, map(KNOWN.__getitem__, found)))
    return dict(compress(zip(found, levels, strict=True), levels))


def terms(found: Iterable[str], english: bool) -> Iterator[tuple[str, ...]]:
    """Yields for each token the words by which it is matched: its parts or, in English, their stems."""
    return map(STEMS if english else PARTS, map(KNOWN.__getitem__, found))


def containing(found: Iterable[str], wanted: Collection[str], english: bool) -> list[str]:
    """The tokens that may be matched by one of the words (stems, if `english`), and few others. Nothing is cached.

    A stem without its last letter begins each of its words.
    """
    least = {word[:-1] if english and len(word) > 1 else word for word in wanted}
    if not 0 < len(least) <= SOUGHT:
        return [*found] if least else []
    search = re.compile("|".join(map(re.escape, sorted(least)))).search
    return [token for token in found if search(folded(token))]


def folded(token: str) -> str:
    """A token as its parts are cut out of it."""
    if token.isascii():
        return token.lower()
    plain = unicodedata.normalize("NFKC", token).lower()
    if LATIN.fullmatch(plain):
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(c))
    return plain


Known = tuple[str, tuple[str, ...], tuple[str, ...], bool, int, int]


def _known(token: str) -> Known:
    """The token, its parts, their stems, whether it is an identifier, how many parts are English function words, and
    its severity. Plain words and numbers are handled first, because a conversation has thousands of new ones."""
    if not token.isascii():
        found = _other_parts(token)
    elif token.isdigit():
        number = (token[:BLOB],)
        return token, number, number, False, 0, 0
    else:
        lower = token.lower()
        if token.isalpha() and (lower == token or lower[1:] == token[1:]):
            word = (lower[:BLOB],)
            return token, word, (stem(lower[:BLOB]),), False, int(lower in ENGLISH), severity_of(token)
        found = _parts(token, lower)
    named = len(found) > 1 and SHORTEST_NAME <= len(token) <= LONGEST and any(map(str.isalpha, token))
    english = 0 if ENGLISH.isdisjoint(found) else sum(map(ENGLISH.__contains__, found))
    stems = tuple([stem(part) if part.isascii() and part.isalpha() else part for part in found])
    return token, found, stems, named, english, severity_of(token)


def _parts(token: str, lower: str) -> tuple[str, ...]:
    """The parts of a compound ASCII token; `lower` is the token in lower case."""
    split = ASCII_PART.findall(token[:BLOB])
    if lower != token:
        split = [part.lower() for part in split]
    if len(split) < 2:
        return tuple(split)
    long = [part for part in split if len(part) > 1 or part.isdigit()]
    return tuple(long) if len(token) > LONGEST else (lower, *long)


def _other_parts(token: str) -> tuple[str, ...]:
    plain = folded(token)
    found: list[str] = []
    for run in OTHER_PART.finditer(plain):
        found += _pairs(run[0]) if run[1] else [run[0]]
    if len(found) > 1 and len(plain) <= LONGEST and not any(run[1] for run in OTHER_PART.finditer(plain)):
        found.insert(0, plain)
    return tuple(found)


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] if len(run) > 1 else [run]


def words_of(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The number of occurrences of each word, from (token, occurrences), in order of first appearance."""
    words: dict[str, int] = {}
    for token, times in counts:
        for word in KNOWN[token][1]:
            words[word] = words.get(word, 0) + times
    return words


def summarised(times: Mapping[str, int]) -> tuple[tuple[str, ...], int, int, tuple[str, ...]]:
    """For tokens and their occurrences: the tokens (equal ones as one object, to save memory), the number of words, the
    number of English function words among them, and the identifiers."""
    known = list(map(KNOWN.__getitem__, times))
    found, counts = tuple(map(TOKEN_ITSELF, known)), times.values()
    length = sum(map(mul, counts, map(len, map(PARTS, known))))
    return found, length, sum(map(mul, counts, map(IN_ENGLISH, known))), tuple(compress(found, map(NAMED, known)))


def unescaped(text: str) -> str:
    """JSON text with escape sequences replaced by blanks: otherwise the `n` of `\\n` would join the next word."""
    return ESCAPED.sub(" ", text) if "\\" in text else text


def english_in(words: Mapping[str, int]) -> int:
    """The number of English function words among these words and their occurrences."""
    return sum(words[word] for word in ENGLISH & words.keys())


def is_english(words: Mapping[str, int]) -> bool:
    """Whether a text with these words and occurrences is certainly English."""
    return bool(words) and english_in(words) >= KNOWN_ENGLISH * sum(words.values())


def _stem(word: str) -> str:
    """The light stem of an English word: without plural, -ing, -ed, -ly. Any other word is returned as it is."""
    if not (word.isascii() and word.isalpha()):
        return word
    if len(word) > 4 and word[-1] in SUFFIXES:
        word = _without_suffix(word)
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def prefix(word: str) -> str:
    """The beginning of a word, by which words of other languages are matched: most of them inflect at the end."""
    return word[:PREFIX] if len(word) > PREFIX and word.isalpha() else word


def _without_suffix(word: str) -> str:
    for suffix, replacement in SUFFIXES[word[-1]]:
        if not word.endswith(suffix) or len(word) - len(suffix) < 3 or (suffix == "s" and word.endswith("ss")):
            continue
        short = word[: -len(suffix)] + replacement
        doubled = suffix in ("ing", "ed") and len(short) > 3 and short[-1] == short[-2] and short[-1] not in "lsz"
        return short[:-1] if doubled else short
    return word


stem = MemoTable(_stem, CACHED_TOKENS, LONGEST, CACHED_CHARACTERS).__getitem__
# Cached, because a conversation repeats the same few thousand tokens.
KNOWN: MemoTable[Known] = MemoTable(_known, CACHED_TOKENS, LONGEST, CACHED_CHARACTERS)
TOKEN_ITSELF, PARTS, STEMS, NAMED, IN_ENGLISH, SEVERITY = map(itemgetter, range(6))
