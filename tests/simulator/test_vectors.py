"""The simulator's vectors: texts are alike that share words, or what they mean."""

from __future__ import annotations

from operator import mul

import pytest

from proxy.simulator.vectors import DIMENSIONS, vector


def alike(one: str, other: str, **synonyms: str) -> float:
    return float(sum(map(mul, vector(one, DIMENSIONS, synonyms), vector(other, DIMENSIONS, synonyms))))


def test_texts_are_alike_that_share_words_or_synonyms() -> None:
    assert alike("a boat", "A boat!") == pytest.approx(1.0)
    assert alike("boat", "vessel") < 0.3 < 0.99 < alike("boat", "vessel", vessel="boat")
    assert alike("the red boat", "a red hat") > alike("the red boat", "some other thing") + 0.2
    assert alike("!?", "!?") == pytest.approx(1.0)


def test_a_vector_has_length_one_and_as_many_dimensions_as_it_should() -> None:
    for size in (1, 256, 700):
        found = vector("the red boat", size, {})
        assert len(found) == size and sum(x * x for x in found) == pytest.approx(1.0)
