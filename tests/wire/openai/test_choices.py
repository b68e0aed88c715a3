"""Responses with choices, of any of OpenAI's APIs that has them. Those of chat are in tests/apis/openai_chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Usage
from proxy.wire.openai import choices


def data(**fields: Any) -> bytes:
    return json.dumps({"object": "text_completion", **fields}).encode()


def choice(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (data(choices=[choice("hello")]), EventKind.CONTENT),
        (data(choices=[choice("")]), EventKind.FRAME),
        (data(choices=[choice("", "stop")]), EventKind.FRAME),
        (data(choices=[choice("", "model_length")]), EventKind.FINISH),
        (data(choices=[], usage={"prompt_tokens": 1}), EventKind.FRAME),
        (data(error={"message": "no"}), EventKind.OTHER),
        (b"[DONE]", EventKind.OTHER),
    ],
)
def test_an_event_has_content_or_is_a_frame_an_end_or_an_error(found: bytes, kind: EventKind) -> None:
    assert choices.event_kind(found) is kind


def test_only_a_complete_response_of_the_named_kind_has_a_quick_usage() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    whole = data(choices=[choice("hello", "length")], usage=usage)
    assert choices.complete_usage("text_completion", whole) == Usage(7, 2, 3)
    assert choices.complete_usage("chat.completion", whole) is None
    assert choices.complete_usage("text_completion", data(choices=[choice("", "odd")], usage=usage)) is None
    assert choices.complete_usage("text_completion", b"{") is None


def test_a_stream_is_read_to_its_usage_and_end() -> None:
    state = ResponseState()
    for one in (data(choices=[choice("a")]), data(choices=[choice("", "stop")]), data(choices=[], usage=None)):
        state = choices.read(one, state)
    assert state.content and state.finish == "stop" and state.usage is None and not state.ended
    state = choices.read(data(choices=[], usage={"prompt_tokens": 4, "completion_tokens": 1}), state)
    assert choices.read(b"[DONE]", state).ended and state.usage == Usage(4, 1)
