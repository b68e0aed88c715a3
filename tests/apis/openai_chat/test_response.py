"""What the JSON of a response reports, in the spelling of each provider."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.apis.openai_chat.response import (
    complete_usage,
    event_kind,
    landmarks,
    read,
    read_tail,
)
from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Usage
from proxy.wire.openai.stream import is_end_of_stream
from proxy.wire.usage import MAX_TOKENS

NOTHING = ResponseState()


def state(value: Any) -> ResponseState:
    """What an object alone reports."""
    return read(msgspec.json.encode(value), NOTHING)


def test_a_finish_reason_is_found_in_the_end_of_an_object_whose_beginning_is_gone() -> None:
    tail = b'"finish_reason":null},{"finish_reason" : "stop"}],"stop_reason":"length"}'
    assert read_tail(tail, NOTHING).finish == "length"
    assert read_tail(b'"finish_reason":null}', ResponseState(finish="stop")).finish == "stop"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"finish_reason": "stop"}, "stop"),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"delta": {"stop_reason": "max_tokens"}}, "max_tokens"),
        ({"finish_reason": None, "delta": {"content": "x"}}, None),
        ({"finish_reason": 7, "delta": "x"}, None),
    ],
)
def test_a_finish_reason_is_found_where_its_api_puts_it(told: Any, reason: str | None) -> None:
    assert state(told).finish == reason
    assert state({"choices": [told]}).finish == reason


@pytest.mark.parametrize(
    ("told", "content"),
    [
        ({"delta": {"role": "assistant", "content": ""}}, False),
        ({"delta": {"role": "assistant", "content": None, "refusal": None, "tool_calls": []}}, False),
        ({"delta": {"content": "x"}}, True),
        ({"delta": {"reasoning_content": "x"}}, True),
        ({"delta": {"tool_calls": [{"index": 0}]}}, True),
        ({"delta": {"refusal": "no"}}, True),
        ({"delta": {}}, False),
        ({"delta": "x"}, True),
        ({"delta": ""}, False),
        ({"message": {"role": "assistant", "content": "x"}}, True),
        ({"message": {"role": "assistant", "content": None}}, False),
        ({"text": "x"}, True),
        ({"content": [{"type": "text", "text": "x"}]}, True),
        ({"content": []}, False),
        ({"output": [{}]}, True),
        ({"usage": {}}, False),
    ],
)
def test_content_is_anything_of_a_reply_and_a_role_is_none(told: Any, content: bool) -> None:
    assert state(told).content is content
    assert state({"choices": [told]}).content is content


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"error": {"message": "m"}}, True),
        ({"error": "m"}, True),
        ({"type": "error", "error": {"type": "overloaded_error"}}, True),
        ({"object": "error", "message": "m"}, True),
        ({"error": None}, False),
        ({"error": {}}, False),
        ({"choices": []}, False),
    ],
)
def test_an_error_is_anything_true_under_that_name(told: Any, error: bool) -> None:
    body = msgspec.json.encode(told)
    assert read(body, NOTHING).error == (body if error else None)
    assert read(body, NOTHING, b"error").error == body


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"a":', b'{"a":"\xff"}', b"[" * 5_000, b'{"choices":7}'])
def test_what_is_no_object_of_a_response_reports_nothing(data: bytes) -> None:
    assert read(data, NOTHING) == NOTHING
    before = ResponseState(Usage(1, 2), "stop", b"e", True, True)
    assert read(data, before) == read_tail(data, before) == before


@pytest.mark.parametrize("data", [b'{"finish_reason":"\xff"}', b'{"choices":' + b"[" * 5_000])
def test_values_that_cannot_be_decoded_report_nothing(data: bytes) -> None:
    assert read(data, NOTHING) == NOTHING


def test_the_last_event_of_a_stream_is_known_by_its_data_and_by_the_streams_last_bytes() -> None:
    assert read(b"[DONE]", ResponseState(Usage(1), "stop")) == ResponseState(Usage(1), "stop", ended=True)
    assert is_end_of_stream(b"...data: [DONE]\r\n\r\n") and is_end_of_stream(b"data:[DONE]")
    assert not is_end_of_stream(b'data: {"content":"[DONE]"}\n\n') and not is_end_of_stream(b"")


def test_landmarks_are_the_last_offsets_of_what_ends_a_stream() -> None:
    stream = b'data: {"usage":{}}\n\ndata: {"finish_reason":"stop","usage" : {}}\n\ndata: error\n\ndata: [DONE]\n\n'
    found = landmarks(stream)
    assert sorted(found) == sorted(stream.rfind(word) for word in (b'"usage" :', b"_reason", b"error", b"[DONE]"))
    assert landmarks(b"data: {}\n\n") == []


WHOLE = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
}


@pytest.mark.parametrize(
    ("other", "usage"),
    [
        ({}, Usage(7, 2, 3)),
        ({"usage": {"prompt_tokens": 7, "prompt_tokens_details": {}}}, Usage(7)),
        ({"usage": {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}}, Usage(7)),
        ({"error": None}, Usage(7, 2, 3)),
        ({"choices": []}, Usage(7, 2, 3)),
        ({"object": "text_completion"}, None),
        ({"error": {"message": "too long"}}, None),
        ({"choices": [{"finish_reason": "model_length"}]}, None),
        ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": MAX_TOKENS + 1}}, None),
        (
            {"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4}}},
            Usage(7, 0, 3, written=4),
        ),
        ({"usage": {"prompt_tokens": 7, "completion_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": -1}}}, None),
        ({"usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cache_write_tokens": -1}}}, None),
        ({"usage": None}, None),
    ],
)
def test_the_usage_of_a_whole_plain_answer_is_told_at_once(other: dict[str, Any], usage: Usage | None) -> None:
    assert complete_usage(msgspec.json.encode({**WHOLE, **other})) == usage
    assert complete_usage(msgspec.json.encode({**WHOLE, **other})[:-1]) is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (
            '{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}',
            EventKind.CONTENT,
        ),
        ('{"choices":[{"delta":{}},{"delta":{"content":"Hi"}}]}', EventKind.CONTENT),
        ('{"choices":[{"delta":{"content":[{"text":"Hi"}]}}]}', EventKind.CONTENT),
        ('{"choices":[{"delta":{"tool_calls":[{"id":"c"}]}}]}', EventKind.CONTENT),
        ('{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}', EventKind.CONTENT),
        ('{"choices":[{"delta":{"content":""}}]}', EventKind.FRAME),
        ('{"choices":[],"usage":{"prompt_tokens":1}}', EventKind.FRAME),
        ('{"choices":[{"delta":{},"finish_reason":"length"}]}', EventKind.FRAME),
        ('{"choices":[{"delta":{"content":"Hi"},"finish_reason":"error"}]}', EventKind.FINISH),
        ('{"choices":[{"delta":{"content":"Hi"}}],"error":{"message":"no"}}', EventKind.OTHER),
        ('{"object":"error","choices":[{"delta":{"content":"Hi"}}]}', EventKind.OTHER),
        ('{"type":"ping"}', EventKind.OTHER),
        ("[DONE]", EventKind.OTHER),
        ("", EventKind.OTHER),
    ],
)
def test_what_an_event_is(data: str, kind: EventKind) -> None:
    assert event_kind(data.encode()) is kind
