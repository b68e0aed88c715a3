"""What the first bytes of a 200 answer show, for the beginnings that upstreams are known to send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.ollama import API as OLLAMA
from proxy.apis.openai_chat import API
from proxy.config.rules import load_rules
from proxy.wire.openai.choices import ORDINARY
from proxy.wire.refusals import Rules
from proxy.wire.response_prefix import (
    MAX_REFUSAL,
    NO_CONTENT,
    NO_EVENT,
    REPLY,
    ResponsePrefix,
    end_of_events,
    is_empty,
    read_prefix,
    refusal_in,
)

RULES: Rules = load_rules(None).refusals
TOLD = "This model's maximum context length is 4096 tokens. However, your messages resulted in 4800 tokens."
ERROR = {"error": {"message": TOLD, "type": "invalid_request_error", "code": "context_length_exceeded"}}


def event(data: Any, end: str = "\n") -> bytes:
    """One event with JSON, or a text as it is, as its data."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}{end}{end}".encode()


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


ROLE = event(choice({"role": "assistant", "content": ""}))


@pytest.mark.parametrize(
    "seen",
    [b"", b": PROCESSING\n\n", b"\xef\xbb\xbf: wait\r\n\r\n", b"event: ping\n\n", event(ERROR)[:-1], b"data: \n\n"],
)
def test_comments_and_half_an_event_show_nothing(seen: bytes) -> None:
    assert read_prefix(API, RULES, seen) is NO_EVENT


@pytest.mark.parametrize("seen", [ROLE, event({"choices": []}), b": wait\n\n" + ROLE + event(ERROR)[:-2]])
def test_an_event_without_content_is_only_a_frame(seen: bytes) -> None:
    assert read_prefix(API, RULES, seen) is NO_CONTENT


@pytest.mark.parametrize(
    "delta",
    [{"content": "Hi"}, {"reasoning_content": "Hm"}, {"tool_calls": [{"index": 0, "id": "c"}]}, {"refusal": "No"}],
)
def test_content_makes_it_a_reply_whatever_follows(delta: dict[str, Any]) -> None:
    assert read_prefix(API, RULES, ROLE + event(choice(delta)) + event(ERROR)) is REPLY


@pytest.mark.parametrize("before", [b"", ROLE, b": wait\r\n\r\n: wait\r\n\r\n", event({"choices": []}, "\r\n")])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_error_before_any_content_is_a_refusal_with_its_figures(before: bytes, end: str) -> None:
    shown = read_prefix(API, RULES, before + event(ERROR, end))
    assert shown.settled and shown.refusal is not None
    assert (shown.refusal.limit, shown.refusal.prompt) == (4096, 4800)


@pytest.mark.parametrize(
    "other",
    [
        {"error": {"message": "Rate limit reached on tokens per min (TPM)", "code": "rate_limit_exceeded"}},
        {"error": "overloaded"},
        "[DONE]",
        "no json",
        "[]",
        {"type": "ping"},
    ],
)
def test_whatever_else_it_is_it_is_settled_and_no_refusal(other: Any) -> None:
    assert read_prefix(API, RULES, event(other)) == ResponsePrefix(True, True)


def test_an_end_that_says_that_the_window_is_full_is_a_refusal() -> None:
    shown = read_prefix(API, RULES, ROLE + event(choice({}, "model_context_window_exceeded")))
    assert shown.refusal is not None and shown.refusal.rule == "context_finish"


@pytest.mark.parametrize("finish", sorted(filter(None, ORDINARY)))
def test_an_ordinary_end_is_no_refusal(finish: str) -> None:
    assert read_prefix(API, RULES, event(choice({}, finish))) is NO_CONTENT


def plain(content: str, finish: str) -> bytes:
    """A plain answer."""
    message = {"role": "assistant", "content": content}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()


def test_a_plain_answer_that_is_an_error_or_ends_for_the_window_is_a_refusal() -> None:
    for body in (json.dumps(ERROR).encode(), plain("", "model_context_window_exceeded")):
        assert refusal_in(API, RULES, body) is not None


@pytest.mark.parametrize(
    "body",
    [
        plain("Hi", "stop"),
        plain(TOLD, "stop"),
        plain(TOLD, "model_context_window_exceeded"),  # something was answered
        plain("", "stop")[:-1],
        json.dumps(ERROR).encode()[:-1],
        b"",
        b"   \n",
        b"[]",
        json.dumps({**ERROR, "padding": "x" * MAX_REFUSAL}).encode(),
    ],
)
def test_an_answer_half_an_answer_and_a_long_one_are_none(body: bytes) -> None:
    assert refusal_in(API, RULES, body) is None


def test_a_whole_plain_answer_with_its_usage_is_no_refusal_whatever_it_says() -> None:
    told = {
        "object": "chat.completion",
        "choices": [{"message": {"content": "maximum context length is 10 tokens"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3},
    }
    assert refusal_in(API, RULES, json.dumps(told).encode()) is None


@pytest.mark.parametrize("seen", [b"", b": ping\n\n", b"\n\n", b"data: [DONE]\n\n", b":\n\ndata:[DONE]\n\n"])
def test_a_stream_without_an_event_is_empty(seen: bytes) -> None:
    assert is_empty(API, seen)


@pytest.mark.parametrize("seen", [b'data: {"choices":[]}\n\n', b"data: x", b'data: {"error":{}}\n\ndata: [DONE]\n\n'])
def test_a_stream_with_any_event_is_not(seen: bytes) -> None:
    assert not is_empty(API, seen)


def test_a_refusal_may_be_the_first_line_of_a_stream_of_lines() -> None:
    said = b'{"message":{"role":"assistant","content":"x"},"done":false}\n'
    refused = json.dumps({"error": json.dumps({"error": {"message": TOLD, "n_ctx": 4096}})}).encode()
    assert read_prefix(OLLAMA, RULES, said, lines=True) == REPLY
    assert read_prefix(OLLAMA, RULES, refused, lines=True) == NO_EVENT  # its end is missing
    shown = read_prefix(OLLAMA, RULES, refused + b"\n", lines=True)
    assert shown.settled and shown.refusal is not None and shown.refusal.limit == 4096


def test_the_end_of_what_is_complete_is_behind_the_last_blank_line() -> None:
    told = b"data: 1\n\ndata: 2\r\n\r\ndata: 3"
    assert told[end_of_events(told, 0) :] == b"data: 3"
    assert end_of_events(told, 24) == 24 and end_of_events(b"", 0) == 0
