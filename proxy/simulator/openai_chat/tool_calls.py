"""Validation of tool calls: every call has a unique id and exactly one result, directly after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.simulator.check import ApiError, Body, invalid
from proxy.simulator.json import Json

MAX_ID_LENGTH = 40  # characters; the limit of OpenAI


def calls_have_results(body: Body) -> ApiError | None:
    """Every call has a result directly after its message, and every result has a call."""
    pending: dict[str, None] = {}
    answered: dict[str, int] = {}
    for i, message in enumerate((*body["messages"], {"role": "end"})):
        if message["role"] == "tool":
            error = _check_result(i, message.get("tool_call_id"), pending, answered)
            if error is not None:
                return error
            continue
        if pending:
            return invalid(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(pending)}",
                "",
                f"messages.[{i}].role",
            )
        answered = {}
        pending = dict.fromkeys(_call_ids(message))
    return None


def _check_result(i: int, call: Json, pending: dict[str, None], answered: dict[str, int]) -> ApiError | None:
    if not isinstance(call, str):
        return invalid("Missing required parameter: 'tool_call_id'.", "missing_required_parameter", f"messages[{i}]")
    if call in answered:
        return invalid(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call}', in messages[{answered[call]}] and "
            f"messages[{i}].",
            "",
            f"messages.[{i}].tool_call_id",
        )
    if call not in pending:
        return invalid(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            "",
            f"messages.[{i}].role",
        )
    del pending[call]
    answered[call] = i
    return None


def functions_follow_their_call(body: Body) -> ApiError | None:
    """The same check for `function` messages, which have no ids."""
    messages = body["messages"]
    for i, message in enumerate(messages):
        if message["role"] == "function" and not (i and messages[i - 1].get("function_call")):
            return invalid(
                "Invalid parameter: messages with role 'function' must be a response to a preceeding message with "
                "'function_call'.",
                "",
                f"messages.[{i}].role",
            )
    return None


def ids_are_unique(body: Body) -> ApiError | None:
    """No id is too long or used twice in a conversation. (Anthropic's rule; other providers check one turn only.)"""
    seen: dict[str, int] = {}
    for i, message in enumerate(body["messages"]):
        for k, call in enumerate(_call_ids(message)):
            path = f"messages[{i}].tool_calls[{k}].id"
            if len(call) > MAX_ID_LENGTH:
                return invalid(
                    f"Invalid '{path}': string too long. Expected a string with maximum length {MAX_ID_LENGTH}, but "
                    f"got a string with length {len(call)} instead.",
                    "string_above_max_length",
                    path,
                )
            if call in seen:
                return invalid(
                    f"Invalid parameter: Duplicate value for 'tool_calls[].id' of '{call}', in messages[{seen[call]}] "
                    f"and messages[{i}].",
                    "",
                    path,
                )
            seen[call] = i
    return None


def _call_ids(message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield str(call.get("id", "")) if isinstance(call, dict) else ""
