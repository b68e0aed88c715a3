"""Responses with vectors: their usage, several as one, and the proxy's own errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.apis.openai_embeddings.response import (
    complete_usage,
    error_body,
    error_event,
    event_kind,
    joined,
    read,
    read_tail,
)
from proxy.errors import inputs_do_not_fit, overloaded
from proxy.model.api import EventKind, ResponseState
from proxy.model.outcome import Usage


def response(*vectors: str, tokens: int = 3, **fields: Any) -> bytes:
    """A response with these vectors, each as JSON."""
    data = ",".join(f'{{"object":"embedding","embedding":{v} ,"index":{i}}}' for i, v in enumerate(vectors))
    usage = json.dumps({"prompt_tokens": tokens, "total_tokens": tokens})
    more = "".join(f',"{key}":{json.dumps(value)}' for key, value in fields.items())
    return f'{{"object":"list","data":[{data}],"model":"m","usage":{usage}{more}}}'.encode()


def test_the_usage_of_a_complete_response_is_read() -> None:
    assert complete_usage(response("[1.0]")) == Usage(3, 0, model="m")
    assert complete_usage(b'{"error": {}}') is None and complete_usage(response()) is None
    assert complete_usage(response("[1]", error={"message": "no"})) is None


def test_vectors_are_content_and_errors_are_not() -> None:
    assert event_kind(response("[1.0]")) is EventKind.CONTENT
    assert event_kind(b'{"error": {"message": "no"}}') is event_kind(b"{") is EventKind.OTHER
    state = read(response("[1.0]"), ResponseState())
    assert state.content and state.usage == Usage(3, 0, model="m") and state.ended and state.error is None
    assert read(b'{"error": {"message": "no"}}', ResponseState()).error is not None
    assert read_tail(response("[1.0]")[-60:], ResponseState()).usage == Usage(3, 0)


def test_several_responses_become_one_and_every_vector_keeps_its_bytes() -> None:
    first, second = response("[0.10, 1e-3]", '"AAAA"', tokens=5), response("[3]", tokens=2)
    parts = joined([first, second], [2, 1])
    assert parts is not None
    whole = b"".join(parts)
    assert b"[0.10, 1e-3]" in whole and b'"AAAA"' in whole
    found = json.loads(whole)
    assert [item["index"] for item in found["data"]] == [0, 1, 2] and found["data"][2]["embedding"] == [3]
    assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7} and found["model"] == "m"
    assert list(found) == ["object", "data", "model", "usage"]


def test_vectors_stand_in_the_order_of_their_inputs() -> None:
    mixed = b'{"data":[{"index":1,"embedding":[1]},{"index":0,"embedding":[0]}],"usage":{"a":{"b":1},"c":"x"}}'
    plain = b'{"data":[{"embedding":[2]},{}],"usage":{"a":{"b":2},"c":"x"}}'
    found = json.loads(b"".join(joined([mixed, plain], [2, 2]) or ()))
    assert [item.get("embedding") for item in found["data"]] == [[0], [1], [2], None]
    assert found["data"][2] == {"embedding": [2]} and found["usage"] == {"a": {"b": 3}, "c": "x"}


def test_what_is_no_response_with_vectors_cannot_be_joined() -> None:
    assert joined([response("[1]"), b"{"], [1, 1]) is None
    assert joined([response("[1]"), b'{"data": 1}'], [1, 1]) is None
    assert joined([response("[1]"), response("[1]", error={"message": "no"})], [1, 1]) is None


@pytest.mark.parametrize("counts", [[2, 1], [1, 2], [1, 0]])
def test_where_a_vector_is_missing_or_over_nothing_is_joined_for_it_is_unknown_which(counts: list[int]) -> None:
    two = [response("[1]"), response("[2]")]
    assert joined(two, [1, 1]) is not None and joined(two, counts) is None


def test_an_error_names_the_input_that_is_too_long() -> None:
    found = json.loads(error_body(inputs_do_not_fit([(3, 9000), (7, 8500)], 8192)))["error"]
    assert found["param"] == "input[3]" and found["code"] == "context_length_exceeded"
    assert found["message"].startswith("Invalid 'input[3]': maximum input length is 8192 tokens.")
    assert "3 (9,000 tokens), 7 (8,500 tokens)" in found["message"]
    many = inputs_do_not_fit([(i, 9000) for i in range(30)], 8192)
    assert "and 10 more" in many.message
    assert error_event(overloaded()) == b"data: " + error_body(overloaded()) + b"\n\n"
