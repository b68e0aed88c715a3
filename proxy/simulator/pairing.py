"""The laws of tool calls: each answered once, at once, under an id of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.errors import ClientError
from proxy.model.lenient_json import Json
from proxy.simulator.complaints import Body, wrong

ID_LENGTH = 40  # characters that OpenAI takes


def calls_are_answered(body: Body) -> ClientError | None:
    """Every call has its result, directly after the message that made it, and every result its call."""
    open_ids: dict[str, None] = {}
    answered: dict[str, int] = {}
    for i, message in enumerate((*body["messages"], {"role": "end"})):
        if message["role"] == "tool":
            broken = _answers_wrongly(i, message.get("tool_call_id"), open_ids, answered)
            if broken is not None:
                return broken
            continue
        if open_ids:
            return wrong(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_ids)}",
                "",
                f"messages.[{i}].role",
            )
        answered = {}
        open_ids = dict.fromkeys(_call_ids(message))
    return None


def _answers_wrongly(i: int, call: Json, open_ids: dict[str, None], answered: dict[str, int]) -> ClientError | None:
    if not isinstance(call, str):
        return wrong("Missing required parameter: 'tool_call_id'.", "missing_required_parameter", f"messages[{i}]")
    if call in answered:
        return wrong(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call}', in messages[{answered[call]}] and "
            f"messages[{i}].",
            "",
            f"messages.[{i}].tool_call_id",
        )
    if call not in open_ids:
        return wrong(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            "",
            f"messages.[{i}].role",
        )
    del open_ids[call]
    answered[call] = i
    return None


def functions_follow_their_call(body: Body) -> ClientError | None:
    """The same for functions, which have no ids."""
    messages = body["messages"]
    for i, message in enumerate(messages):
        if message["role"] == "function" and not (i and messages[i - 1].get("function_call")):
            return wrong(
                "Invalid parameter: messages with role 'function' must be a response to a preceeding message with "
                "'function_call'.",
                "",
                f"messages.[{i}].role",
            )
    return None


def ids_are_unique(body: Body) -> ClientError | None:
    """No id is too long, and none is used twice in a conversation (Anthropic's law; others look at one turn only)."""
    seen: dict[str, int] = {}
    for i, message in enumerate(body["messages"]):
        for k, call in enumerate(_call_ids(message)):
            place = f"messages[{i}].tool_calls[{k}].id"
            if len(call) > ID_LENGTH:
                return wrong(
                    f"Invalid '{place}': string too long. Expected a string with maximum length {ID_LENGTH}, but got a "
                    f"string with length {len(call)} instead.",
                    "string_above_max_length",
                    place,
                )
            if call in seen:
                return wrong(
                    f"Invalid parameter: Duplicate value for 'tool_calls[].id' of '{call}', in messages[{seen[call]}] "
                    f"and messages[{i}].",
                    "",
                    place,
                )
            seen[call] = i
    return None


def _call_ids(message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield str(call.get("id", "")) if isinstance(call, dict) else ""
