"""The word table: how near two English words are in meaning, without a model; it is data, distilled once."""

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
HEADER = struct.Struct("<4sHIII")  # magic, bits a word, words, bytes of the packed word list, reserved
MAGIC = b"PLW1"
NEAREST = 30  # neighbours of a word that are looked at
LEAST_SIMILAR = 0.25  # what is less alike than this is noise


class WordTable:
    """Vectors of one sign bit a dimension: the angle between two words shows in how many bits differ."""

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
        self._furthest = max(d for d, alike in enumerate(self.similarity) if alike >= LEAST_SIMILAR)

    def __len__(self) -> int:
        return len(self._row)

    def vector(self, word: str) -> int | None:
        """The bits of a word as one number; None for a word that is not in the table."""
        row = self._row.get(word)
        return (
            None
            if row is None
            else int.from_bytes(self._vectors[row * self._bytes : (row + 1) * self._bytes], "little")
        )

    def nearest(self, vector: int, vocabulary: Iterable[tuple[int, str]]) -> list[tuple[float, str]]:
        """The words of a vocabulary (vector, word) most alike to a vector, with their similarity, nearest first."""
        furthest = self._furthest
        found = [(differ, word) for other, word in vocabulary if (differ := (vector ^ other).bit_count()) <= furthest]
        return [(self.similarity[differ], word) for differ, word in nsmallest(NEAREST, found)]


@cache
def word_table() -> WordTable:
    """The shipped table, read at its first use. Raises `ValueError` where it is not the file that was published."""
    data = get_data("proxy.fit.relevance", FILE) or b""
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise ValueError(f"{FILE}: not the published table")
    return WordTable(data)
