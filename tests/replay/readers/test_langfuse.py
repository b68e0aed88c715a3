"""Langfuse's exports."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.outcome import Usage
from tests.replay.readers.reading import body, request, requests, skipped, survives

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
ROW: dict[str, Any] = {
    "id": "o1",
    "traceId": "t1",
    "type": "GENERATION",
    "startTime": "2025-11-13T02:13:20.000Z",
    "name": "answer",
    "model": "gpt-4o",
    "modelParameters": {"temperature": 0.2, "max_tokens": 100},
    "input": MESSAGES,
    "usageDetails": {"input": 400, "input_cached_tokens": 1_024, "output": 7, "total": 1_431},
    "userId": "ann",
    "level": "DEFAULT",
}


def test_a_generation_is_a_request() -> None:
    found = request("Langfuse", ROW)
    assert body(found) == {"model": "gpt-4o", "temperature": 0.2, "max_tokens": 100, "messages": MESSAGES}
    assert (found.at, found.app, found.caller, found.status) == (1_763_000_000.0, "answer", "ann", 200)
    assert found.usage == Usage(1_424, 7, 1_024) and found.missing


def test_an_input_may_be_a_whole_request() -> None:
    found = request("Langfuse", {**ROW, "input": {"messages": MESSAGES, "tools": [{"type": "function"}]}})
    assert body(found)["tools"] == [{"type": "function"}] and body(found)["model"] == "gpt-4o" and found.missing == ()


def test_a_row_of_a_table_has_texts_with_json_in_them() -> None:
    row = {
        "id": "o1",
        "trace_id": "t1",
        "type": "GENERATION",
        "start_time": "2025-11-13 02:13:20.000000",
        "provided_model_name": "gpt-4o",
        "model_parameters": '{"max_tokens": 9}',
        "input": json.dumps(MESSAGES),
        "usage_details": '{"input": 10, "output": 2}',
        "trace_name": "search",
        "level": "ERROR",
    }
    found = request("Langfuse", row)
    assert body(found) == {"model": "gpt-4o", "max_tokens": 9, "messages": MESSAGES}
    assert (found.at, found.app, found.status, found.usage) == (1_763_000_000.0, "search", 0, Usage(10, 2))


def test_a_text_is_what_a_user_said_and_a_message_stands_alone() -> None:
    assert body(request("Langfuse", {**ROW, "input": "Hi"}))["messages"] == [{"role": "user", "content": "Hi"}]
    assert body(request("Langfuse", {**ROW, "input": MESSAGES[1]}))["messages"] == MESSAGES[1:]


def test_older_rows_count_in_fields_of_their_own() -> None:
    old = {
        **{key: said for key, said in ROW.items() if key != "usageDetails"},
        "promptTokens": 5,
        "completionTokens": 1,
    }
    assert request("Langfuse", old).usage == Usage(5, 1)


def test_what_was_written_to_the_cache_is_told_apart() -> None:
    details = {"input": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 60, "output": 1}
    assert request("Langfuse", {**ROW, "usageDetails": details}).usage == Usage(100, 1, 30, written=60)


def test_other_observations_are_no_requests() -> None:
    assert requests("Langfuse", {**ROW, "type": "SPAN"}) == []
    assert skipped("Langfuse", {**ROW, "input": None}) == ["a generation without messages or without a model"]
    assert skipped("Langfuse", {**ROW, "model": None}) == ["a generation without messages or without a model"]


def test_wrong_types_are_survived() -> None:
    survives("Langfuse", ROW)
