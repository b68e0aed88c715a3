"""HAR archives."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from proxy.model.outcome import Usage
from tests.replay.readers.reading import body, request, requests, skipped, survives

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
ANSWER = json.dumps(
    {"choices": [{"message": {"content": "Yes"}}], "usage": {"prompt_tokens": 8, "completion_tokens": 1}}
)
ENTRY: dict[str, Any] = {
    "startedDateTime": "2025-11-13T02:13:20.000Z",
    "request": {
        "method": "POST",
        "url": "https://api.openai.com/v1/chat/completions?x=1",
        "headers": [
            {"name": "User-Agent", "value": "OpenAI/Python 2.0"},
            {"name": "authorization", "value": "Bearer k"},
        ],
        "postData": {"mimeType": "application/json", "text": json.dumps(BODY)},
    },
    "response": {"status": 200, "content": {"text": ANSWER}},
}


def archive(*entries: Any) -> dict[str, Any]:
    """A HAR with these entries."""
    return {"log": {"version": "1.2", "entries": list(entries)}}


def test_an_entry_is_a_request() -> None:
    for found in (request("HAR", archive(ENTRY)), request("HAR", ENTRY)):
        assert body(found) == BODY and found.path == "/v1/chat/completions"
        assert (found.at, found.app, found.status) == (1_763_000_000.0, "OpenAI/Python", 200)
        assert found.provider == "openai"
        assert found.usage is not None and found.usage.prompt == 8 and b"Bearer" not in found.body


def test_an_answer_may_be_packed_or_a_stream() -> None:
    packed = {"status": 200, "content": {"text": base64.b64encode(ANSWER.encode()).decode(), "encoding": "base64"}}
    stream = 'data: {"choices":[]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":1}}\n\n'
    for response in (packed, {"status": 200, "content": {"text": stream}}):
        usage = request("HAR", archive({**ENTRY, "response": response})).usage
        assert isinstance(usage, Usage) and usage.prompt == 8


@pytest.mark.parametrize("url", ["https://x/v1/images", "not a url", "http://[", ""])
def test_other_requests_are_passed_over(url: str) -> None:
    assert requests("HAR", archive({**ENTRY, "request": {**ENTRY["request"], "url": url}})) == []


def test_a_request_without_a_body_and_an_archive_without_entries_are_told() -> None:
    assert skipped("HAR", archive({**ENTRY, "request": {**ENTRY["request"], "postData": None}})) == [
        "a request without its body"
    ]
    assert skipped("HAR", {"log": []}) == ["an archive without entries"]


def test_other_paths_of_the_same_api_are_found_by_their_end() -> None:
    request_ = {**ENTRY["request"], "url": "https://r.openai.azure.com/openai/deployments/d/chat/completions"}
    assert request("HAR", archive({**ENTRY, "request": request_})).path == "/v1/chat/completions"


def test_wrong_types_are_survived() -> None:
    survives("HAR", ENTRY)
    survives("HAR", archive(ENTRY))
