"""The similarity of words in meaning, from shipped tables of bit vectors. They need no model at run time.

One table is of English words. Eight others, one a language, are of one space of meanings: a question in another
language than its conversation is compared with it by them. Each is loaded when it is first needed, these when the first
such question is asked. How they were made: NOTICE beside them.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from heapq import nsmallest
from pkgutil import get_data

FILE = "words512.bin"
SHA256 = "8c05a7bfdad25cbc5661b328a8a47e7eeb41f76a7ca8a72e4ea64249041ae44a"
LANGUAGE_FILE = "words256.{}.bin"
LANGUAGE_SHA256 = {
    "en": "d7605ee8d237f1d5b555e288955378ec17895bac02d7b7c3232b649ee8d00914",
    "de": "04901e6cd35907d7fe30eff9bc93063256cbc54fe1dfe1873817177a69bd8893",
    "fr": "57fea6ea89febe0685c2fe2d6e4d37e1b53c3a12d192a60540c626a629d384d4",
    "es": "b1af88792204b8cb688c0399605976108edb50431c2b0339bc0e31d23ff3b580",
    "it": "0be357ffde19b55f3e25dc063933c9cd26b642225a8f9d40c60778dba4a58b0d",
    "pt": "71edb9bc04c41826ca4d2e503518a399782adbbd2a500377f2481039ea2ab1f8",
    "ru": "ae460d9a5e8f4777ea2e6772f767da3dc2582eacb7236d2b52d82b851cae7e25",
    "zh": "95c9210c57adf5c6d53ea7d2a1c4e0015b0a1b14aecf538649abe968f919160e",
}
HEADER = struct.Struct("<4sHIII")  # magic, bits per word, number of words, bytes of the compressed words, reserved
MAGIC = b"PLW1"
NEAREST = 30  # similar words that are used for a word
LEAST_SIMILAR = 0.25  # a lower similarity is noise
TRANSLATIONS, LEAST_TRANSLATED = 10, 0.35  # the same for a word of another language (measured)
ENDING = 2  # letters that a form of such a word may have more than the word (measured), ...
SHORTEST = 4  # ... which has so many at least


class WordTable:
    """A vector for each word, one sign bit per dimension. The share of bits that differ estimates the angle between two
    words. Raises ValueError if `data` is not a word table.

    `compact`: words are known by a checksum each, which needs a tenth of a dictionary's memory. `ending`: letters that
    a form of a word may have more than the word. `nearest`, `least`: how many words are similar to one, and their least
    similarity."""

    def __init__(
        self,
        data: bytes,
        *,
        compact: bool = False,
        ending: int = 0,
        nearest: int = NEAREST,
        least: float = LEAST_SIMILAR,
    ) -> None:
        magic, bits, count, packed, _ = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise ValueError("not a word table")
        start = HEADER.size + packed
        words = zlib.decompress(data[HEADER.size : start]).decode().split("\n")[:count]
        self._row = _Checksums(words).get if compact else {word: row for row, word in enumerate(words)}.get
        self._vectors = memoryview(data)[start:]
        self._length, self._bytes, self._ending, self._nearest = len(words), bits // 8, ending, nearest
        self.similarity = tuple(math.sin(math.pi / 2 * (1 - 2 * differ / bits)) for differ in range(bits + 1))
        self._max_distance = max(d for d, similar in enumerate(self.similarity) if similar >= least)

    def __len__(self) -> int:
        return self._length

    def vector(self, word: str) -> int | None:
        """The vector of a word as one number; None if neither the word is in the table nor one of which it may be a
        form."""
        row = self._row(word)
        for end in range(len(word) - 1, max(len(word) - self._ending, SHORTEST) - 1, -1):
            row = self._row(word[:end]) if row is None else row
        return (
            None
            if row is None
            else int.from_bytes(self._vectors[row * self._bytes : (row + 1) * self._bytes], "little")
        )

    def rarity(self, word: str) -> float:
        """How rare a word is in the table's language: 0 for the most frequent, 1 for the rarest and for a word that the
        table does not contain. The table's words are in order of frequency."""
        row = self._row(word)
        return 1.0 if row is None else math.log1p(row) / math.log(self._length)

    def nearest(self, vector: int, vocabulary: Iterable[tuple[int, str]]) -> list[tuple[float, str]]:
        """The words of a vocabulary of (vector, word) that are similar to a vector, the most similar first, as
        (similarity, word)."""
        max_distance = self._max_distance
        found = [(bits, word) for other, word in vocabulary if (bits := (vector ^ other).bit_count()) <= max_distance]
        return [(self.similarity[bits], word) for bits, word in nsmallest(self._nearest, found)]


class _Checksums:
    """The rows of words by a checksum of each. Any other word passes for one with a chance of 1 in 100,000."""

    def __init__(self, words: list[str]) -> None:
        sums = list(map(_checksum, words))
        self._rows = array("I", sorted(range(len(sums)), key=sums.__getitem__))
        self._sums = array("I", map(sums.__getitem__, self._rows))

    def get(self, word: str) -> int | None:
        """The row of a word; None if there is none."""
        wanted = _checksum(word)
        place = bisect_left(self._sums, wanted)
        return self._rows[place] if place < len(self._sums) and self._sums[place] == wanted else None


def _checksum(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


@cache
def word_table() -> WordTable:
    """The shipped table of English, loaded at its first use. Raises ValueError if the file is not the published one."""
    return WordTable(_published(FILE, SHA256))


@cache
def language_table(language: str) -> WordTable:
    """The shipped table of a language (its code), loaded at its first use. Raises ValueError if the file is not the
    published one, KeyError if there is none."""
    data = _published(LANGUAGE_FILE.format(language), LANGUAGE_SHA256[language])
    return WordTable(data, compact=True, ending=ENDING, nearest=TRANSLATIONS, least=LEAST_TRANSLATED)


def _published(file: str, digest: str) -> bytes:
    data = get_data("proxy.fit.relevance", file) or b""
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{file}: not the published table")
    return data
