"""Where the question of a tool result stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fit.blocks import group
from proxy.fit.relevance.results.sources import ARGUMENTS, MAX_FOLLOWED, Source, UserMessage, sources
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.relevance.text.question import USER_HEAD, USER_TAIL
from proxy.model.conversation import Block
from tests.makers import assistant, message, prompt, system, tool_round, user, words


def blocks(*messages: dict[str, Any]) -> tuple[Block, ...]:
    return group(prompt(messages).messages)


def source(*messages: dict[str, Any], following: bool = False) -> Source:
    """The question of the last block with results."""
    return [found for found in sources(blocks(*messages), following=following) if found is not None][-1]


def called(**arguments: Any) -> list[dict[str, Any]]:
    return tool_round("a", "result", arguments=json.dumps(arguments))


def test_the_question_is_the_user_before_the_call_and_what_the_model_said() -> None:
    call, result = called(query="alpha")
    call["content"] = "I look it up."
    asked = source(system("s"), user("first?"), assistant("ok"), user("the second harbour?"), call, result).query("a")
    assert asked == ResultQuery("the second harbour?\nI look it up.", "alpha")


def test_only_blocks_with_results_have_a_question() -> None:
    found = sources(blocks(user("q"), *called(q="x"), assistant("done")))
    assert [place is not None for place in found] == [False, True, False]


def test_what_a_call_passed_counts_without_parameter_names_and_small_numbers() -> None:
    asked = source(
        user("q"), *called(path="src/a.py", limit=100, issue=55475, deep={"names": ["x", None, True]})
    ).query("a")
    assert asked.arguments.split("\n") == ["src/a.py", "55475", "x"]


def test_arguments_that_are_no_json_count_as_they_stand() -> None:
    assert source(user("q"), *tool_round("a", "r", arguments=r"grep\nfoo")).query("a").arguments == "grep foo"


def test_of_parallel_calls_each_result_has_its_own_arguments() -> None:
    call, result = called(q="alpha")
    other = {"id": "b", "type": "function", "function": {"name": "search", "arguments": '{"q":"beta"}'}}
    call["tool_calls"] = [*call["tool_calls"], other]
    found = source(user("q"), call, result, {**result, "tool_call_id": "b"})
    assert found.query("b").arguments == "beta" and found.query("a").arguments == "alpha"


def test_what_the_user_asks_directly_after_the_round_may_count_too() -> None:
    talk = (
        user("load it"),
        *called(),
        assistant("what would you know?"),
        user("who lifted the first crane?"),
        assistant("Ann"),
    )
    assert source(*talk).query("a").prose == "load it\n"
    assert source(*talk, following=True).query("a").prose == "who lifted the first crane?\nload it\n"


@pytest.mark.parametrize("between", [called(), [assistant("a"), assistant("b")], []])
def test_a_question_further_away_is_not_its_own(between: list[dict[str, Any]]) -> None:
    talk = blocks(user("load it"), *called(), *between, *([user("who?")] if between else []))
    found = sources(talk, following=True)[1]
    assert found is not None and found.following is None


def test_the_mark_tells_questions_apart_and_says_nothing_of_what_comes_later() -> None:
    talk = [user("q"), *called(q="x")]
    later = [*talk, assistant("a"), user("more")]
    assert source(*talk).mark == source(*later).mark
    assert source(*talk).mark != source(*later, following=True).mark
    assert source(*talk).mark != source(user("other"), *called(q="x")).mark
    assert source(*talk).mark != source(user("q"), *called(q="y")).mark


def test_of_long_texts_the_beginning_and_the_end_are_read() -> None:
    asked = source(user(words(2_000)), *called(q="y" * 2_000)).query("a")
    assert asked.prose.startswith("w0 w1") and "w1999" in asked.prose
    assert len(asked.prose) <= USER_HEAD + USER_TAIL + 2 and len(asked.arguments) == ARGUMENTS


def test_what_cannot_be_read_asks_nothing() -> None:
    broken = message(b'{"role":"user","content":"\xff"}')
    assert Source((broken,), UserMessage(broken)).query("a") == ResultQuery("\n")
    assert Source((broken,)).query("a") == ResultQuery("")


def test_a_follow_up_brings_the_user_message_before_it() -> None:
    talk = (user("who lifted the first crane?"), assistant("Ann."), user("are you sure?"))
    asked = source(*talk, *called(q="x")).query("a")
    assert asked.prose == "are you sure?\nwho lifted the first crane?\n"
    own = source(talk[0], talk[1], user("which pump of the harbour?"), *called(q="x"))
    assert own.query("a").prose == "which pump of the harbour?\n"
    assert own.mark != source(*talk, *called(q="x")).mark


def test_a_thousand_follow_ups_are_followed_only_so_far() -> None:
    said = [message for place in range(1_500) for message in (user("go on"), assistant(f"step {place}"))]
    asked = source(user("Which tide?"), *said, user("go on"), *called(q="x")).query("a")
    assert asked.texts[0] == "\n".join(["go on"] * MAX_FOLLOWED)
    few = source(user("Which tide?"), *said[:10], user("go on"), *called(q="x")).query("a")
    assert few.texts[0].endswith("go on\nWhich tide?")
