"""What is read of responses of the Messages API, and what is written in their shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.apis import error_body, stream_format
from proxy.apis.anthropic_messages import API, response
from proxy.errors import ClientError, does_not_fit, overloaded
from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Extra, Usage

CACHED = {"cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}
MESSAGE: dict[str, Any] = {"type": "message", "content": [], "stop_reason": None}
START = {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 3, **CACHED, "output_tokens": 1}}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
WHOLE = {
    **MESSAGE,
    "content": [{"type": "text", "text": "x"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, **CACHED, "output_tokens": 7},
}


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(*events: Any) -> ResponseState:
    state = ResponseState()
    for event in events:
        state = response.read(raw(event), state)
    return state


def test_the_prompt_is_the_sum_of_its_three_parts() -> None:
    assert response.complete_usage(raw(WHOLE)) == read(WHOLE).usage == Usage(123, 7, 100, written=20)
    plain = {**WHOLE, "usage": {"input_tokens": 3, "output_tokens": 7}}
    assert response.complete_usage(raw(plain)) == read(plain).usage == Usage(3, 7, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"type": "error"},
        {"stop_reason": "model_context_window_exceeded"},
        {"usage": {"input_tokens": -1, "output_tokens": 1}},
        {"usage": {"input_tokens": 10**18, "output_tokens": 1}},
        {"usage": None},
    ],
)
def test_only_an_ordinary_response_tells_its_usage_at_once(other: dict[str, Any]) -> None:
    assert response.complete_usage(raw(WHOLE | other)) is None


def test_a_stream_is_read_from_its_first_to_its_last_event() -> None:
    state = read(START, {"type": "ping"}, DELTA, END, {"type": "message_stop"})
    assert state == ResponseState(Usage(123, 7, 100, written=20), "end_turn", None, True, True)


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"output_tokens": 7}, Usage(123, 7, 100, written=20)),
        (
            {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 7},
            Usage(123, 7, 100, written=20),
        ),
        (
            {"input_tokens": 3, "output_tokens": 7},
            Usage(123, 7, 100, written=20),
        ),  # one that leaves the cached part out
        ({"input_tokens": 500, "cache_read_input_tokens": None, "output_tokens": 7}, Usage(500, 7, 0)),
        ({"output_tokens": True}, Usage(123, 1, 100, written=20)),
    ],
)
def test_the_last_event_counts_the_reply_and_perhaps_the_prompt_again(usage: dict[str, Any], found: Usage) -> None:
    assert read(START, {**END, "usage": usage}).usage == found
    assert response.read_tail(b'"x' + raw({"usage": usage})[1:], read(START)).usage == found


def test_a_reply_alone_is_no_usage() -> None:
    assert read(END).usage is None and response.read_tail(b"x", ResponseState()).usage is None
    assert response.read_tail(b'"usage":{"inp', ResponseState()).usage is None


def test_a_stop_reason_is_found_in_the_end_of_an_object() -> None:
    assert response.read_tail(b'ext"}],"stop_reason": "max_tokens"}', ResponseState()).finish == "max_tokens"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (START, EventKind.FRAME),
        ({"type": "ping"}, EventKind.FRAME),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, EventKind.CONTENT),
        (DELTA, EventKind.CONTENT),
        (END, EventKind.FRAME),
        ({"type": "message_delta", "delta": {"stop_reason": "model_context_window_exceeded"}}, EventKind.FINISH),
        ({"type": "message_stop"}, EventKind.FRAME),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, EventKind.OTHER),
        ({"error": {"message": "x"}}, EventKind.OTHER),
        ({"type": "odd", "error": {"message": "x"}}, EventKind.OTHER),
        (WHOLE, EventKind.CONTENT),
        ({**WHOLE, "content": []}, EventKind.FRAME),
        ({**WHOLE, "content": [], "stop_reason": "model_context_window_exceeded"}, EventKind.FINISH),
        ([1], EventKind.OTHER),
    ],
)
def test_what_an_event_is(event: Any, kind: EventKind) -> None:
    assert response.event_kind(raw(event)) is kind


def test_an_error_is_kept_as_it_came() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert read(START, error).error == raw(error)
    assert response.read(b"x", ResponseState(), b"error").error == b"x"
    assert read(START, error, {"error": 1}).error == raw(error)


@pytest.mark.parametrize("kind", [{"a": 1}, ["error"], 7, None])
def test_an_event_whose_type_is_no_text_says_nothing(kind: Any) -> None:
    assert API.response.read(json.dumps({"type": kind}).encode(), ResponseState()) == ResponseState()


def test_landmarks_are_where_the_last_of_each_stands() -> None:
    data = b"".join(b"data: " + raw(e) + b"\n\n" for e in (START, DELTA, END, {"type": "message_stop"}))
    assert all(
        data.find(word) < place or word in data[place:]
        for place, word in zip(response.landmarks(data), (b'"usage"', b'"stop_reason"', b"message_stop"), strict=True)
    )
    assert response.landmarks(b"") == []


@pytest.mark.parametrize(
    ("tail", "ends"),
    [
        (b'data: {"type":"message_stop"}\n\n', True),
        (b'data: {"type":"message_stop"      }\n\n'[-32:], True),
        (b'data: {"type": "message_stop"}', True),
        (b'"type":"content_block_stop","index":0}\n\n', False),
        (b"data: [DONE]\n\n", False),
    ],
)
def test_the_end_of_a_stream_is_known_by_its_last_bytes(tail: bytes, ends: bool) -> None:
    assert API.response.is_end_of_stream(tail[-32:]) is ends


def test_a_ping_is_no_content() -> None:
    assert response.event_kind(b'{"type": "ping"}') is EventKind.FRAME


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (405, "invalid_request_error"),
    ],
)
def test_an_error_of_ours_has_anthropics_envelope(status: int, kind: str) -> None:
    error = ClientError(status, "why", code="x")
    wanted = {"type": "error", "error": {"type": kind, "message": "why"}}
    assert json.loads(API.response.error_body(error)) == wanted
    for path in ("/v1/messages", "/messages", "/v1/messages/count_tokens", "/v1/messages/batches/x"):
        assert json.loads(error_body(path, error)) == wanted and stream_format(path) is API.response


def test_an_error_in_a_stream_is_an_error_event() -> None:
    shown = response.error_event(overloaded())
    assert shown == b"event: error\ndata: " + response.error_body(overloaded()) + b"\n\n"


def test_what_does_not_fit_is_refused_in_the_words_that_clients_read() -> None:
    def told(error: ClientError) -> str:
        return str(json.loads(API.response.error_body(error))["error"]["message"])

    long = does_not_fit(205_000, 1, 100, 200_000, "the system prompt", 208_310)
    assert told(long) == "prompt is too long: 208310 tokens > 200000 maximum"
    both = does_not_fit(182_530, 31_999, 100, 200_000, "x")
    assert told(both) == (
        "input length and `max_tokens` exceed context limit: 182530 + 31999 > 200000, decrease input length or "
        "`max_tokens` and try again"
    )


def test_a_prompt_is_restated_by_what_came_from_no_cache_in_each_event_that_reports_it() -> None:
    for event in (START, {**MESSAGE, "usage": {"input_tokens": 3, **CACHED, "output_tokens": 1}}):
        raw = json.dumps(event).encode() + b"   "
        got = response.with_more_prompt(raw, 1_000)
        assert got == raw.replace(b'"input_tokens": 3', b'"input_tokens": 1003')
        found = response.read(got, ResponseState()).usage
        assert found is not None and (found.prompt, found.cached, found.written) == (1_123, 100, 20)


@pytest.mark.parametrize(
    "usage",
    [{"output_tokens": 5}, {"input_tokens": 0, "output_tokens": 0}, None, [3], {"input_tokens": "3"}],
)
def test_an_event_that_reports_no_prompt_stays_as_it_is(usage: Any) -> None:
    raw = json.dumps({"type": "message_delta", "delta": {}, "usage": usage}).encode()
    assert response.with_more_prompt(raw, 1_000) == raw


def test_a_prompt_that_came_from_the_cache_as_a_whole_is_one() -> None:
    raw = b'{"type":"message","usage":{"input_tokens":0,"cache_read_input_tokens":50,"output_tokens":1}}'
    assert response.with_more_prompt(raw, 7) == raw.replace(b'"input_tokens":0', b'"input_tokens":7')


def test_M6_what_the_first_event_says_of_the_bill_holds_until_the_last_says_more() -> None:
    kept = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40}
    counts = {"input_tokens": 5, "cache_creation_input_tokens": 40, "cache_creation": kept, "output_tokens": 1}
    message = {"model": "claude-9", "usage": {**counts, "service_tier": "priority"}}
    begun = response.read(json.dumps({"type": "message_start", "message": message}).encode(), ResponseState())
    assert begun.usage is not None
    assert begun.usage == Usage(45, 1, 0, written=40, tier="priority", model="claude-9", extra=Extra(written_hour=40))
    last = {"output_tokens": 70, "server_tool_use": {"web_search_requests": 2}}
    ended = response.read(json.dumps({"type": "message_delta", "delta": {}, "usage": last}).encode(), begun).usage
    assert ended is not None and ended == replace(begun.usage, completion=70, extra=Extra(written_hour=40, searches=2))


def test_the_fast_mode_is_a_tier_of_its_own() -> None:
    body = {"type": "message", "content": [{}], "usage": {"input_tokens": 5, "output_tokens": 1, "speed": "fast"}}
    found = response.complete_usage(json.dumps({**body, "model": "m"}).encode())
    assert found is not None and found.tier == "fast"
