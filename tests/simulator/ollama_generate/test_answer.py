"""The simulator's /api/generate: its answers, whole and as lines, what it refuses, and what it discards in silence."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.model.api import ResponseState
from proxy.simulator.app import Simulator
from proxy.simulator.ollama_generate.answer import count_prompt
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.ollama import response
from tests.simulator.test_app import ResponseReader, exchange


def asked(app: Simulator | None = None, method: str = "POST", whole: bytes = b"", **fields: Any) -> ResponseReader:
    config = {key: fields.pop(key) for key in ("window", "text") if key in fields}
    sent = whole or json.dumps({"model": "llama3.2", "prompt": "How are you?", "stream": False, **fields}).encode()
    return asyncio.run(exchange(app or Simulator(SimulatorConfig(**config)), method, "/api/generate", sent, []))


def lines(got: ResponseReader) -> list[Any]:
    return [json.loads(line) for line in got.body.decode().splitlines()]


def test_a_plain_answer() -> None:
    got = asked(text="Fine, thanks.").json
    assert (got["response"], got["done"], got["done_reason"], got["eval_count"]) == ("Fine, thanks.", True, "stop", 2)
    assert got["context"] and "context" not in asked(whole=b'{"model":"m","prompt":"x","raw":true,"stream":false}').json
    assert got["prompt_eval_count"] == count_prompt(b'{"model":"llama3.2","prompt":"How are you?"}')


def test_a_stream_is_the_default_and_says_the_same() -> None:
    got = lines(asked(text="Fine, thanks.", stream=None, think=True))
    assert got[0]["thinking"] and not any(line["done"] for line in got[:-1])
    assert "".join(line["response"] for line in got) == "Fine, thanks."
    state = ResponseState()
    for line in got:
        state = response.read(json.dumps(line).encode(), state)
    assert state.ended and state.content and state.finish == "stop" and state.usage is not None
    assert response.is_end_of_stream(asked(stream=None).body[-32:])


def test_answers_are_held_to_a_schema_and_to_a_limit() -> None:
    assert (
        asked(format={"type": "object", "required": []}).json["response"]
        == "{}"
        == asked(format="json").json["response"]
    )
    short = asked(text="one two three", options={"num_predict": 2}).json
    assert (short["response"], short["done_reason"]) == ("one two", "length")
    assert asked(think=True).json["thinking"]


def test_without_a_prompt_the_model_is_loaded_or_unloaded() -> None:
    app = Simulator(SimulatorConfig())
    assert asked(app, prompt="", options={"num_ctx": 777}).json["done_reason"] == "load"
    assert app.held["loaded"] == {"llama3.2:latest": 777}
    assert asked(app, prompt=None, keep_alive=0).json["done_reason"] == "unload"


def test_what_is_too_long_is_discarded_in_silence_or_refused() -> None:
    long = "word " * 900
    assert asked(prompt=long, window=500).json["prompt_eval_count"] == 250
    refused = asked(prompt=long, window=500, truncate=False)
    assert refused.status == 400 and "exceeds the available context size (500 tokens)" in refused.json["error"]
    assert asked(prompt="x", context=list(range(900)), window=500, truncate=False).status == 400
    still = asked(prompt=long, window=500, shift=False)
    assert still.status == 400 and "currently available to the model; shorten the prompt" in still.json["error"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": ""}, "model is required"),
        ({"prompt": 5}, "json: cannot unmarshal value into Go struct field GenerateRequest.prompt of type string"),
        ({"context": "x"}, "Go struct field GenerateRequest.context of type []int"),
        ({"options": []}, "Go struct field GenerateRequest.options of type map[string]interface {}"),
        ({"raw": True, "system": "s"}, "raw mode does not support template, system, or context"),
        ({"raw": True, "context": [1]}, "raw mode does not support template, system, or context"),
        ({"model": "plain", "suffix": "x"}, "does not support insert"),
        ({"images": ["?"]}, "illegal base64 data at input byte 0"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], text: str) -> None:
    got = asked(**fields)
    assert got.status == 400 and text in got.json["error"]


def test_another_method_and_what_is_no_json_are_refused() -> None:
    assert asked(method="GET").status == 405 and asked(whole=b"{").status == 400


def test_a_long_prompt_is_counted_elsewhere() -> None:
    assert asked(prompt="word " * 20_000, window=100_000).json["prompt_eval_count"] > 19_000
