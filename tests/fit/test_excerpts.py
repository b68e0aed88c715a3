"""Excerpts of old messages within a room: the least worthy go until they fit."""

from __future__ import annotations

import json

import pytest

from proxy.fit.excerpts import fitting
from tests.makers import draft, user

TEXTS = [(2, "one two three four"), (5, "five six seven eight"), (9, "nine ten")]
WORTH = [0.2, 0.9, 0.5]


@pytest.mark.parametrize(
    ("spare", "held"),
    [(100, [0, 1, 2]), (-1, [1, 2]), (-4, [1, 2]), (-5, [1]), (-100, [])],
)
def test_the_least_worthy_go_until_it_fits(spare: int, held: list[int]) -> None:
    start = draft([user("question")], 1_000)
    whole, _ = fitting(start, TEXTS, WORTH, 1_000)
    assert whole is not None
    room = whole.tokens + spare
    block, kept = fitting(start, TEXTS, WORTH, room)
    assert kept == held
    if block is None:
        assert not held
    else:
        told = json.loads(block.messages[0].raw)["content"]
        assert block.pinned and block.tokens <= room
        assert [text in told for _, text in TEXTS] == [i in held for i in range(len(TEXTS))]
