"""What is read of responses of Ollama's API, and what is written in their shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis import error_body, stream_format
from proxy.apis.ollama import API
from proxy.errors import does_not_fit, overloaded
from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Usage
from proxy.wire.ollama import response

SAID = {"role": "assistant", "content": "x"}
PART = {"model": "m", "created_at": "t", "message": SAID, "done": False}
FIGURES = {"done_reason": "stop", "prompt_eval_count": 12, "eval_count": 7, "eval_duration": 9}
LAST = {**PART, "message": {"role": "assistant", "content": ""}, "done": True, **FIGURES}
WHOLE = {**PART, "done": True, **FIGURES}
ERROR = {"error": "model runner has unexpectedly stopped"}


def raw(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read(*lines: Any) -> ResponseState:
    state = ResponseState()
    for line in lines:
        state = response.read(raw(line), state)
    return state


def test_the_usage_of_a_response_of_one_piece() -> None:
    assert response.complete_usage(raw(WHOLE)) == read(WHOLE).usage == Usage(12, 7)
    assert response.USAGE_KEY in raw(WHOLE)


@pytest.mark.parametrize(
    "other",
    [
        {"done": False},
        {"done_reason": "odd"},
        {"error": "x"},
        {"prompt_eval_count": -1},
        {"prompt_eval_count": 10**18},
        {"prompt_eval_count": None},
    ],
)
def test_only_an_ordinary_response_tells_its_usage_at_once(other: dict[str, Any]) -> None:
    assert response.complete_usage(raw(WHOLE | other)) is None


def test_a_stream_is_read_from_its_first_to_its_last_line() -> None:
    assert read(PART, PART) == ResponseState(content=True)
    assert read(PART, LAST) == ResponseState(Usage(12, 7), "stop", None, True, True)
    assert read(LAST | {"prompt_eval_count": True}).usage is None  # a cached prompt is not counted by old versions


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (PART, EventKind.CONTENT),
        ({**PART, "message": {"role": "assistant", "content": ""}}, EventKind.FRAME),
        ({**PART, "message": {"role": "assistant", "content": "", "thinking": "t"}}, EventKind.CONTENT),
        ({**PART, "message": {"role": "assistant", "content": "", "tool_calls": [{}]}}, EventKind.CONTENT),
        (LAST, EventKind.FRAME),
        ({**LAST, "done_reason": "odd"}, EventKind.FINISH),
        (ERROR, EventKind.OTHER),
        ({"x": 1}, EventKind.OTHER),
        ([1], EventKind.OTHER),
    ],
)
def test_what_a_line_is(line: Any, kind: EventKind) -> None:
    assert response.event_kind(raw(line)) is kind


def test_the_first_error_is_kept_as_it_came() -> None:
    assert read(PART, ERROR, {"error": "other"}).error == raw(ERROR)


def test_the_end_of_an_object_is_read() -> None:
    state = response.read_tail(b'xt"},' + raw(FIGURES)[1:], ResponseState())
    assert state.usage == Usage(12, 7) and state.finish == "stop"
    assert response.read_tail(b'"done":true,"prompt_eval_count":3}', ResponseState()).usage == Usage(3, 0)
    assert response.read_tail(b"x", state) == state


def test_landmarks_are_where_the_last_of_each_stands() -> None:
    data = raw(PART) + b"\n" + raw(ERROR) + b"\n" + raw(LAST) + b"\n"
    words = (b'"prompt_eval_count"', b'"done_reason"', b'"error"', b'"done":true')
    assert [data.startswith(word, place) for place, word in zip(response.landmarks(data), words, strict=True)] == [
        True
    ] * 4
    assert response.landmarks(b"") == []


@pytest.mark.parametrize(
    ("tail", "ends"),
    [
        (raw(LAST) + b"\n", True),
        (raw({**LAST, "eval_duration": 123_456_789_012}) + b"\n", True),
        (raw(PART) + b"\n", False),
        (raw({**PART, "message": {**SAID, "content": '"eval_duration":5}'}}) + b"\n", False),
        (b"data: [DONE]\n\n", False),
    ],
)
def test_the_end_of_a_stream_is_known_by_its_last_bytes(tail: bytes, ends: bool) -> None:
    assert API.response.is_end_of_stream(tail[-32:]) is ends


def test_errors_of_ours_are_texts_and_lines() -> None:
    for error in (overloaded(), does_not_fit(1, 2, 3, 4, "messages")):
        assert json.loads(error_body("/api/chat", error)) == {"error": error.message}
        assert API.response.error_event(error) == API.response.error_body(error) + b"\n"
    assert stream_format("/api/chat") is API.response


def test_a_prompt_is_restated_where_it_is_reported() -> None:
    raw = json.dumps(LAST).encode()
    assert response.with_more_prompt(raw, 88) == raw.replace(b"12,", b"100,", 1)
    for other in (json.dumps(PART).encode(), b'{"prompt_eval_count":0}', b'{"message":{"prompt_eval_count":3}}', b""):
        assert response.with_more_prompt(other, 88) == other
