"""The simulator's /api/embed: vectors, what is cut without a word, what is refused."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proxy.simulator.app import Simulator
from proxy.simulator.ollama_embed.answer import TOO_LONG
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.refusals import compile_rules, recognise
from tests.simulator.test_app import ResponseReader, exchange

RULES = compile_rules(tomllib.loads((Path(__file__).parents[3] / "rules/refusals.toml").read_text("utf-8")))
LONG = "word " * 600


def asked(app: Simulator | None = None, method: str = "POST", **fields: Any) -> ResponseReader:
    sent = json.dumps({"model": "nomic-embed-text", "input": "Hello", **fields}).encode()
    return asyncio.run(exchange(app or Simulator(SimulatorConfig(window=500)), method, "/api/embed", sent, []))


def test_each_text_has_a_vector() -> None:
    got = asked(input=["Hello", "How deep?"], dimensions=8).json
    assert [len(vector) for vector in got["embeddings"]] == [8, 8] and got["prompt_eval_count"] == 5
    assert got["embeddings"][0] == asked(dimensions=8).json["embeddings"][0]
    assert asked(input=[]).json["embeddings"] == asked(input="").json["embeddings"] == []


def test_what_is_too_long_is_cut_without_a_word_unless_the_request_forbids_it() -> None:
    assert asked(input=["Hello", LONG]).json["prompt_eval_count"] == 501
    assert asked(input=LONG, truncate=True).json["prompt_eval_count"] == 500
    got = asked(input=LONG, truncate=False)
    assert (got.status, got.json) == (400, {"error": TOO_LONG})
    assert recognise(RULES, got.status, got.body) is not None
    assert asked(input="word " * 400, truncate=False).status == 200
    assert asked(input=LONG, truncate=False, options={"num_ctx": 900}).status == 200


def test_the_window_is_the_loaded_one() -> None:
    app = Simulator(SimulatorConfig(window=500))
    asked(app, options={"num_ctx": 900})
    assert app.held["loaded"] == {"nomic-embed-text:latest": 900}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": ""}, "model is required"),
        ({"input": 5}, "invalid input type"),
        ({"input": ["x", 5]}, "invalid input type"),
        ({"truncate": "no"}, "json: cannot unmarshal value into Go struct field EmbedRequest.truncate of type bool"),
    ],
)
def test_what_ollama_does_not_take_is_refused(fields: dict[str, Any], said: str) -> None:
    got = asked(**fields)
    assert (got.status, got.json) == (400, {"error": said})
    assert asked(method="GET").status == 405
