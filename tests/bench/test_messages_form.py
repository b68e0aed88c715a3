"""A chat conversation in the form of the Messages API, and back."""

from __future__ import annotations

from typing import Any

from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.anthropic_messages.validation import validate
from tests.bench.messages_form import conversation, request
from tests.makers import assistant, system, tool_round, user

TOOL = {"type": "function", "function": {"name": "search", "description": "d", "parameters": {"type": "object"}}}


def test_a_run_is_valid_in_the_other_form_and_comes_back_as_it_was() -> None:
    call, first = tool_round("a", "one", arguments='{"q": 1}')
    call["tool_calls"].append({**call["tool_calls"][0], "id": "b"})
    told: list[dict[str, Any]] = [
        *[system("Be brief."), user("Find it."), {**call, "content": "I look."}, first],
        *[{**first, "tool_call_id": "b", "content": "two"}, assistant("Done."), user("Thanks.")],
    ]
    body = request(told, "claude-sonnet-4-5", 500, [TOOL])
    assert validate(Request(body)) is None
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert conversation(body) == [{k: v for k, v in m.items() if k != "name"} for m in told]


def test_arguments_that_are_no_object_become_one_and_an_empty_text_is_said() -> None:
    call, result = tool_round("a", "one", arguments="[1]")
    body = request([user(""), {**call, "content": None}, result], "m", 5)
    assert body["messages"][0]["content"] == "..." and body["messages"][1]["content"][0]["input"] == {"arguments": [1]}
    broken = {**call["tool_calls"][0], "function": {"name": "f", "arguments": "{x"}}
    body = request([user("a"), {**call, "tool_calls": [broken]}, result], "m", 5)
    assert body["messages"][1]["content"][-1]["input"] == {"arguments": "{x"} and "system" not in body
