"""How near old turns are to a question: what is wanted for it, what it comes to, and how it is mixed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.fit.relevance.history.embedding_scores import KIND, WEIGHT, Embedded, likeness, mixed, rescaled, said
from proxy.fit.relevance.text.question import USER_HEAD, USER_TAIL, question_in
from proxy.fit.relevance.text.vectors import quantize
from proxy.model.conversation import Block
from proxy.model.plan import Facts, Want
from proxy.model.structs import replace
from tests.makers import assistant, draft, facts, tool_round, user

PLAIN = facts(1000)
QUESTION = "Where is the boat?"


def blocks(*messages: dict[str, Any]) -> Sequence[Block]:
    return draft(messages, 10**6).blocks


CHAT = blocks(user("Hi"), assistant("The vessel lies at pier four."), user("Fine"))


def wanted(chat: Sequence[Block] = CHAT, question: str = QUESTION, model: str = "emb") -> Want:
    found = likeness(chat, question_in(question), model, PLAIN)
    assert isinstance(found, Want)
    return found


def told(vectors: Any, want: Want | None = None) -> Facts:
    return replace(PLAIN, knowledge={(want or wanted()).key: vectors})


def test_without_a_model_nothing_is_wanted() -> None:
    assert likeness(CHAT, question_in(QUESTION), "", PLAIN) is None


@pytest.mark.parametrize(("chat", "question"), [((), QUESTION), (CHAT, " \n"), (blocks(user(""), assistant(" ")), "x")])
def test_where_there_is_nothing_to_compare_nothing_is_wanted(chat: Sequence[Block], question: str) -> None:
    assert likeness(chat, question_in(question), "emb", PLAIN) is None


def test_each_text_is_wanted_once_and_the_question() -> None:
    want = wanted([*CHAT, *CHAT])
    assert want.kind == KIND and want.payload.model == "emb"
    assert want.payload.question == QUESTION and want.parts == 4
    assert want.payload.texts == ("Hi", "The vessel lies at pier four.", "Fine")


def test_another_model_text_or_question_is_another_want_and_the_same_is_the_same() -> None:
    keys = [w.key for w in (wanted(), wanted(model="b"), wanted(question="Who?"), wanted(CHAT[1:]))]
    assert len(set(keys)) == 4 and wanted().key == keys[0] and "boat" not in keys[0]


def test_of_a_long_text_its_ends_are_wanted_and_of_tools_what_the_model_said() -> None:
    long = wanted(blocks(user("x" * 9_000)), "y" * 9_000).payload
    assert {len(text) for text in (long.question, *long.texts)} == {USER_HEAD + USER_TAIL + 1}
    (block,) = blocks(*tool_round("c", "a long result"))
    assert said(block) == ""


def test_the_nearest_is_one_and_what_is_no_nearer_than_most_is_zero() -> None:
    vectors = {"Hi": quantize([0, 1]), "Fine": quantize([0, 1]), "The vessel lies at pier four.": quantize([1, 0.1])}
    found = likeness(CHAT, question_in(QUESTION), "emb", told(Embedded(quantize([1, 0]), vectors)))
    assert found == [0.0, 1.0, 0.0]


def test_W29_a_text_without_a_vector_keeps_the_score_of_its_words() -> None:
    vectors = {"Hi": quantize([0, 1]), "The vessel lies at pier four.": quantize([1, 0.1])}
    found = likeness(CHAT, question_in(QUESTION), "emb", told(Embedded(quantize([1, 0]), vectors)))
    assert found == [0.0, 1.0, 0.0]
    assert mixed([1.0, 1.0, 2.0], found) == [1.0, 1.0 + 2 * WEIGHT, 2.0]


def test_a_block_that_is_left_out_is_not_wanted() -> None:
    found = likeness([CHAT[0], None, CHAT[2]], question_in(QUESTION), "emb", PLAIN)
    assert isinstance(found, Want) and found.payload.texts == ("Hi", "Fine")


@pytest.mark.parametrize("answer", ["", None, Embedded(quantize([1.0])), Embedded(None, {"Hi": quantize([1.0])})])
def test_what_could_not_be_had_is_as_if_it_were_off(answer: Any) -> None:
    assert likeness(CHAT, question_in(QUESTION), "emb", told(answer)) is None


def test_what_has_no_text_stands_out_by_nothing() -> None:
    chat = [*CHAT, *blocks(*tool_round("c", "result"))]
    texts = {text: quantize([float(i + 1), 1.0]) for i, text in enumerate(wanted(chat).payload.texts)}
    vectors = Embedded(quantize([9.0, 1.0]), texts)
    found = likeness(chat, question_in(QUESTION), "emb", told(vectors, wanted(chat)))
    assert isinstance(found, list) and found[-1] == 0.0 and max(found) == 1.0


def test_only_differences_count_not_a_models_own_scale() -> None:
    low, high = rescaled([0.1, 0.2, 0.6]), rescaled([0.80, 0.81, 0.85])
    assert low == pytest.approx(high) and low[2] == 1.0 and low[0] == 0.0
    assert rescaled([0.7, 0.7, None]) == [0.0] * 3 and rescaled([]) == []


def test_a_share_is_added_to_what_the_words_say() -> None:
    assert mixed([4.0, 2.0, 0.0], [0.0, 1.0, 0.5]) == [4.0, 2.0 + 4 * WEIGHT, 2 * WEIGHT]
    assert mixed([4.0, 2.0], None) == [4.0, 2.0]


def test_where_no_word_is_found_meaning_alone_ranks() -> None:
    assert mixed([0.0, 0.0], [0.0, 1.0]) == [0.0, WEIGHT]
