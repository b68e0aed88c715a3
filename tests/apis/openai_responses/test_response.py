"""What is read of responses and of the events of their streams, and what we say in them ourselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_responses import response
from proxy.errors import does_not_fit, overloaded
from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Usage

USAGE = {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 7, "total_tokens": 97}
DONE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": 'he wrote "usage": {"input_tokens": 5}',
    "output": [{"type": "message"}],
    "usage": USAGE,
}
FAILED = {**DONE, "status": "failed", "error": {"code": "context_length_exceeded", "message": "m"}, "usage": None}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def event(kind: str, **fields: Any) -> bytes:
    return encoded({"type": kind, "sequence_number": 1, **fields})


def incomplete(reason: str) -> dict[str, Any]:
    return {**DONE, "status": "incomplete", "incomplete_details": {"reason": reason}}


def test_the_usage_of_a_complete_response_is_read() -> None:
    assert response.complete_usage(encoded(DONE)) == Usage(90, 7, 8, "resp_1")
    assert response.complete_usage(encoded(incomplete("max_output_tokens"))) == Usage(90, 7, 8, "resp_1")
    bare = {**DONE, "usage": {"input_tokens": 5}}
    assert response.complete_usage(encoded(bare)) == Usage(5, stored_as="resp_1")


def test_what_compacting_brings_is_read_like_a_response() -> None:
    compacted = {"id": "resp_1", "object": "response.compaction", "output": [], "usage": USAGE}
    assert response.complete_usage(encoded(compacted)) == Usage(90, 7, 8, "resp_1")
    assert response.event_kind(encoded(compacted)) is EventKind.CONTENT


@pytest.mark.parametrize(
    "given",
    [
        *({}, [], FAILED, incomplete("unheard_of"), {**DONE, "usage": None}, {**DONE, "object": "list"}),
        *({**DONE, "error": {"code": "x"}}, {**DONE, "usage": {"input_tokens": -1}}, {**DONE, "status": "queued"}),
    ],
)
def test_of_anything_else_no_usage_is_read_in_a_hurry(given: Any) -> None:
    assert response.complete_usage(encoded(given)) is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (event("response.created", response=DONE), EventKind.FRAME),
        (event("response.in_progress", response=DONE), EventKind.FRAME),
        (event("response.queued", response=DONE), EventKind.FRAME),
        (event("keepalive"), EventKind.FRAME),
        (event("response.output_item.added", item={}), EventKind.CONTENT),
        (event("response.output_text.delta", delta="x"), EventKind.CONTENT),
        (event("response.completed", response=DONE), EventKind.CONTENT),
        (event("response.incomplete", response=incomplete("max_output_tokens")), EventKind.CONTENT),
        (event("response.incomplete", response=incomplete("model_context_window_exceeded")), EventKind.FINISH),
        (event("response.failed", response=FAILED), EventKind.OTHER),
        (event("error", code="x", message="m"), EventKind.OTHER),
        (encoded({"error": {"message": "m"}}), EventKind.OTHER),
        (encoded({"type": 5}), EventKind.OTHER),
        (b"[DONE]", EventKind.OTHER),
        (encoded(DONE), EventKind.CONTENT),
        (encoded({**DONE, "output": []}), EventKind.FRAME),
        (encoded(FAILED), EventKind.OTHER),
        (encoded(incomplete("unheard_of")), EventKind.FINISH),
    ],
)
def test_every_event_is_of_a_kind(data: bytes, kind: EventKind) -> None:
    assert response.event_kind(data) is kind


def test_a_stream_is_read_event_by_event() -> None:
    state = ResponseState()
    state = response.read(event("response.created", response={**DONE, "usage": None}), state)
    assert state == ResponseState()
    state = response.read(event("response.output_text.delta", delta="x"), state)
    assert state.content and not state.ended
    state = response.read(event("response.incomplete", response=incomplete("max_output_tokens")), state)
    assert (state.usage, state.finish, state.error, state.ended) == (
        Usage(90, 7, 8, "resp_1"),
        "max_output_tokens",
        None,
        True,
    )


def test_what_is_not_stored_has_no_id() -> None:
    unstored = {**DONE, "store": False}
    assert response.complete_usage(encoded(unstored)) == Usage(90, 7, 8)
    last = event("response.completed", response=unstored)
    assert response.read(last, ResponseState()).usage == Usage(90, 7, 8)
    assert response.read(encoded({"usage": USAGE}), ResponseState()).usage == Usage(90, 7, 8)


def test_an_error_is_kept_wherever_it_comes() -> None:
    failed = event("response.failed", response=FAILED)
    state = response.read(failed, ResponseState())
    assert state.error == failed and state.ended and not state.content
    assert response.read(event("error"), state).error == failed
    assert response.read(encoded({"message": "m"}), ResponseState(), b"error").error
    assert response.read(encoded({"error": {"message": "m"}}), ResponseState()).error
    assert response.read(encoded(FAILED), ResponseState()).error
    assert response.read(b"not json", ResponseState()) == ResponseState()
    assert response.read(encoded(DONE), ResponseState()) == ResponseState(Usage(90, 7, 8, "resp_1"), content=True)


def test_the_end_of_a_response_is_enough_for_its_usage_and_its_reason() -> None:
    tail = encoded(incomplete("max_output_tokens"))[60:]
    assert response.read_tail(tail, ResponseState(content=True)) == ResponseState(
        Usage(90, 7, 8), "max_output_tokens", content=True
    )
    assert response.read_tail(b"", ResponseState(finish="x")).finish == "x"


def test_what_matters_in_a_long_stream_is_found_by_its_place() -> None:
    begun, more = event("response.created", response=DONE), event("response.output_text.delta", delta="x")
    last = event("response.completed", response=incomplete("max_tokens"))
    data = b"event: a\ndata: %b\n\ndata: %b\n\nevent: response.completed\ndata: %b\n\n" % (begun, more, last)
    places = response.landmarks(data)
    start = data.rfind(b"event: response.completed")
    assert len(places) == 3 and all(place > start for place in places)
    assert response.landmarks(b"data: {}\n\n") == []
    assert response.landmarks(b"x\n\nevent: error\ndata: {}\n\n") == [3]
    assert not response.is_end_of_stream(data[-32:])


def test_our_own_errors_have_the_shapes_of_the_api() -> None:
    error = json.loads(response.error_body(does_not_fit(1, 2, 3, 4, "takers")))["error"]
    assert (error["param"], error["code"]) == ("input", "context_length_exceeded")
    name, data = response.error_event(overloaded()).split(b"\n")[:2]
    assert name == b"event: error"
    told = json.loads(data.removeprefix(b"data: "))
    assert told.keys() == {"type", "code", "message", "param", "sequence_number"} and told["code"] == "overloaded"


def test_that_a_request_is_too_long_is_told_in_a_stream_and_nothing_else_is() -> None:
    assert response.refusal_stream(overloaded(), "m", 5) is None
    stream = response.refusal_stream(does_not_fit(1, 2, 3, 4, "takers"), "m", 5)
    assert stream is not None
    told = [json.loads(line.removeprefix(b"data: ")) for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert [one["type"] for one in told] == ["response.created", "response.failed"]
    assert [one["sequence_number"] for one in told] == [0, 1]
    failed = told[1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "context_length_exceeded")
    assert failed["model"] == "m" and told[0]["response"]["error"] is None


@pytest.mark.parametrize(
    ("details", "written"), [({}, None), ({"cache_write_tokens": 0}, 0), ({"cache_write_tokens": 1024}, 1024)]
)
def test_M4_what_was_written_to_the_cache_is_read_of_complete_responses_and_of_streams(
    details: dict[str, int], written: int | None
) -> None:
    """9,000 prompt tokens, of which 2,048 were read."""
    usage = {"input_tokens": 9000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 2048, **details}}
    whole = {"object": "response", "status": "completed", "id": "r", "usage": usage}
    assert response.complete_usage(json.dumps(whole).encode()) == Usage(9000, 5, 2048, "r", written)
    event = json.dumps({"type": "response.completed", "response": whole}).encode()
    assert response.read(event, ResponseState()).usage == Usage(9000, 5, 2048, "r", written)
