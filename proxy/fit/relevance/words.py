"""The words of a text, whole identifiers and their parts; it knows English from the rest, and folds only English."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import compress, islice
from operator import itemgetter, mul

PIECE = 1 << 16  # characters that one pattern call may read: it holds the interpreter's lock, about 2 ms for so many
LONGEST = 80  # characters of a whole identifier; what is longer (hashes, base64) is known by its parts alone
BLOB = 512  # characters of an unbroken ASCII run that are read; the rest of a base64 image tells nothing
KNOWN_ENGLISH = 0.10  # share of `ENGLISH` words: English chats and minutes have .15 to .30, other languages under .05
SHORTEST_NAME = 7  # characters of an identifier that is no accident
FEW = 6  # words: a shorter text may be English without showing it

# Signs that belong to the letter before them and that `\w` leaves out: accents, vowel points, the Indic vowel signs.
MARKS = (
    r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff\u0e00-\u0eff"
    r"\u0f18-\u0fbc\u1000-\u109f\u1780-\u17d3"
)
# Runs of letters, digits and "_@#$", joined by "./:+-": a path, a dotted name, a date is one token. Possessive
# throughout, so no input makes it look twice at a character. What is ASCII is named first: it is found fastest.
WORD = r"[A-Za-z0-9_@#$\w]"
TOKEN = re.compile(rf"{WORD}++(?:[{MARKS}./:+-]++{WORD}++)*+[{MARKS}]*+")
ASCII_TOKEN = re.compile(r"[A-Za-z0-9_@#$]++(?:[./:+-]++[A-Za-z0-9_@#$]++)*+")  # the same, for a text that is ASCII
ASCII_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
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
ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""))


def tokens(text: str) -> list[str]:
    """Every identifier, number and word as it stands. Long texts are read a line or a piece at a time."""
    if len(text) <= PIECE:
        return (ASCII_TOKEN if text.isascii() else TOKEN).findall(text)
    return [token for piece in pieces(text) for token in TOKEN.findall(piece)]


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


def parts(token: str) -> tuple[str, ...]:
    """What a token is found by, in lower case: itself, and where it is compound, its parts."""
    return _known(token)[0] if len(token) <= LONGEST else _parts(token)


def names_in(found: Collection[str]) -> frozenset[str]:
    """The identifiers among tokens: compound, with letters in them, and long enough to name one thing."""
    short = [token for token in found if SHORTEST_NAME <= len(token) <= LONGEST]
    return frozenset(compress(short, map(itemgetter(1), map(_known, short))))


def stems(token: str) -> tuple[str, ...]:
    """The stems of a token's parts."""
    return _known_stems(token) if len(token) <= LONGEST else tuple(map(stem, _parts(token)))


def found_by(found: Collection[str], english: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tokens, each with what it is found by: its parts, or in English their stems."""
    short = [token for token in found if len(token) <= LONGEST]
    forms = map(_known_stems, short) if english else map(itemgetter(0), map(_known, short))
    yield from zip(short, forms, strict=True)
    if len(short) < len(found):
        known = stems if english else parts
        yield from ((token, known(token)) for token in found if len(token) > LONGEST)


@lru_cache(maxsize=1 << 15)
def _known_stems(token: str) -> tuple[str, ...]:
    return tuple(map(stem, _known(token)[0]))


@lru_cache(maxsize=1 << 15)
def _known(token: str) -> tuple[tuple[str, ...], bool, int]:
    """A token's parts, whether it is an identifier, and how many of the parts only English uses often; a conversation
    says the same few thousand again and again."""
    found = _parts(token)
    named = SHORTEST_NAME <= len(token) and len(found) > 1 and any(map(str.isalpha, token))
    return found, named, sum(map(ENGLISH.__contains__, found))


def _parts(token: str) -> tuple[str, ...]:
    if not token.isascii():
        return _other_parts(token)
    if token.isdigit() or (token.isalpha() and (token[1:].islower() or len(token) == 1)):
        return (token[:BLOB].lower(),)
    found = [part.lower() for part in ASCII_PART.findall(token[:BLOB])]
    if len(found) < 2:
        return tuple(found)
    told = [part for part in found if len(part) > 1 or part.isdigit()]
    return (token.lower(), *told) if len(token) <= LONGEST else tuple(told)


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


def counted(found: Iterable[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """How often each word stands among tokens, in order of first appearance; and the identifiers among them."""
    times = times_of(found)
    return words_of(times.items()), summed(times)[2]


def words_of(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How often each word stands among tokens that stand there so often, in their order."""
    words: dict[str, int] = {}
    for token, times in counts:
        for word in parts(token):
            words[word] = words.get(word, 0) + times
    return words


def _facts(token: str) -> tuple[tuple[str, ...], bool, int]:
    return _known(token) if len(token) <= LONGEST else (_parts(token), False, 0)


def summed(times: Mapping[str, int]) -> tuple[int, int, tuple[str, ...]]:
    """Of tokens that stand so often somewhere: how many words they are, how many of those only English uses often, and
    which tokens are identifiers."""
    known = list(map(_facts, times))
    length = sum(map(mul, times.values(), map(len, map(itemgetter(0), known))))
    return (
        length,
        sum(map(mul, times.values(), map(itemgetter(2), known))),
        tuple(compress(times, map(itemgetter(1), known))),
    )


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
    for some in found:
        tokens.update(some)
    return tokens


def unescaped(text: str) -> str:
    """JSON or a call's arguments with its escapes made blanks, so that no `\\n` grows onto a word."""
    return ESCAPED.sub(" ", text) if "\\" in text else text


def english_in(words: Mapping[str, int]) -> int:
    """How many of these words are those that only English uses often."""
    return sum(words[word] for word in ENGLISH & words.keys())


def is_english(words: Mapping[str, int]) -> bool:
    """Whether a text of these words is known to be English."""
    return bool(words) and english_in(words) >= KNOWN_ENGLISH * sum(words.values())


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """An English word without its ending, lightly: plural, -ing, -ed, -ly. Anything else comes back as it is."""
    if not (word.isascii() and word.isalpha()):
        return word
    if len(word) > 4:
        word = _without_ending(word)
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def _without_ending(word: str) -> str:
    for ending, instead in ENDINGS:
        if not word.endswith(ending) or len(word) - len(ending) < 3 or (ending == "s" and word.endswith("ss")):
            continue
        short = word[: -len(ending)] + instead
        doubled = ending in ("ing", "ed") and len(short) > 3 and short[-1] == short[-2] and short[-1] not in "lsz"
        return short[:-1] if doubled else short
    return word
