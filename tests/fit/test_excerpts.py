"""Excerpts of old messages within a room: the least worthy go until they fit."""

from __future__ import annotations

import json

import pytest

from proxy.fit.excerpts import GAP, HEADING, Excerpt, excerpts, fitting, said
from tests.makers import draft, user

TEXTS = [Excerpt(2, "one two three four", 0.2), Excerpt(5, "five six seven eight", 0.9), Excerpt(9, "nine ten", 0.5)]


@pytest.mark.parametrize(
    ("spare", "held"),
    [(100, [0, 1, 2]), (-1, [1, 2]), (-4, [1, 2]), (-5, [1]), (-100, [])],
)
def test_the_least_worthy_go_until_it_fits(spare: int, held: list[int]) -> None:
    start = draft([user("question")], 1_000)
    whole, _ = fitting(start, TEXTS, 1_000)
    assert whole is not None
    room = whole.tokens + spare
    block, kept = fitting(start, TEXTS, room)
    assert kept == held
    if block is None:
        assert not held
    else:
        told = json.loads(block.messages[0].raw)["content"]
        assert block.pinned and block.tokens <= room
        assert [each.text in told for each in TEXTS] == [i in held for i in range(len(TEXTS))]


def test_quotes_name_the_file_that_they_are_from() -> None:
    sources = ("a.py", "a.py", "b.py", "", "a.py")
    chosen = [
        Excerpt(place, f"text {place}", 1.0, source) for place, source in zip((0, 4, 5, 6, 7), sources, strict=True)
    ]
    block = excerpts(draft([user("question")], 1_000), chosen)
    assert json.loads(block.messages[0].raw)["content"].split("\n") == [
        HEADING,
        *("from a.py:", "text 0", GAP, "text 4"),
        *("from b.py:", "text 5", GAP, "text 6"),
        *("from a.py:", "text 7"),
    ]


def test_a_turn_that_says_who_speaks_has_no_role_before_it() -> None:
    block = draft([user("[2024-05-08] Ada: I left the keys."), user("Note: they are blue.")], 1_000).blocks
    ada, note = block
    assert said(ada, {"ada", "ben"}) == "[2024-05-08] Ada: I left the keys."
    assert said(note, {"ada", "ben"}) == "user: Note: they are blue."
    assert said(ada) == "user: [2024-05-08] Ada: I left the keys."
