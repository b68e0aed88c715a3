"""The simulator's embeddings: OpenAI's shape, its limits and its refusals."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any

import msgspec
import pytest

from proxy.simulator.app import simulator
from proxy.simulator.check import ApiError
from proxy.simulator.openai_embeddings.answer import embeddings
from proxy.simulator.settings import SimulatorConfig
from proxy.simulator.vectors import DIMENSIONS
from tests.simulator.test_app import exchange


def told(**body: Any) -> Any:
    return msgspec.json.decode(embeddings({"model": "emb", **body}, SimulatorConfig()))


def test_an_answer_has_openais_shape() -> None:
    answer = told(input=["one two", "three"])
    assert answer["object"] == "list" and answer["model"] == "emb"
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert [(e["object"], e["index"], len(e["embedding"])) for e in answer["data"]] == [
        ("embedding", 0, DIMENSIONS),
        ("embedding", 1, DIMENSIONS),
    ]


def test_one_text_may_stand_alone_and_dimensions_be_chosen() -> None:
    assert len(told(input="one", dimensions=700)["data"][0]["embedding"]) == 700


def test_base64_holds_the_same_numbers() -> None:
    numbers = told(input="one two")["data"][0]["embedding"]
    packed = base64.b64decode(told(input="one two", encoding_format="base64")["data"][0]["embedding"])
    assert struct.unpack(f"<{DIMENSIONS}f", packed) == pytest.approx(numbers, abs=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "", "input": "x"},
        {"model": 1, "input": "x"},
        {"input": ""},
        {"input": []},
        {"input": [1, "a"]},
        {"input": [[]]},
        {"input": ["x"] * 2049},
        {"input": "x", "dimensions": 0},
        {"input": "x", "dimensions": "9"},
        {"input": "x", "encoding_format": "hex"},
    ],
)
def test_what_openai_refuses_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        embeddings({"model": "emb", **body}, SimulatorConfig())
    assert caught.value.status == 400


def refusal(provider: str, **body: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        embeddings({"model": "text-embedding-3-small", **body}, SimulatorConfig(provider=provider))
    return refused.value


def test_lists_of_ids_are_inputs_and_count_as_they_are() -> None:
    assert told(input=[1, 2, 3])["usage"]["prompt_tokens"] == 3
    assert len(told(input=[[1, 2], [3], "x"])["data"]) == 3


def test_each_input_all_together_and_their_number_have_limits() -> None:
    one = refusal("openai-old", input=["a", "word " * 8527])
    assert one.message == (
        "This model's maximum context length is 8192 tokens, however you requested 8528 tokens (8528 in your prompt; 0 "
        "for the completion). Please reduce your prompt; or completion length."
    )
    newer = refusal("openai", input=["a", [7] * 8193])
    assert newer.message == "Invalid 'input[1]': maximum input length is 8192 tokens."
    together = refusal("openai", input=[[7] * 8000] * 38)
    assert together.message == "Requested 304000 tokens, max 300000 tokens per request"
    assert together.code == together.kind == "max_tokens_per_request"
    many = refusal("openai", input=["x"] * 3000)
    assert many.code == "array_above_max_length" and "2048, but got an array with length 3000" in many.message


def test_embeddings_are_answered_and_what_is_no_request_for_them_is_refused() -> None:
    app = simulator(SimulatorConfig(synonyms={"vessel": "boat"}))
    asked = msgspec.json.encode({"model": "emb", "input": ["boat", "vessel", "hat"]})
    got = asyncio.run(exchange(app, path="/v1/embeddings", body=asked))
    boat, vessel, hat = (entry["embedding"] for entry in got.json["data"])
    assert got.status == 200 and boat == vessel != hat
    assert asyncio.run(exchange(app, path="/v1/embeddings", body=b"[]")).status == 400
