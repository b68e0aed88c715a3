"""Turns of a chat, ranked for a question and chosen for a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.relevance.history import turns as ranking
from proxy.fit.relevance.history.turns import (
    NEIGHBOURS,
    WINDOW,
    by_worth,
    choose_turns,
    shared,
    smoothed,
)
from proxy.fit.relevance.text.bm25 import Document
from proxy.fit.relevance.text.question import question_in
from proxy.fit.relevance.text.reading import read_text

FILLER = "This is what they would have said to you about it"


def turns(*texts: str) -> list[Document]:
    return [(read_text(text),) for text in texts]


def rank_turns(chat: Sequence[Document], text: str, **more: Any) -> list[float]:
    return ranking.rank_turns(chat, question_in(text), **more)


def order(found: list[float]) -> list[int]:
    return sorted(range(len(found)), key=lambda place: -found[place])


def test_the_turn_that_answers_is_worth_one_and_its_neighbours_a_share() -> None:
    texts = [f"{FILLER} {i}" for i in range(60)]
    texts[20] = "We went to the museum with your mother"
    ranked = rank_turns(turns(*texts), "When did you go to the museum?")
    assert ranked[20] == 1.0 and order(ranked)[:3] == [20, 19, 21]
    assert ranked[21] > ranked[22] > ranked[23] > ranked[24] > ranked[30] > 0
    assert ranked[55] == 0.0


def test_meaning_may_be_left_out() -> None:
    chat = turns("The kids are at the beach with you", "There is the budget that you have")
    assert rank_turns(chat, "What did the children do?", meaning=False) == [0.0, 0.0]
    assert rank_turns(chat, "What did the children do?")[0] == 1.0


def test_of_two_speakers_the_one_that_is_named_is_preferred() -> None:
    line = "I have been painting what you like"
    chat = turns(f"Ann: {line}", f"Bob: {line}", f"Ann: {FILLER}", f"Bob: {FILLER}")
    both, bob = rank_turns(chat, "Who did the painting?"), rank_turns(chat, "What did Bob paint?")
    assert bob[1] / bob[0] > both[1] / both[0]
    assert rank_turns(chat, "What did Ann and Bob paint?")[1] / both[1] == pytest.approx(1.0)


def test_in_a_meeting_the_turns_of_who_is_named_count_before_neighbours_share() -> None:
    said = "I think that the remote should have a display"
    chat = turns(*[f"{who}: {said}" for who in ("Marketing", "Industrial Designer", "Grad G") * 2])
    ranked = rank_turns(chat, "What did the Industrial Designer think about the display?")
    assert order(ranked)[0] in (1, 4)


def test_a_date_in_the_question_prefers_the_turns_of_that_month() -> None:
    chat = turns(
        "[2023-05-08] Ann: We went to the museum with you",
        *[f"[2023-06-{day:02}] Ann: {FILLER}" for day in range(1, 30)],
        "[2023-07-08] Ann: We went to the museum with you",
    )
    ranked = rank_turns(chat, "Which museum did you go to in July 2023?")
    assert ranked[-1] == 1.0 > ranked[0]
    assert rank_turns(chat, "Which museum did you go to?")[0] == pytest.approx(1.0, abs=0.1)


def test_where_nothing_bears_on_the_question_all_is_worth_nothing() -> None:
    assert rank_turns(turns("alpha", "beta"), "gamma") == [0.0, 0.0]
    assert rank_turns([], "gamma") == []


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0, 12))
def test_smoothing_is_what_its_description_says(scores: list[float], weight: float) -> None:
    found = smoothed(scores, weight)
    for place, value in enumerate(found):
        near = sum(
            share * scores[other]
            for away, share in enumerate(NEIGHBOURS, 1)
            for other in (place - away, place + away)
            if 0 <= other < len(scores)
        )
        around = sum(scores[max(0, place - WINDOW) : place + WINDOW + 1]) / (2 * WINDOW + 1)
        assert value == pytest.approx(scores[place] + near + weight * around, abs=1e-6)


def test_the_best_for_their_cost_are_chosen_after_the_newest_exchange() -> None:
    scores = [0.9, 0.1, 0.8, 0.0, 0.0, 0.0]
    assert choose_turns(scores, [10, 10, 10, 10, 10, 10], 40) == {5: 0.0, 4: 0.0, 0: 0.9, 2: 0.8}


def test_a_share_may_be_kept_for_the_newest_and_what_is_left_over_is_theirs() -> None:
    scores = [0.9, 0.0, 0.0, 0.0]
    assert set(choose_turns(scores, [10] * 4, 30, newest=1.0)) == {1, 2, 3}
    assert set(choose_turns(scores, [10] * 4, 30, exchange=0)) == {0, 2, 3}


def test_what_does_not_fit_is_passed_over() -> None:
    assert set(choose_turns([0.9, 0.8, 0.1], [100, 10, 10], 25, exchange=0)) == {1, 2}
    assert choose_turns([1.0], [10], 5) == {}


def test_a_turn_stays_only_with_the_one_that_closes_it() -> None:
    scores, costs = [0.1, 0.9, 0.2, 0.0, 0.0], [10, 10, 10, 10, 10]
    assert set(choose_turns(scores, costs, 40, closing={1: 2})) == {1, 2, 3, 4}
    assert set(choose_turns(scores, costs, 30, closing={1: 2})) == {2, 3, 4}  # there is no room for both
    assert set(choose_turns(scores, costs, 40, closing={1: 4})) == {1, 2, 3, 4}  # it stays anyway


def test_of_equals_the_cheaper_and_then_the_older_comes_first() -> None:
    assert by_worth([1.0, 1.0, 1.0, 0.0], [20, 10, 10, 1], 0.15) == [1, 2, 0]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50)), max_size=40),
    st.integers(0, 400),
    st.floats(0, 1),
    st.integers(0, 5),
)
def test_what_is_chosen_always_fits(pairs: list[tuple[float, int]], room: int, newest: float, exchange: int) -> None:
    scores, costs = [score for score, _ in pairs], [cost for _, cost in pairs]
    chosen = choose_turns(scores, costs, room, newest=newest, exchange=exchange)
    assert sum(costs[place] for place in chosen) <= room


def test_a_turn_that_only_means_what_the_question_says_is_found_by_embeddings() -> None:
    texts = [f"{FILLER} {i}" for i in range(60)]
    near = [0.0] * 60
    near[20] = 1.0
    assert rank_turns(turns(*texts), "zxq vbn") == [0.0] * 60
    assert order(rank_turns(turns(*texts), "zxq vbn", alike=near))[0] == 20


def test_embeddings_that_say_nothing_change_nothing() -> None:
    chat = turns("We went to the museum", "You would have said it", "They are at the beach")
    plain = rank_turns(chat, "When did you go to the museum?")
    assert rank_turns(chat, "When did you go to the museum?", alike=[0.0] * 3) == plain


@given(st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=2, max_size=4))
def test_rows_that_share_the_room_have_their_best_equally_high_and_nothing_of_no_worth(rows: list[list[float]]) -> None:
    found = shared(rows)
    for row in rows:
        best = max(range(6), key=row.__getitem__)
        assert row[best] == 0 or found[best] == pytest.approx(sum(map(max, rows)) / len(rows))
    for place, score in enumerate(found):
        assert (score > 0) <= any(row[place] > 0 for row in rows)


def test_one_row_and_its_copy_are_that_row() -> None:
    assert shared([[0.5, 1.0, 0.0], [0.5, 1.0, 0.0]]) == [0.5, 1.0, 0.0]


def test_what_a_turn_needs_may_need_another_one() -> None:
    scores, costs = [0.1, 0.0, 0.0, 1.0, 0.0], [10, 10, 10, 10, 10]
    assert set(choose_turns(scores, costs, 30, exchange=0, closing={3: 2, 2: 1})) == {1, 2, 3}
    assert 3 not in choose_turns(scores, costs, 20, exchange=0, closing={3: 2, 2: 1, 4: 3})
