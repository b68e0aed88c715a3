"""What the last user turn asks."""

from __future__ import annotations

from typing import Any

from proxy.fit.blocks import group
from proxy.fit.relevance.text.question import USER_HEAD, USER_TAIL, Clause, Question, ends, question_in, question_of
from proxy.model.conversation import Block
from proxy.model.structs import replace
from tests.makers import assistant, prompt, system, user


def blocks(*messages: dict[str, Any]) -> tuple[Block, ...]:
    return group(prompt(messages).messages)


def test_the_question_is_what_the_last_user_message_asks_and_where_it_stands() -> None:
    found = question_of(blocks(system("s"), user("first?"), user("second?"), assistant("done")))
    assert found is not None and (found.text, found.place, found.spans) == ("second?", 2, ((0, 7),))


def test_without_a_user_message_there_is_no_question() -> None:
    assert question_of(()) is None and question_of(blocks(system("s"), assistant("a"))) is None


def test_a_message_of_the_proxy_asks_nothing() -> None:
    first, own = blocks(user("first?"), user("[Excerpts]"))
    written = replace(own, messages=tuple(replace(m, index=-1) for m in own.messages))
    found = question_of((first, written))
    assert found is not None and found.text == "first?"


def test_of_a_long_text_its_ends_are_the_question() -> None:
    text = "".join(chr(97 + i % 26) for i in range(9_000))
    found = question_in(text)
    assert found.text == ends(text) == f"{text[:USER_HEAD]}\n{text[-USER_TAIL:]}"
    assert [text[start:end] for start, end in found.spans] == [clause.text for clause in found.clauses]


def test_a_clause_of_an_earlier_message_has_no_span() -> None:
    assert Question((Clause("who?", 1.0, 0, 4), Clause("before", 0.5))).spans == ((0, 4),)
