"""What the simulator replies to chats, as a completion and as a stream."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.model.lenient_json import Json
from proxy.simulator.openai_chat.replies import chunks, completion, reply_to
from proxy.simulator.replies import END

USER = {"role": "user", "content": "Hello"}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "days", "unit"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "time"}},
]


def body(model: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [USER], **more}


def answered(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(completion(reply_to(request, 9, **more)))
    return found


def streamed(request: dict[str, Any], include_usage: bool = False) -> list[Json]:
    events = list(chunks(reply_to(request, 9, "One two  three"), include_usage))
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in events)
    assert events[-1] == b"data: [DONE]\n\n"
    return [msgspec.json.decode(event[6:]) for event in events[:-1]]


def test_it_says_what_it_read_where_it_is_told_no_text() -> None:
    told = answered(body())
    assert told["choices"][0]["message"]["content"] == "The simulator read 1 messages, 9 tokens."
    assert told["object"] == "chat.completion"
    assert {k: told["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 9,
        "completion_tokens": 7,
        "total_tokens": 16,
    }


def test_the_same_request_gets_the_same_bytes_and_another_another_id() -> None:
    assert completion(reply_to(body(), 9)) == completion(reply_to(body(), 9))
    assert answered(body())["id"] != answered(body("other"))["id"]


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_a_reply_keeps_to_its_limit(limit: str) -> None:
    told = answered({**body(), limit: 2}, text="One two three")
    assert (told["choices"][0]["message"]["content"], told["choices"][0]["finish_reason"]) == ("One two", "length")
    assert answered({**body(), limit: 3}, text="One two three")["choices"][0]["finish_reason"] == "stop"


def test_n_replies_are_n_choices_and_are_all_counted() -> None:
    told = answered(body(n=3), text="One two")
    assert [choice["index"] for choice in told["choices"]] == [0, 1, 2]
    assert told["usage"]["completion_tokens"] == 6


def test_a_stream_is_role_then_content_then_finish_reason() -> None:
    events = streamed(body())
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert [delta["content"] for delta in deltas[1:-1]] == ["One", " two", "  three"]
    assert deltas[-1] == {}
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * 4 + ["stop"]
    assert all(event["object"] == "chat.completion.chunk" and "usage" not in event for event in events)


def test_usage_comes_last_and_without_choices_where_it_is_asked_for() -> None:
    events = streamed(body(n=2), include_usage=True)
    assert all(event["usage"] is None for event in events[:-1])
    assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 6)
    assert [event["choices"][0]["index"] for event in events[:-1]] == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (body("sim-tools", tools=TOOLS), ["weather"]),
        (body("sim-tools-parallel", tools=TOOLS), ["weather", "time"]),
        (body("sim-tools-parallel", tools=TOOLS[:1]), ["weather", "weather"]),
        (body("sim-tools-parallel", tools=TOOLS, parallel_tool_calls=False), ["weather"]),
        (body(tools=TOOLS, tool_choice="required"), ["weather"]),
        (body(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "time"}}), ["time"]),
        (body("sim-tools", tools=TOOLS, tool_choice="none"), []),
        (body("sim-tools"), []),
        (body("sim-tools", tools=[{"type": "custom", "custom": {"name": "c"}}]), []),
        (body(tools=TOOLS), []),
    ],
)
def test_tools_are_called_by_the_script(request_: dict[str, Any], names: list[str]) -> None:
    choice = answered(request_)["choices"][0]
    calls = choice["message"].get("tool_calls", [])
    assert [call["function"]["name"] for call in calls] == names
    assert len({call["id"] for call in calls}) == len(names)
    assert choice["finish_reason"] == ("tool_calls" if names else "stop")
    assert (choice["message"]["content"] is None) is bool(names)


def test_a_call_has_the_arguments_that_its_schema_requires() -> None:
    message = answered(body(tools=TOOLS, tool_choice="required"))["choices"][0]["message"]
    assert msgspec.json.decode(message["tool_calls"][0]["function"]["arguments"]) == {
        "city": "sim",
        "days": 3,
        "unit": "C",
    }


def test_a_model_that_got_its_result_speaks_unless_it_must_call() -> None:
    told = {"model": "sim-tools", "messages": [USER, {"role": "tool", "content": "1"}], "tools": TOOLS}
    assert answered(told)["choices"][0]["finish_reason"] == "stop"
    assert answered({**told, "tool_choice": "required"})["choices"][0]["finish_reason"] == "tool_calls"


def test_streamed_calls_add_up_to_the_answered_ones() -> None:
    request = body("sim-tools-parallel", tools=TOOLS)
    whole = answered(request)["choices"][0]["message"]["tool_calls"]
    built: dict[int, dict[str, Any]] = {}
    for event in streamed(request):
        for part in event["choices"][0]["delta"].get("tool_calls", []):
            call = built.setdefault(part["index"], {**part, "function": {"name": "", "arguments": ""}})
            for key, value in part["function"].items():
                call["function"][key] += value
    assert [{k: call[k] for k in ("id", "type", "function")} for call in built.values()] == whole


@pytest.mark.parametrize(
    ("wanted", "content"),
    [
        ({"type": "json_object"}, "{}"),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}},
            '{"city":"sim","days":3,"unit":"C"}',
        ),
        ({"type": "text"}, "One"),
        ("json", "One"),
    ],
)
def test_json_is_replied_where_nothing_else_is_wanted(wanted: Any, content: str) -> None:
    told = answered(body(response_format=wanted), text="One")
    assert told["choices"][0]["message"]["content"] == content


def test_a_reply_can_be_nothing_but_its_finish_reason() -> None:
    told = answered(body(tools=TOOLS, tool_choice="required"), finish="model_context_window_exceeded")["choices"][0]
    assert (told["message"]["content"], told["finish_reason"]) == ("", "model_context_window_exceeded")


def test_a_model_that_goes_on_calls_until_a_result_says_that_it_was_the_last() -> None:
    def calls(model: str, result: str) -> int:
        told = {"model": model, "messages": [USER, {"role": "tool", "content": result}], "tools": TOOLS}
        return len(reply_to(told, 1).calls)

    assert [calls("sim-tools-loop", result) for result in ("1", END)] == [1, 0]
    assert calls("sim-tools", "1") == 0
