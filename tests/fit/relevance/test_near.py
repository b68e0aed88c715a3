"""Which lines of a very long text are read closely."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.asked import Asked
from proxy.fit.relevance.near import near
from proxy.fit.relevance.splitting import tokens_by_line

LOG = ["10:00:00 INFO a worker is done with its part of all the work"] * 900  # 61 characters each, with the line break
ENDS = [*range(50), *range(850, 900)]  # what is read of it where nothing else is wanted


def read(lines: list[str], asked: str = "", characters: int = 9_150) -> list[int]:
    return list(near(lines, tokens_by_line(lines), Asked(asked), characters))


def test_a_text_that_is_not_long_is_read_whole() -> None:
    assert read(LOG, characters=900 * 61) == list(range(900)) and read([""]) == [0]


def test_of_a_long_one_both_ends_are_read_and_elsewhere_what_the_question_names_with_its_neighbours() -> None:
    lines = [*LOG[:450], "10:00:30 INFO the Budget of src/harbour.py was exceeded", *LOG[451:]]
    assert read(lines, "Is it absent of the text?") == ENDS
    for asked in ("What of the budget?", "src/harbour.py", "the `harbour.py was`"):
        assert read(lines, asked) == [*ENDS[:50], 449, 450, 451, *ENDS[50:]]


def test_trouble_is_read_whatever_is_asked() -> None:
    for trouble in ("10:00:30 FATAL crane down", "java.io.IOException", "the crane failed"):
        assert {449, 450, 451} < {*read([*LOG[:450], trouble, *LOG[451:]])}


def test_the_rarest_words_come_first_where_not_all_can_be_read() -> None:
    lines = [*LOG[:600], "10:00:00 INFO a worker and a crane are done", *LOG[601:]]
    found = read(lines, "worker crane")
    assert [place for place in found if 100 < place < 850] == [599, 600, 601]
    assert found[:98] == [*range(98)] and len(found) == 98 + 3 + 50 and found[-50:] == ENDS[50:]


def test_the_rarest_is_read_however_long_it_is() -> None:
    assert read([*["x" * 400] * 9, "budget " * 100, *["x" * 400] * 9], "budget", 900) == [0, 8, 9, 10, 18]


def test_the_first_and_the_last_line_are_read_however_long_they_are() -> None:
    assert read(["x" * 900] * 9, characters=30) == [0, 8] and read(["x" * 900], characters=30) == [0]


@given(st.lists(st.sampled_from(["a b", "ERROR", "", "x " * 30]), min_size=1, max_size=60), st.integers(0, 400))
def test_places_are_in_order_and_within_about_the_characters(lines: list[str], most: int) -> None:
    found = read(lines, "b", most)
    assert found == sorted({*found}) and all(0 <= place < len(lines) for place in found)
    assert len(found) == len(lines) or sum(len(lines[place]) + 1 for place in found) <= most + 5 * 61
