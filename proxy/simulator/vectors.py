"""Vectors without a model: the vector of a text is the sum of pseudo-random vectors of its words.

The vectors are reproducible. Texts that share words are similar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from hashlib import blake2b

DIMENSIONS = 256  # where the request sets no other number
WORD = re.compile(r"\w+")


def vector(text: str, size: int, synonyms: Mapping[str, str]) -> list[float]:
    """A unit vector of `size` dimensions."""
    sums = [0.0] * size
    for word in WORD.findall(text.lower()) or [text]:
        for i, sign in enumerate(_signs(synonyms.get(word, word), size)):
            sums[i] += sign
    length = math.sqrt(sum(x * x for x in sums)) or 1.0
    return [x / length for x in sums]


def _signs(word: str, size: int) -> list[int]:
    """The pseudo-random direction of a word: +1 or -1 in each dimension."""
    bits = b"".join(blake2b(b"%d" % i, key=word.encode()[:64]).digest() for i in range(size // 512 + 1))
    return [1 if bits[i >> 3] >> (i & 7) & 1 else -1 for i in range(size)]
