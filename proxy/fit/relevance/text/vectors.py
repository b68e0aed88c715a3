"""Embedding vectors quantised to three bits per dimension, and their cosine similarity. It calls no model.

Three bits keep a cosine within 0.02 (measured with 384 and 1536 dimensions) at a tenth of float32's size. They compare
about fifteen times as fast as floats in pure Python, with `int.bit_count()` on planes of bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import msgspec

BITS = 3
LEVELS = 1 << BITS
MIDDLE = (LEVELS - 1) / 2  # the digit that represents zero; it lies between two digits
# Width of a level as a share of the root mean square: the optimum for 8 equal levels and a normal distribution (Max,
# "Quantizing for minimum distortion", 1960).
STEP = 0.586
PLANES = [bytes(b"01"[byte >> bit & 1] for byte in range(256)) for bit in range(BITS)]


class Vector(msgspec.Struct, frozen=True, gc=False):
    """A quantised vector of `size` dimensions, each a digit from 0 to 7. `planes` contain the bits of all digits, the
    lowest bit first. `total` is the sum of the digits, `norm` the vector's length in levels."""

    size: int
    planes: tuple[int, ...]
    total: int
    norm: float


def quantize(numbers: Sequence[float]) -> Vector:
    """The quantised vector of these numbers. Raises ValueError if it has no direction: empty, all zero, not finite."""
    size = len(numbers)
    width = STEP * math.sqrt(sum(map(mul, numbers, numbers)) / max(1, size))
    if not width or not math.isfinite(width):
        raise ValueError("a vector without a direction")
    highest, middle = LEVELS - 1, LEVELS // 2
    digits = bytes([min(highest, max(0, math.floor(x / width) + middle)) for x in numbers])
    norm = math.sqrt(sum((digit - MIDDLE) ** 2 * digits.count(digit) for digit in range(LEVELS)))
    return Vector(size, tuple(int(digits.translate(plane), 2) for plane in PLANES), sum(digits), norm)


def cosine(one: Vector, other: Vector) -> float:
    """The cosine similarity of two vectors of one model, from -1 to 1: 1 for the same direction, about 0 for unrelated
    texts."""
    product = 0
    for i, left in enumerate(one.planes):
        for j, right in enumerate(other.planes):
            product += (left & right).bit_count() << (i + j)
    product_of_digits = product - MIDDLE * (one.total + other.total) + MIDDLE * MIDDLE * one.size
    return product_of_digits / (one.norm * other.norm)
