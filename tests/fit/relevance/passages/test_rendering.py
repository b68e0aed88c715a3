"""The text that stays, with notes of what is missing."""

from __future__ import annotations

import pytest

from proxy.fit.relevance.passages.rendering import render
from proxy.fit.relevance.passages.splitting import split

LINES = "".join(f"this is line number {i}\n" for i in range(1, 13))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (range(12), LINES),
        ([1, 2], "[… line 1 of 12 left out …]\nthis is line number 2\nthis is line number 3\n[…4-12]"),
        ([0, 4, 6, 11], "this is line number 1\n[… lines 2 to 4 of 12 left out …]\nthis is line number 5\n[…6]\n"
         "this is line number 7\n[…8-11]\nthis is line number 12\n"),
        ([], "[… lines 1 to 12 of 12 left out …]"),
    ],
)  # fmt: skip
def test_the_first_note_is_a_sentence_and_the_others_are_ranges(chosen: list[int], expected: str) -> None:
    assert render(split(LINES), chosen) == expected


def test_a_line_as_short_as_the_note_stays() -> None:
    assert render(split("a long enough line\n}\nanother long line\n"), [0, 2]).splitlines()[1] == "}"


def test_pieces_of_one_line_are_counted_in_characters() -> None:
    passages = split("word " * 1000)
    made = render(passages, [0, 5, 12])
    assert f" [… {4 * 400} characters left out …] " in made and made.count(" […] ") == 1 and len(passages) == 13


def test_a_gap_that_begins_inside_a_line_names_the_lines_after_it() -> None:
    passages = split("word " * 400 + "\nsecond line of the text\nthird line of the text\n")
    assert render(passages, [0, 7]).splitlines() == [
        passages[0].text, "[… line 2 of 3 left out …]", "third line of the text",
    ]  # fmt: skip


def test_the_first_note_says_how_many_of_how_many_are_shown() -> None:
    made = render(split(LINES), [1, 4], "2 of 9 results shown in part")
    assert made.count("2 of 9 results shown in part …]") == 1 and made.startswith("[… line 1 of 12 left out; 2 of 9")


def test_a_text_stands_for_a_span_with_the_line_break_of_its_last_passage() -> None:
    made = render(split(LINES), [0, 2, 5, 11], "", {(2, 6): "INSTEAD"}).splitlines()
    assert made[0] == "this is line number 1" and made[2] == "INSTEAD" and made[3] == "[…7-11]"
