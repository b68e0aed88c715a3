"""Many short texts that are read once for one question."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.text.bm25 import query
from proxy.fit.relevance.text.short_text_bm25 import (
    MISSES,
    bm25_scores,
    bm25_scores_of_batches,
    fill,
    largest_fitting,
    literal_scores,
)
from proxy.fit.relevance.text.splitting import tokens

TEXTS = ["the files of users", "userName = getFile()", "nothing of the kind", "", "файл пользователя"]


def matched(words: dict[str, float], *, english: bool = True, texts: list[str] = TEXTS) -> list[float]:
    return bm25_scores([tokens(text) for text in texts], query(words, english).keys(), english)


def test_identifiers_match_by_their_parts_and_in_english_by_stems() -> None:
    scores = matched({"file": 1, "user": 1})
    assert scores[0] > 0 and scores[1] > 0 and scores[2:] == [0.0, 0.0, 0.0]
    assert matched({"file": 1}, english=False)[0] == 0.0 < matched({"file": 1}, english=False)[1]


def test_other_scripts_match_too() -> None:
    assert matched({"файл": 1}, english=False)[4] > 0


def test_a_rare_word_is_worth_more_and_a_repeated_one_less_each_time() -> None:
    texts = ["common rare", "common", "common", "common common common"]
    scores = matched({"rare": 1}, texts=texts)[0], matched({"common": 1}, texts=texts)[1]
    assert scores[0] > scores[1]
    one, three = matched({"common": 1}, texts=["common", "common common common", "x"])[:2]
    assert one < three < 3 * one


def test_the_weight_of_a_word_counts() -> None:
    assert matched({"file": 3})[1] == pytest.approx(3 * matched({"file": 1})[1])


def test_nothing_matches_nothing() -> None:
    assert matched({}) == [0.0] * 5 and matched({"a": 1}, texts=[]) == []


def test_a_literal_counts_only_as_a_whole_and_less_where_it_is_common() -> None:
    texts = ["id 55475 here", "id 554751", "A 55475.", "x", "x"]
    assert literal_scores(texts, ["55475"]) == pytest.approx([0.5**0.5, 0, 0.5**0.5, 0, 0])
    assert literal_scores(["ab"] * 4, ["ab"]) == [0.0] * 4
    assert literal_scores(["Src/A.py", "b", "c"], ["src/a.py"]) == [1.0, 0.0, 0.0]
    assert literal_scores(texts, []) == [0.0] * 5


def test_what_fits_is_taken_in_order_of_preference() -> None:
    costs = [50, 30, 40, 10]

    def cost(place: int, chosen: Collection[int]) -> int:
        return costs[place] - (5 if place - 1 in chosen else 0)

    assert fill([2, 0, 3, 1], cost, 70) == [2, 3]
    assert fill([0, 1], cost, 75) == [0, 1]  # beside the first the second is cheaper


def test_after_many_that_do_not_fit_the_rest_is_not_even_counted() -> None:
    counted = []

    def cost(place: int, chosen: Collection[int]) -> int:
        counted.append(place)
        return 100

    assert fill(range(10_000), cost, 10) == []
    assert len(counted) == MISSES + 1


def test_what_is_known_to_cost_more_than_there_is_room_is_not_counted() -> None:
    counted = []

    def cost(place: int, chosen: Collection[int]) -> int:
        counted.append(place)
        return 5

    assert fill(range(4), cost, 8, lambda place: 3 if place else 9) == [1]
    assert counted == [1, 2, 3]


def test_no_more_is_counted_once_the_room_is_full() -> None:
    assert fill(range(10), lambda place, chosen: 5, 10) == [0, 1]


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_most_that_fits_is_rendered(count: int, limit: int) -> None:
    found = largest_fitting(lambda n: "x" * n, count, lambda text: len(text) <= limit)
    assert found == ("x" * min(count, limit) if min(count, limit) else None)


def test_a_literal_is_found_in_texts_that_hold_line_breaks() -> None:
    texts = ["one\nSrc/A.py", "two", "three\nfour"]
    assert literal_scores(texts, ["src/a.py"]) == [1.0, 0.0, 0.0] == literal_scores([texts[0], "", ""], ["src/a.py"])


@pytest.mark.parametrize("english", [True, False])
@pytest.mark.parametrize(
    "asked", ["flies stopping name", "fly 灯塔 naive", "a", "", " ".join(f"w{i}" for i in range(100)) + " fly"]
)
def test_texts_in_batches_have_the_same_scores(asked: str, english: bool) -> None:
    texts = ["The flies stopped", "getUserName of the fly", "naïve flying", "港口有灯塔", "ＦＬＹ stop", "", "no"]
    rows = [tokens(text) for text in texts]
    keys = query(dict.fromkeys(asked.split(), 1), english).keys()
    expected = bm25_scores(rows, keys, english)
    assert bm25_scores_of_batches([rows[:5], rows[5:6], rows[6:]], keys, english) == pytest.approx(expected)
    assert any(expected) or "fl" not in asked or not english


def test_the_pairs_of_a_text_without_blanks_take_no_memory_while_it_is_searched() -> None:
    line = "".join(chr(0x4E00 + i * i % 4999) for i in range(400))
    texts = [[chr(0x4E00 + i) + line] for i in range(200)]
    tracemalloc.start()
    bm25_scores_of_batches([texts], {line[:2]: 1.0}, False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 200 * 401 * 3
