"""Requests of the Messages API as the simulator reads them, and its errors."""

from __future__ import annotations

import json

from proxy.simulator.anthropic_messages.request import AnthropicError, Request, turns


def separate(model: str, *betas: str) -> bool:
    return Request({"model": model}, betas).separate


def test_the_reply_is_separate_since_4_5_and_before_by_a_beta() -> None:
    new = ("claude-sonnet-4-5", "claude-opus-4-5-20251101", "claude-haiku-5", "claude-opus-4-10")
    old = ("claude-3-5-sonnet", "claude-opus-4-1", "claude-opus-4-20250514", "claude-sonnet-4-0", "claude-2.1")
    assert all(map(separate, new)) and not any(map(separate, old))
    assert all(separate(model, "model-context-window-exceeded-2025-08-26") for model in old)


def test_consecutive_messages_of_one_role_are_one_turn_and_system_messages_none() -> None:
    said = [("user", "a"), ("user", "b"), ("system", "s"), ("assistant", "c"), ("user", "d")]
    asked = Request({"messages": [{"role": role, "content": text} for role, text in said]})
    assert [(place, role, [path for path, _ in blocks]) for place, role, blocks in turns(asked)] == [
        (0, "user", ["messages.0.content.0", "messages.1.content.0"]),
        (3, "assistant", ["messages.3.content.0"]),
        (4, "user", ["messages.4.content.0"]),
    ]


def test_the_envelope() -> None:
    found = json.loads(AnthropicError(404, "x").body())
    assert found == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "x"},
        "request_id": "req_simulator",
    }
    kinds = [
        json.loads(AnthropicError(status, "x").body())["error"]["type"] for status in (400, 402, 403, 500, 504, 529)
    ]
    assert kinds == [
        *("invalid_request_error", "billing_error", "permission_error"),
        *("api_error", "timeout_error", "overloaded_error"),
    ]
