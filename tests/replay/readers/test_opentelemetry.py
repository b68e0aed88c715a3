"""Spans with attributes of generative AI."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.outcome import Usage
from tests.replay.readers.reading import body, request, requests, skipped, survives

INPUT = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Ulm"}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"degrees": 7}}]},
]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Ulm"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"degrees":7}'},
]
TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}}}
PARTS: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.request.max_tokens": 64,
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
    "gen_ai.input.messages": json.dumps(INPUT),
    "gen_ai.tool.definitions": json.dumps([{"type": "function", **TOOL["function"]}]),  # type: ignore[dict-item]
    "gen_ai.usage.input_tokens": 30,
    "gen_ai.usage.output_tokens": 5,
    "gen_ai.usage.cache_read.input_tokens": 12,
    "user.id": "ann",
}
NUMBERED: dict[str, Any] = {
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": "Weather?",
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "c1",
    "gen_ai.prompt.2.tool_calls.0.name": "weather",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"city":"Ulm"}',
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.content": '{"degrees":7}',
    "gen_ai.prompt.3.tool_call_id": "c1",
    "llm.request.functions.0.name": "weather",
    "llm.request.functions.0.description": "d",
    "llm.request.functions.0.parameters": '{"type": "object"}',
    "gen_ai.usage.prompt_tokens": "30",
    "gen_ai.usage.completion_tokens": 5,
}


def test_a_span_names_the_host_that_answered() -> None:
    found = request("OpenTelemetry", otlp({**PARTS, "server.address": "api.groq.com"}))
    assert (found.provider, request("OpenTelemetry", otlp(PARTS)).provider) == ("groq", "")


def otlp(attributes: dict[str, Any], **span: Any) -> dict[str, Any]:
    """A document of OTLP with one span."""
    listed = [{"key": key, "value": as_value(said)} for key, said in attributes.items()]
    made = {"name": "chat", "startTimeUnixNano": "1763000000000000000", "attributes": listed, **span}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "search"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": [made]}]}]}


def as_value(said: Any) -> dict[str, Any]:
    """OTLP's form of a value."""
    return {"intValue": str(said)} if isinstance(said, int) else {"stringValue": said}


def test_messages_of_parts_become_a_chat_request() -> None:
    found = request("OpenTelemetry", otlp(PARTS))
    assert body(found) == {"model": "gpt-4o", "max_tokens": 64, "messages": MESSAGES, "tools": [TOOL]}
    assert (found.at, found.app, found.caller, found.status) == (1_763_000_000.0, "search", "ann", 200)
    assert found.usage == Usage(30, 5, 12)


def test_numbered_attributes_become_the_same_request() -> None:
    found = request("OpenTelemetry", otlp(NUMBERED))
    assert body(found)["messages"] == MESSAGES and body(found)["tools"] == [TOOL] and found.usage == Usage(30, 5)


def test_a_span_that_an_sdk_prints_is_read_too() -> None:
    printed = {
        "name": "chat",
        "attributes": {**PARTS, "gen_ai.input.messages": INPUT},
        "start_time": "2025-11-13T02:13:20.000000Z",
        "resource": {"attributes": {"service.name": "search"}},
    }
    found = request("OpenTelemetry", printed)
    assert body(found)["messages"] == MESSAGES and (found.at, found.app) == (1_763_000_000.0, "search")


def test_structured_attributes_are_read() -> None:
    part = {
        "kvlistValue": {
            "values": [
                {"key": "content", "value": {"stringValue": "Hi"}},
                {"key": "type", "value": {"stringValue": "text"}},
            ]
        }
    }
    pairs = [
        {"key": "role", "value": {"stringValue": "user"}},
        {"key": "parts", "value": {"arrayValue": {"values": [part]}}},
    ]
    said = {"arrayValue": {"values": [{"kvlistValue": {"values": pairs}}]}}
    document = otlp({"gen_ai.request.model": "gpt-4o"})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append(
        {"key": "gen_ai.input.messages", "value": said}
    )
    assert body(request("OpenTelemetry", document))["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_span_that_failed_has_no_status_of_success() -> None:
    assert request("OpenTelemetry", otlp(PARTS, status={"code": 2})).status == 0


def test_spans_without_content_and_other_spans_are_told_apart() -> None:
    bare = {"gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 30}
    assert skipped("OpenTelemetry", otlp(bare)) == ["a span without the messages (content is opt-in)"]
    assert skipped("OpenTelemetry", otlp({"http.method": "GET"})) == ["a span of something else"]
    assert skipped("OpenTelemetry", otlp({"gen_ai.tool.name": "weather"})) == ["a span of another step"]
    assert requests("OpenTelemetry", {"resourceSpans": [{"scopeSpans": None}, 7]}) == []


def test_deep_values_end() -> None:
    deep: Any = {"stringValue": "x"}
    for _ in range(300):
        deep = {"arrayValue": {"values": [deep]}}
    document = otlp(NUMBERED)
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append({"key": "deep", "value": deep})
    assert body(request("OpenTelemetry", document))["messages"] == MESSAGES


def test_wrong_types_are_survived() -> None:
    survives("OpenTelemetry", {"name": "chat", "start_time": 1, "attributes": PARTS, "resource": {"attributes": {}}})
    survives("OpenTelemetry", {"name": "chat", "start_time": 1, "attributes": NUMBERED})
    survives("OpenTelemetry", otlp(PARTS)["resourceSpans"][0])
