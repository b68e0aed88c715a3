"""Vectors in three bits a dimension: how near their cosines are to the true ones, and what has no direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from random import Random

import pytest

from proxy.fit.relevance.text.vectors import cosine, quantize

NOISE = Random(4)


def chance(size: int) -> list[float]:
    return [NOISE.gauss(0, 1) for _ in range(size)]


def truly(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(map(mul, one, one)) * sum(map(mul, other, other)))
    return float(sum(map(mul, one, other)) / lengths)


@pytest.mark.parametrize("size", [384, 1536, 3072])
def test_a_cosine_is_that_of_the_numbers_but_for_a_little(size: int) -> None:
    base = chance(size)
    for share in (0.0, 0.2, 0.5, 1.0, 2.0):
        other = [share * a + b for a, b in zip(base, chance(size), strict=True)]
        assert cosine(quantize(base), quantize(other)) == pytest.approx(truly(base, other), abs=0.06)


def test_the_same_direction_is_one_and_the_opposite_minus_one_whatever_the_length() -> None:
    base = chance(64)
    assert cosine(quantize(base), quantize([1e-3 * x for x in base])) == pytest.approx(1.0)
    assert cosine(quantize(base), quantize([-9.0 * x for x in base])) == pytest.approx(-1.0)


def test_it_is_symmetric_and_one_dimension_is_enough() -> None:
    one, other = quantize(chance(10)), quantize(chance(10))
    assert cosine(one, other) == cosine(other, one)
    assert cosine(quantize([2.0]), quantize([0.1])) == pytest.approx(1.0)


def test_its_bits_are_a_tenth_of_the_numbers_bytes() -> None:
    planes = quantize(chance(1536)).planes
    assert len(planes) == 3 and all(plane.bit_length() <= 1536 for plane in planes)


@pytest.mark.parametrize("numbers", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1e300, 1e300]])
def test_what_has_no_direction_is_no_vector(numbers: list[float]) -> None:
    with pytest.raises(ValueError):
        quantize(numbers)
