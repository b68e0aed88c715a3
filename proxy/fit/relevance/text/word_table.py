"""The similarity of English words in meaning, from a shipped table of bit vectors. It needs no model at run time."""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from heapq import nsmallest
from pkgutil import get_data

FILE = "words512.bin"  # see NOTICE beside it
SHA256 = "8c05a7bfdad25cbc5661b328a8a47e7eeb41f76a7ca8a72e4ea64249041ae44a"
HEADER = struct.Struct("<4sHIII")  # magic, bits per word, number of words, bytes of the compressed words, reserved
MAGIC = b"PLW1"
NEAREST = 30  # similar words that are used for a word
LEAST_SIMILAR = 0.25  # a lower similarity is noise


class WordTable:
    """A vector for each word, one sign bit per dimension. The share of bits that differ estimates the angle between two
    words. Raises ValueError if `data` is not a word table."""

    def __init__(self, data: bytes) -> None:
        magic, bits, count, packed, _ = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise ValueError("not a word table")
        start = HEADER.size + packed
        words = zlib.decompress(data[HEADER.size : start]).decode().split("\n")
        self._row = {word: row for row, word in enumerate(words[:count])}
        self._vectors = memoryview(data)[start:]
        self._bytes = bits // 8
        self.similarity = tuple(math.sin(math.pi / 2 * (1 - 2 * differ / bits)) for differ in range(bits + 1))
        self._max_distance = max(d for d, similar in enumerate(self.similarity) if similar >= LEAST_SIMILAR)

    def __len__(self) -> int:
        return len(self._row)

    def vector(self, word: str) -> int | None:
        """The vector of a word as one number; None if the word is not in the table."""
        row = self._row.get(word)
        return (
            None
            if row is None
            else int.from_bytes(self._vectors[row * self._bytes : (row + 1) * self._bytes], "little")
        )

    def rarity(self, word: str) -> float:
        """How rare a word is in English: 0 for the most frequent, 1 for the rarest and for a word that the table does
        not contain. The table's words are in order of frequency."""
        row = self._row.get(word)
        return 1.0 if row is None else math.log1p(row) / math.log(len(self._row))

    def nearest(self, vector: int, vocabulary: Iterable[tuple[int, str]]) -> list[tuple[float, str]]:
        """At most `NEAREST` words of a vocabulary of (vector, word), the most similar first, as (similarity, word)."""
        max_distance = self._max_distance
        found = [(bits, word) for other, word in vocabulary if (bits := (vector ^ other).bit_count()) <= max_distance]
        return [(self.similarity[bits], word) for bits, word in nsmallest(NEAREST, found)]


@cache
def word_table() -> WordTable:
    """The shipped table, loaded at its first use. Raises ValueError if the file is not the published one."""
    data = get_data("proxy.fit.relevance", FILE) or b""
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise ValueError(f"{FILE}: not the published table")
    return WordTable(data)
