"""Which lines an excerpt leaves out, whatever its markers look like."""

from __future__ import annotations

import random

import pytest

from proxy.wire.omissions import MAX_LINES, omitted

TEXT = "\n".join(["a", "", "b", "", "c", "", "d", "x", "x", "e"])  # ten lines


@pytest.mark.parametrize(
    ("short", "ranges"),
    [
        (TEXT, []),
        ("a\n[8 lines left out]\ne", [(2, 9)]),
        ("[the beginning is left out]\nd\nx\nx\ne", [(1, 6)]),
        ("a\n\nb\n[the rest is left out]", [(4, 10)]),
        ("a\n...\n\nd\n...\ne", [(2, 5), (8, 9)]),  # the empty line before d, not the first one
        ("a\n\nd\ne", [(3, 6), (8, 9)]),  # without a marker
        ("[all of it is left out]", []),
        ("", [(1, 10)]),
        ("one\ntwo\nthree\na", []),  # a text written anew, in which a line stands by chance
    ],
)
def test_the_ranges_are_those_between_the_lines_that_stay(short: str, ranges: list[tuple[int, int]]) -> None:
    assert omitted(TEXT, short) == (10, ranges)


def test_an_excerpt_of_a_text_of_like_lines_is_accounted_for() -> None:
    dice = random.Random(5)
    lines = [dice.choice(["", "}", "    return", f"line {i}"]) for i in range(3_000)]
    kept = sorted(dice.sample(range(2_990), 40))
    left = sorted({place for start in kept for place in range(start, start + 10)})
    short: list[str] = []
    for place in left:
        if not short or place - 1 not in left:
            short.append("[...]")
        short.append(lines[place])
    _, ranges = omitted("\n".join(lines), "\n".join(short))
    gone = {place for first, last in ranges for place in range(first - 1, last)}
    assert len(gone) == 3_000 - len(left)
    assert len(gone & set(left)) <= 8  # an empty line at the border of a gap may stand for its like


def test_a_text_of_one_line_or_of_too_many_is_not_compared() -> None:
    assert omitted("one", "o") == (1, []) and omitted("", "") == (1, [])
    assert omitted("\n" * MAX_LINES, "") == (MAX_LINES + 1, [])
    assert omitted("\n" * (MAX_LINES - 1), "\n" * 9)[1] == [(11, MAX_LINES)]
