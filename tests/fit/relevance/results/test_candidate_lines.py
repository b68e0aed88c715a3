"""Which lines of a very long text are read closely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.results.candidate_lines import candidate_lines
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.splitting import tokens_by_line

LOG = ["10:00:00 INFO a worker is done with its part of all the work"] * 900  # 61 characters each, with the line break
ENDS = [*range(50), *range(850, 900)]  # what is read of it where nothing else is wanted


def read(lines: list[str], asked: str = "", characters: int = 18_300) -> list[int]:
    return list(candidate_lines(lines, tokens_by_line(lines), ResultQuery(asked), characters))


def test_a_text_that_is_not_long_is_read_whole() -> None:
    assert read(LOG, characters=900 * 61) == list(range(900)) and read([""]) == [0]


def test_of_a_long_one_both_ends_are_read_and_elsewhere_what_the_question_names_with_its_neighbours() -> None:
    lines = [*LOG[:450], "10:00:30 INFO the Budget of src/harbour.py was exceeded", *LOG[451:]]
    assert read(lines, "Is it absent of the text?") == [*ENDS[:50], 450, *ENDS[50:]]  # a rare shape
    for asked in ("What of the budget?", "Which budgets?", "src/harbour.py", "the `harbour.py was`"):
        assert read(lines, asked) == [*ENDS[:50], *range(447, 454), *ENDS[50:]]


@pytest.mark.parametrize("word", ["réponse", "Größe", "ＢＵＤＧＥＴ", "予算は", "бюджет", "예산이", "งบประมาณ"])
def test_words_of_every_language_are_found(word: str) -> None:
    lines = [*LOG[:450], f"10:00:30 INFO {word} 7", *LOG[451:]]
    assert 449 in read(lines, f"{word}?") and 449 not in read(lines, "absent")


def test_trouble_is_read_whatever_is_asked_and_then_the_outline() -> None:
    for told in ("10:00:30 FATAL crane down", "java.io.IOException", "the crane failed", "10:00:30 EMERG"):
        assert {*range(447, 454)} < {*read([*LOG[:450], told, *LOG[451:]])}
    for outline in ("def moor(self):", "## Berths"):
        assert read([*LOG[:450], outline, *LOG[451:]]) == [*ENDS[:50], 450, *ENDS[50:]]


def test_a_line_of_a_rare_shape_is_read_whatever_is_asked() -> None:
    lines = [f"10:00:{i % 60:02} INFO worker {i:03} is done with its part of all the work" for i in range(900)]
    lines[450] = "10:00:30 INFO harbour 450 is shut for the night and opens at dawn"
    assert 450 in read(lines) and 449 not in read(lines)


def test_the_rarest_words_come_first_where_not_all_can_be_read() -> None:
    lines = [*LOG[:600], "10:00:00 INFO a worker and a crane are done", *LOG[601:]]
    middle = [place for place in read(lines, "worker crane") if 50 <= place < 850]
    assert middle == [*range(50, 243), *range(597, 604)]


def test_what_is_too_long_stands_in_nobodys_way() -> None:
    lines = ["x" * 600] * 90
    lines[30] = "budget budgets " + "y" * 990
    lines[50] = "the budget"
    assert 50 in read(lines, "budget or budgets?", 1_800)
    assert read(lines, "budget or budgets?", 4_200)[2:-2] == [30, 50]


def test_the_first_and_the_last_line_are_read_however_long_they_are() -> None:
    for most in (0, 30):
        assert read(["x" * 900] * 9, "", most) == [0, 8] and read(["x" * 900], "", most) == [0]


@given(st.lists(st.sampled_from(["a b", "ERROR", "", "x " * 30]), min_size=1, max_size=60), st.integers(0, 400))
def test_places_are_in_order_and_within_the_characters_but_for_two_lines(lines: list[str], most: int) -> None:
    found = read(lines, "b", most)
    assert found == sorted({*found}) and all(0 <= place < len(lines) for place in found)
    assert len(found) == len(lines) or sum(len(lines[place]) + 1 for place in found) <= most + 2 * 61
