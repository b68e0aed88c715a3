"""A question for embeddings, and what counts as an answer to it."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from proxy.apis.openai_embeddings.call import NoVectors, request_body, vectors_in


def answer(*embeddings: Any, **more: Any) -> bytes:
    data = [{"object": "embedding", "index": i, "embedding": e} for i, e in enumerate(embeddings)]
    return json.dumps({"object": "list", "data": data, "model": "emb", "usage": {}, **more}).encode()


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def test_the_question_is_the_model_and_the_texts() -> None:
    assert json.loads(request_body("emb", ("a", "b"))) == {"model": "emb", "input": ["a", "b"]}


def test_vectors_come_as_numbers_or_packed_in_base64() -> None:
    assert vectors_in(answer([1, 0.5], [2.0, -1]), 2) == [[1.0, 0.5], [2.0, -1.0]]
    assert vectors_in(answer(packed(1, 0.5), packed(2, -1)), 2) == [(1.0, 0.5), (2.0, -1.0)]


def test_they_are_put_into_the_order_of_the_texts_and_one_that_says_none_is_in_it() -> None:
    data = [{"index": 1, "embedding": [1]}, {"index": 0, "embedding": [2]}]
    assert vectors_in(json.dumps({"data": data}).encode(), 2) == [[2.0], [1.0]]
    assert vectors_in(b'{"data":[{"embedding":[1]},{"embedding":[2]}]}', 2) == [[1.0], [2.0]]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"<html>",
        b"[]",
        b"\xff",
        b'{"data":null}',
        b'{"error":{"message":"no"}}',
        answer(),
        answer([1.0]),
        answer([1.0], [1.0], [1.0]),
        answer([1.0], [1.0, 2.0]),
        answer([1.0], ["x"]),
        answer([1.0], None),
        answer("###", packed(1)),
        answer(packed(1), base64.b64encode(b"12345").decode()),
        answer("\u00e9", packed(1)),
        b'{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}',
        b'{"data":[{"index":1,"embedding":[1]},{"index":2,"embedding":[1]}]}',
        b'{"data":[{"index":1,"embedding":[1]},{"embedding":[1]}]}',
        b'{"data":[{"embedding":[NaN]},{"embedding":[1]}]}',
        b'{"data":' + b"[" * 100_000,
    ],
)
def test_what_is_no_answer_holds_no_vectors(payload: bytes) -> None:
    with pytest.raises(NoVectors):
        vectors_in(payload, 2)
