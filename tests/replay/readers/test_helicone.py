"""Helicone's exports."""

from __future__ import annotations

import json
from typing import Any

from proxy.model.outcome import Usage
from tests.replay.readers.reading import body, request, skipped, survives

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
ROW: dict[str, Any] = {
    "response_id": "r1",
    "response_created_at": "2025-11-13T02:13:21Z",
    "response_status": 400,
    "request_created_at": "2025-11-13T02:13:20Z",
    "request_body": BODY,
    "request_path": "https://api.openai.com/v1/chat/completions",
    "request_properties": {"Environment": "production", "App": "search"},
    "request_user_id": "ann",
    "model": "gpt-4o",
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "prompt_cache_read_tokens": 64,
}


def test_a_row_is_a_request() -> None:
    found = request("Helicone", ROW)
    assert body(found) == BODY and found.usage == Usage(100, 9, 64)
    assert (found.at, found.app, found.caller, found.status) == (1_763_000_000.0, "search", "ann", 400)


def test_a_row_of_a_table_has_texts() -> None:
    row = {key: said if isinstance(said, str) else json.dumps(said) for key, said in ROW.items()}
    assert request("Helicone", row) == request("Helicone", ROW) or body(request("Helicone", row)) == BODY
    assert request("Helicone", row).status == 400 and request("Helicone", row).usage == Usage(100, 9, 64)


def test_a_body_without_a_model_gets_that_of_the_row() -> None:
    assert body(request("Helicone", {**ROW, "request_body": {"messages": []}})) == {"model": "gpt-4o", "messages": []}


def test_a_row_without_a_body_is_told() -> None:
    for missing in (None, "", {}, {"heliconeMessage": "too large"}):
        assert skipped("Helicone", {**ROW, "request_body": missing}) == [
            "the body is not in the export (--include-body)"
        ]


def test_wrong_types_are_survived() -> None:
    survives("Helicone", ROW)
