"""Requests that ask for a summary of their conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages.request import parse as parse_messages
from proxy.apis.openai_chat.request import parse as parse_chat
from proxy.apis.openai_responses.request import parse as parse_responses
from proxy.fit.compactions import Compaction, by_provider, marked, row_of, uncovered
from proxy.fit.plan import start
from proxy.model.conversation import Kind, Prompt
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts
from tests.makers import WordMeter, assistant, ladder, system, user, words

PROMPT = "Please put this conversation into a few words now."
ROW = Compaction("asks", (PROMPT,))
TOLD = Compaction("told", ("You put conversations into words.",), where="instructions", transcript=True)


def chat(*messages: dict[str, Any]) -> Prompt:
    return parse_chat(json.dumps({"model": "m", "messages": messages}).encode())


def started(prompt: Prompt) -> Draft:
    return start(prompt, ladder(), Facts(Window(1_000), WordMeter()))


@pytest.mark.parametrize("text", [PROMPT, f"\n  {PROMPT} In German.", [{"type": "text", "text": PROMPT}]])
def test_a_prompt_at_the_beginning_of_the_last_text_asks(text: Any) -> None:
    last = {"role": "user", "content": text}
    assert row_of(chat(user("q"), assistant("a"), last), (TOLD, ROW)) is ROW


def test_it_may_stand_behind_results_and_what_a_user_typed_before() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    texts = [{"type": "text", "text": "Go on."}, {"type": "text", "text": PROMPT}]
    told = [user("q"), {"role": "assistant", "content": [call]}, {"role": "user", "content": [result, *texts]}]
    prompt = parse_messages(json.dumps({"model": "m", "max_tokens": 9, "messages": told}).encode())
    assert row_of(prompt, (ROW,)) is ROW
    asked = marked(prompt)
    assert asked.messages[-1].kind is Kind.RESULT and asked.messages[-1].answers == ("t",) and asked.pins == {2}


@pytest.mark.parametrize(
    "messages",
    [
        [user(f"What does this mean? {PROMPT}"), user("Go on.")],
        [user(PROMPT), assistant("Words."), user("Thanks.")],
        [user("q"), assistant(PROMPT)],
        [user("q"), {"role": "user", "content": [{"type": "text", "text": PROMPT}, {"type": "text", "text": "Well?"}]}],
        [user(f"Look at this: {PROMPT}")],
        [user("x" * 5_000 + PROMPT)],
        [system(PROMPT), user("q")],
    ],
)
def test_a_prompt_that_is_quoted_asks_nothing(messages: list[dict[str, Any]]) -> None:
    assert row_of(chat(*messages), (ROW, TOLD)) is None


def test_a_prompt_in_a_result_asks_nothing() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    told = [user("q"), {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert row_of(chat(*told, {"role": "tool", "tool_call_id": "c", "content": PROMPT}), (ROW,)) is None
    item = {"type": "function_call_output", "call_id": "c", "output": PROMPT}
    asked = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, item]
    assert row_of(parse_responses(json.dumps({"model": "m", "input": asked}).encode()), (ROW,)) is None


def test_instructions_tell_it_only_where_they_stand() -> None:
    told = "You put conversations into words. Be short."
    assert row_of(chat(system(told), user("q")), (ROW, TOLD)) is TOLD
    assert row_of(chat(system("Be kind."), system(told), user("q")), (TOLD,)) is TOLD
    assert row_of(chat(user("q"), system(told), user("q")), (TOLD,)) is None
    assert row_of(chat(user(told)), (TOLD,)) is None


def test_a_row_may_want_more_words_and_an_api() -> None:
    more = Compaction("more", (PROMPT,), contains="few words", apis=("responses",))
    assert not more.asks(chat(user(PROMPT)))
    asked = parse_responses(json.dumps({"model": "m", "input": PROMPT}).encode())
    assert more.asks(asked) and not Compaction("other", (PROMPT,), contains="verse").asks(asked)


def test_the_prompt_stays_whole_and_is_no_question() -> None:
    asked = marked(chat(user("q"), assistant("a"), user(PROMPT)))
    assert [m.kind for m in asked.messages] == [Kind.USER, Kind.ASSISTANT, Kind.OTHER]
    assert asked.pins == {2} and asked.form.compaction and not asked.managed
    assert started(asked).blocks[-1].user is None and started(asked).blocks[-1].pinned


def test_a_transcript_is_the_conversation_and_stays_what_it_is() -> None:
    prompt = chat(system("s"), user("Here it is."))
    asked = marked(prompt, transcript=True)
    assert asked.messages == prompt.messages and asked.form.compaction and not asked.pins
    assert marked(chat(user("q"), assistant("a"))).messages[-1].kind is Kind.ASSISTANT


def test_what_a_provider_compacts_goes_out_as_it_came() -> None:
    prompt = chat(user("q"))
    found = by_provider(prompt)
    assert found.managed and found.form.compaction and found.messages == prompt.messages


def test_what_a_summary_does_not_cover_is_named_in_figures() -> None:
    before = started(chat(user(words(50)), assistant(words(60)), user("q")))
    shorter = before.blocks[1].messages[0].edit([(before.blocks[1].messages[0].parts()[0], "w1")], "shorter")
    block = type(before.blocks[1])(before.recount((shorter,)))
    told = uncovered(before, before.with_blocks([block, before.blocks[2]]))
    figures = "1 of 3 messages are left out, 1 shortened, 113 of 126 tokens"
    assert told == f"the summary does not cover all of the conversation: {figures}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": " "}, "name must not be empty"),
        ({"name": "provider"}, "name must not be empty, and not 'provider'"),
        ({"where": "top"}, "where must be"),
        ({"begins": ()}, "begins must be texts of at least 20 characters"),
        ({"begins": ("too short",)}, "begins must be texts of at least 20 characters"),
        ({"begins": (f" {PROMPT}",)}, "without white space around them"),
        ({"begins": ("Fasse dieses Gespräch bitte zusammen.",)}, "plain ASCII"),
        ({"contains": "a\nb"}, "in one line"),
    ],
)
def test_rows_are_checked(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Compaction(**{"name": "a", "begins": (PROMPT,), **fields})
