"""The lines of results, and the numbers before them."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.results.shown_lines import MOST_LINES, NONE, shown, shown_parts
from tests.makers import message

LINES = ["def work(a):", "    return a", "", "class Crane:", "    pass"]


@pytest.mark.parametrize(
    "style", ["{:6}\t{}", "{:>5}→{}", "{}|{}", "{}: {}", "{}:{}", "L{}: {}", "{:4} → {}", "{} | {}"]
)
def test_numbers_are_read_in_any_usual_form_and_the_texts_behind_them_are_the_same(style: str) -> None:
    first, later = ("\n".join(style.format(k + n, line) for k, line in enumerate(LINES)) for n in (1, 41))
    one, other = shown(first), shown(later)
    assert list(one.numbers) == [1, 2, 3, 4, 5] and list(other.numbers) == [41, 42, 43, 44, 45]
    assert list(one.contents) == list(other.contents) and one.key != other.key
    assert one.size == len(first) + 1


def test_lines_around_the_numbered_ones_have_no_number() -> None:
    text = "\n".join(["<file>", *[f"{k}: {line}" for k, line in enumerate(LINES, 7)], "</file>"])
    assert list(shown(text).numbers) == [NONE, 7, 8, 9, 10, 11, NONE]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"12:30:{k:02} a line of a log" for k in range(20)),
        "\n".join(f"{k * 7}: a hit of a search" for k in range(20)),
        "\n".join(["1: one", "2: two", *["plain"] * 20]),
        "plain\n" * 20,
        "",
    ],
)
def test_times_hits_and_plain_texts_are_not_numbered(text: str) -> None:
    found = shown(text)
    assert not found.numbers and len(found.contents) == len(text.split("\n"))


def test_of_a_message_the_long_results_are_read_with_how_they_start() -> None:
    text = "  Error: no\n" + "x\n" * 40
    read = message({"role": "tool", "tool_call_id": "c", "content": text}, answers=("c",))
    (part,) = shown_parts(read, 50)
    assert (part.call, part.place, part.alone, part.json) == ("c", 0, True, False) and part.start.startswith(
        "error: no"
    )
    assert shown_parts(read, 5_000) == ()
    rows = message({"role": "tool", "tool_call_id": "c", "content": '[{"a": 1},\n{"a": 2}]\n'}, answers=("c",))
    assert shown_parts(rows, 1)[0].json


def test_a_text_of_very_many_lines_is_compared_as_one() -> None:
    found = shown("\n" * MOST_LINES)
    assert len(found.contents) == 1 and found.size == MOST_LINES and found.lines == frozenset()
    assert len(shown("a line\n" * (MOST_LINES - 1)).contents) == MOST_LINES
