"""OpenAI's stored completions."""

from __future__ import annotations

from typing import Any

from proxy.model.outcome import Usage
from tests.replay.readers.reading import body, request, requests, skipped, survives

COMPLETION: dict[str, Any] = {
    "object": "chat.completion",
    "id": "chatcmpl-A",
    "model": "gpt-4o-2024-08-06",
    "created": 1_763_000_000,
    "tools": None,
    "temperature": 1.0,
    "input_user": "ann",
    "metadata": {"app": "search"},
    "usage": {"prompt_tokens": 13, "completion_tokens": 18},
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes"}}],
}
MESSAGES = {
    "object": "list",
    "data": [
        {"id": "chatcmpl-A-0", "role": "user", "content": "Hi", "name": None, "content_parts": None},
        {"id": "chatcmpl-A-1", "role": "user", "content": "", "content_parts": [{"type": "text", "text": "there"}]},
    ],
}
JOINED = [
    {"role": "user", "content": "Hi", "name": None},
    {"role": "user", "content": [{"type": "text", "text": "there"}]},
]


def test_a_completion_is_joined_with_its_messages_in_either_order() -> None:
    for entries in ((COMPLETION, MESSAGES), (MESSAGES, {"object": "list", "data": [COMPLETION]})):
        found = request("OpenAI stored completions", *entries)
        assert body(found)["messages"] == JOINED and body(found)["model"] == "gpt-4o-2024-08-06"
        assert (found.at, found.app, found.caller, found.usage) == (1_763_000_000.0, "search", "ann", Usage(13, 18))


def test_a_completion_may_have_its_messages() -> None:
    found = request("OpenAI stored completions", {**COMPLETION, "messages": [{"role": "user", "content": "Hi"}]})
    assert body(found)["messages"] == [{"role": "user", "content": "Hi"}]


def test_completions_without_messages_are_told_at_the_end() -> None:
    assert (
        skipped("OpenAI stored completions", COMPLETION, {**COMPLETION, "id": "chatcmpl-B"})
        == ["a stored completion without its messages (GET /chat/completions/{id}/messages)"] * 2
    )
    assert requests("OpenAI stored completions", COMPLETION) == []


def test_wrong_types_are_survived() -> None:
    survives("OpenAI stored completions", {**COMPLETION, "messages": [{"role": "user", "content": "Hi"}]})
    survives("OpenAI stored completions", MESSAGES)
