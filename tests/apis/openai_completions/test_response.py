"""What a completion reports, and the proxy's own errors on its path."""

from __future__ import annotations

import json

from proxy.apis.openai_completions import API
from proxy.errors import does_not_fit, overloaded
from proxy.model.outcome import Usage


def test_the_usage_of_a_complete_response_is_read() -> None:
    choice = {"text": "six", "index": 0, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    whole = json.dumps({"object": "text_completion", "choices": [choice], "usage": usage}).encode()
    assert API.response.complete_usage(whole) == Usage(5, 1)


def test_an_error_names_the_prompt_where_it_is_too_long() -> None:
    error = json.loads(API.response.error_body(does_not_fit(9, 1, 0, 8, "x")))["error"]
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    assert API.response.error_event(overloaded()) == b"data: " + API.response.error_body(overloaded()) + b"\n\n"


def test_a_stream_ends_and_is_kept_alive_as_chats() -> None:
    assert API.response.is_end_of_stream(b"data: [DONE]\n\n")
