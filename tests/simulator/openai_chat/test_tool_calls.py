"""The laws of tool calls and their results."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.openai_chat.tool_calls import calls_have_results, functions_follow_their_call, ids_are_unique

USER = {"role": "user", "content": "Hello"}


def called(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": i, "function": {"name": "f", "arguments": "{}"}} for i in ids]}


def result(call: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "1"}


def paired(*messages: dict[str, Any]) -> tuple[str, str | None] | None:
    found = calls_have_results({"messages": list(messages)})
    return None if found is None else (found.message, found.param)


ORPHAN = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
OPEN = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, called("a"), result("a")],
        [USER, called("a", "b"), result("b"), result("a"), USER],
        [USER, called("a"), result("a"), called("b"), result("b")],
    ],
)
def test_calls_that_are_answered_at_once_are_lawful(messages: list[dict[str, Any]]) -> None:
    assert paired(*messages) is None


@pytest.mark.parametrize(
    ("messages", "message", "place"),
    [
        ([USER, result("a")], ORPHAN, "messages.[1].role"),
        ([USER, called("a"), result("a"), USER, result("a")], ORPHAN, "messages.[4].role"),
        ([USER, called("a"), result("b")], ORPHAN, "messages.[2].role"),
        ([USER, called("a")], OPEN + "a", "messages.[2].role"),
        ([USER, called("a", "b", "c"), result("b"), USER], OPEN + "a, c", "messages.[3].role"),
        ([USER, called("a"), USER, result("a")], OPEN + "a", "messages.[2].role"),
        (
            [USER, called("a"), result("a"), result("a")],
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3].",
            "messages.[3].tool_call_id",
        ),
        ([USER, called("a"), result(None)], "Missing required parameter: 'tool_call_id'.", "messages[2]"),
        ([USER, called("a"), result(["a"])], "Missing required parameter: 'tool_call_id'.", "messages[2]"),
    ],
)
def test_a_call_without_its_result_and_a_result_without_its_call_are_not(
    messages: list[dict[str, Any]], message: str, place: str
) -> None:
    assert paired(*messages) == (message, place)


def test_a_function_message_follows_its_call() -> None:
    function = {"role": "function", "name": "f", "content": "1"}
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    assert functions_follow_their_call({"messages": [USER, call, function]}) is None
    for wrong in ([function], [USER, function], [USER, call, USER, function]):
        assert functions_follow_their_call({"messages": wrong}) is not None


def test_an_id_is_used_once_in_a_conversation() -> None:
    twice = [USER, called("a"), result("a"), called("a"), result("a")]
    assert calls_have_results({"messages": twice}) is None
    found = ids_are_unique({"messages": twice})
    assert found and "'a', in messages[1] and messages[3]" in found.message
    assert ids_are_unique({"messages": [called("a", "a")]}) is not None
    assert ids_are_unique({"messages": [called("a", "b"), called("c")]}) is None


def test_an_id_is_not_too_long() -> None:
    assert ids_are_unique({"messages": [called("a" * 40)]}) is None
    found = ids_are_unique({"messages": [USER, called("b", "a" * 41)]})
    assert found and (found.code, found.param) == ("string_above_max_length", "messages[1].tool_calls[1].id")


@pytest.mark.parametrize("calls", [None, [], 7, "x", [7]])
def test_calls_of_a_wrong_shape_break_nothing(calls: Any) -> None:
    body = {"messages": [{"role": "assistant", "tool_calls": calls}]}
    assert ids_are_unique(body) is None
    assert calls_have_results(body) is None or calls == [7]
