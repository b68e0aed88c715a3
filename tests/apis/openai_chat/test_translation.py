"""A chat request as arguments of a library, and its answers as OpenAI's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_chat.translation import (
    ARGUMENTS,
    NotTranslatable,
    answer,
    arguments,
    error,
    event,
    provider_message,
)

SAID = [{"role": "user", "content": "Hi"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": SAID, **fields}).encode()


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RUN: list[dict[str, Any]] = [
    *SAID,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "1"},
]
THOUGHT = [{"type": "thinking", "thinking": "a", "signature": "b"}]


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("claude-sonnet-4-5", {"messages": RUN}, None),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", {"messages": RUN}, None),
        ("claude-opus-4@20250514", {"messages": RUN}, None),
        ("claude-3-7-sonnet-latest", {"messages": RUN}, None),
        ("claude-sonnet-4-6", {"messages": RUN}, "high"),
        ("claude-opus-5", {"messages": RUN, "max_tokens": 500}, "high"),
        ("gemini-2.5-pro", {"messages": RUN, "max_tokens": 500}, "high"),
        ("claude-sonnet-4-5", {"messages": [*RUN, {"role": "assistant", "content": "Done."}, *SAID]}, "high"),
        ("claude-sonnet-4-5", {"messages": [*SAID, {**RUN[1], "thinking_blocks": THOUGHT}, RUN[2]]}, "high"),
        ("claude-sonnet-4-5", {}, "high"),
        ("claude-sonnet-4-5", {"max_tokens": 8_000}, "high"),
        ("claude-sonnet-4-5", {"max_completion_tokens": 4_096}, "medium"),
        ("claude-sonnet-4-5", {"max_tokens": 2_000}, "low"),
        ("claude-sonnet-4-5", {"max_tokens": 500}, None),
        ("claude-sonnet-4-5", {"max_tokens": 500, "reasoning_effort": "none"}, "none"),
        ("claude-sonnet-4-5", {"max_tokens": 9_000, "reasoning_effort": "max"}, "xhigh"),
    ],
)
def test_a_claude_with_a_budget_for_thinking_is_asked_only_for_one_that_it_accepts(
    model: str, fields: dict[str, Any], expected: str | None
) -> None:
    sent = {"model": model, "reasoning_effort": "high", **fields}
    assert arguments(body(**sent)).get("reasoning_effort") == expected


def test_known_fields_are_arguments_and_no_others_are() -> None:
    hostile: dict[str, Any] = {
        "api_base": "http://evil",
        "api_key": "k",
        "base_url": "http://evil",
        "custom_llm_provider": "x",
    }
    hostile |= {
        "extra_headers": {"a": "b"},
        "mock_response": "x",
        "fallbacks": ["y"],
        "metadata": {},
        "timeout": 1,
        "provider": 1,
    }
    hostile |= {
        "callbacks": [],
        "success_callback": ["x"],
        "model_list": [],
        "no-log": False,
        "proxy_server_request": 1,
    }
    assert not ARGUMENTS & hostile.keys()
    got = arguments(body(temperature=0.5, seed=None, stream=True, **hostile))
    assert got == {"model": "m", "messages": SAID, "temperature": 0.5, "stream": True}


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'"x"', b'{"model":"m"}', b'{"messages":[]}', b'{"model":1,"messages":[]}', b"[" * 9_000]
)
def test_what_is_no_chat_request_is_not_translated(raw: bytes) -> None:
    with pytest.raises(NotTranslatable, match="the body"):
        arguments(raw)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/x.png"}},
        {"type": "image_url", "image_url": {"url": " HTTPS://host/x.png"}},
        {"type": "image_url", "image_url": "gs://bucket/x"},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "file:///etc/passwd"}},
        {"type": "video_url", "video_url": {"url": "s3://bucket/x"}},
        {"type": "whatever", "deep": [{"er": ["http://x"]}]},
    ],
)
def test_nothing_that_would_be_fetched_is_translated(part: dict[str, Any]) -> None:
    for role in ("user", "tool"):
        with pytest.raises(NotTranslatable, match="data: URL"):
            arguments(body(messages=[{"role": role, "content": [part]}]))


def test_data_and_text_that_names_an_address_are_translated() -> None:
    parts = [
        {"type": "text", "text": "http://example.com"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA//==", "format": "wav"}},
    ]
    assert arguments(body(messages=[{"role": "user", "content": parts}]))["messages"][0]["content"] == parts


@pytest.mark.parametrize("tool", [{"type": "mcp", "server_url": "http://x"}, {"type": "web_search"}, "x", {}])
def test_only_functions_are_tools(tool: Any) -> None:
    with pytest.raises(NotTranslatable, match="no function"):
        arguments(body(tools=[tool]))
    function = {"type": "function", "function": {"name": "f"}}
    assert arguments(body(tools=[function]))["tools"] == [function]


def test_an_answer_has_the_fields_of_openais_shape() -> None:
    found = {"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": []}}]}
    (choice,) = json.loads(answer(found))["choices"]
    assert choice["finish_reason"] is None and choice["message"]["content"] is None


def test_an_event_is_one_line_and_that_of_the_usage_has_no_choices() -> None:
    piece = {"choices": [{"index": 0, "delta": {"content": "a\nb"}}]}
    told = event(piece)
    assert told.startswith(b"data: {") and told.endswith(b"}\n\n") and told.count(b"\n") == 2
    assert json.loads(told[6:])["choices"][0]["finish_reason"] is None
    usage = {"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 1}}
    assert json.loads(event(usage)[6:]) == {"choices": [], "usage": {"prompt_tokens": 1}}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    assert json.loads(event(last)[6:])["choices"][0]["finish_reason"] == "stop"


def test_an_error_has_openais_shape() -> None:
    assert json.loads(error(400, "no", "x"))["error"] == {
        "message": "no",
        "type": "invalid_request_error",
        "param": None,
        "code": "x",
    }
    assert json.loads(error(500, "no", None))["error"]["type"] == "api_error"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('litellm.X: AnthropicError - {"type":"error","error":{"type":"y","message":"too long"}}', "too long"),
        ('litellm.X: AnthropicError - b\'{"error":{"message":"too long"}}\'', "too long"),
        ('X - {"message": "too long"}', "too long"),
        ("plain words", "plain words"),
        ("X - {broken}", "X - {broken}"),
        ('X - {"error": "words"}', 'X - {"error": "words"}'),
    ],
)
def test_the_providers_words_are_found_in_what_stands_around_them(text: str, message: str) -> None:
    assert provider_message(text) == message
