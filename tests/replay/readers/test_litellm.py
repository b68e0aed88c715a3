"""LiteLLM's logging payload."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.outcome import Extra, Usage
from tests.replay.readers.reading import body, request, requests, skipped, survives

CALL: dict[str, Any] = {
    "id": "chatcmpl-1",
    "call_type": "acompletion",
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "Hi"}],
    "model_parameters": {"max_tokens": 50, "tools": [{"type": "function"}], "extra_headers": {"x-key": "secret"}},
    "startTime": 1_763_000_000.25,
    "endTime": 1_763_000_001.0,
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "status": "success",
    "end_user": None,
    "request_tags": ["tagged"],
    "metadata": {
        "user_api_key_hash": "88dc28",
        "user_api_key_team_alias": "search",
        "usage_object": {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
    },
}


def test_a_call_is_a_request_with_its_parameters() -> None:
    found = request("LiteLLM", CALL)
    assert body(found) == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 50,
        "tools": [{"type": "function"}],
    }
    assert (found.at, found.app, found.caller, found.status) == (1_763_000_000.25, "search", "88dc28", 200)
    assert found.usage == Usage(12, 3, 8)


def test_a_call_has_its_provider_and_what_it_cost() -> None:
    found = request("LiteLLM", {**CALL, "custom_llm_provider": "groq", "response_cost": 0.5})
    assert (found.provider, found.usage) == ("groq", Usage(12, 3, 8, extra=Extra(cost=0.5)))
    for unknown in (0, None, "free", -1.0):
        assert request("LiteLLM", {**CALL, "response_cost": unknown}).usage == Usage(12, 3, 8)


@pytest.mark.parametrize(
    ("call", "messages", "field", "asked", "path"),
    [
        ("aresponses", "Hi", "input", "Hi", "/v1/responses"),
        ("embedding", ["a", "b"], "input", ["a", "b"], "/v1/embeddings"),
        ("text_completion", [{"role": "user", "content": "Say"}], "prompt", ["Say"], "/v1/completions"),
        (
            "anthropic_messages",
            [{"role": "user", "content": "Hi"}],
            "messages",
            [{"role": "user", "content": "Hi"}],
            "/v1/messages",
        ),
        ("completion", "Hi", "messages", [{"role": "user", "content": "Hi"}], "/v1/chat/completions"),
    ],
)
def test_each_kind_of_call_has_its_own_field(call: str, messages: Any, field: str, asked: Any, path: str) -> None:
    found = request("LiteLLM", {**CALL, "call_type": call, "messages": messages})
    assert body(found)[field] == asked and found.path == path


def test_a_failure_has_its_status() -> None:
    failed = {**CALL, "status": "failure", "error_information": {"error_code": "400"}}
    assert request("LiteLLM", failed).status == 400
    assert request("LiteLLM", {**failed, "error_information": None}).status == 500


def test_without_details_the_two_counts_are_the_usage() -> None:
    assert request("LiteLLM", {**CALL, "metadata": {}}).usage == Usage(12, 3)
    assert request("LiteLLM", {**CALL, "metadata": {}}).app == "tagged"


def test_what_litellm_answered_from_its_own_cache_has_no_usage() -> None:
    assert request("LiteLLM", {**CALL, "cache_hit": True}).usage is None


@pytest.mark.parametrize(
    "messages", ["redacted-by-litellm", [{"role": "user", "content": "redacted-by-litellm"}], None, []]
)
def test_messages_that_are_not_logged_are_told(messages: Any) -> None:
    assert skipped("LiteLLM", {**CALL, "messages": messages}) == [
        "the messages are not in the log (turn_off_message_logging)"
    ]


def test_other_calls_are_no_requests() -> None:
    assert requests("LiteLLM", {**CALL, "call_type": "aimage_generation"}) == []


def test_wrong_types_are_survived() -> None:
    survives("LiteLLM", CALL)
