"""The simulator's Ollama: its answers, whole and as lines, what it refuses, and what it drops without a word."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.model.api import ResponseState
from proxy.simulator.app import Simulator
from proxy.simulator.ollama.answer import LOADED_PATH, PATH, count_prompt, truncated
from proxy.simulator.settings import SimulatorConfig
from proxy.wire.ollama import response
from tests.simulator.test_app import ResponseReader, exchange

ASK = {"role": "user", "content": "How are you?"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["q"]}}}


def asked(*, app: Simulator | None = None, raw: bytes = b"", **fields: Any) -> ResponseReader:
    config = {key: fields.pop(key) for key in ("window", "text", "status", "fail_after") if key in fields}
    sent = raw or json.dumps({"model": "llama3.2", "messages": [ASK], "stream": False, **fields}).encode()
    return asyncio.run(exchange(app or Simulator(SimulatorConfig(**config)), "POST", PATH, sent, []))


def lines(got: ResponseReader) -> list[Any]:
    return [json.loads(line) for line in got.body.decode().splitlines()]


def test_a_plain_answer() -> None:
    got = asked(text="Fine, thanks.").json
    assert got["message"] == {"role": "assistant", "content": "Fine, thanks."}
    assert (got["done"], got["done_reason"], got["eval_count"]) == (True, "stop", 2)
    assert got["prompt_eval_count"] == count_prompt(json.dumps({"model": "llama3.2", "messages": [ASK]}).encode())


def test_a_stream_is_the_default_and_says_the_same() -> None:
    got = lines(asked(text="Fine, thanks.", stream=None, think=True))
    assert got[0]["message"]["thinking"] and not any(line["done"] for line in got[:-1])
    assert "".join(line["message"]["content"] for line in got) == "Fine, thanks."
    state = ResponseState()
    for line in got:
        state = response.read(json.dumps(line).encode(), state)
    assert state.ended and state.finish == "stop" and state.usage is not None


def test_tools_are_called_and_answers_are_held_to_a_schema_and_to_a_limit() -> None:
    said = asked(model="sim-tools-parallel", tools=[TOOL]).json["message"]
    assert [call["function"] for call in said["tool_calls"]] == [{"name": "f", "arguments": {"q": None}}] * 2
    streamed = lines(asked(model="sim-tools", tools=[TOOL], stream=True))
    assert streamed[0]["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert asked(format={"type": "object", "required": []}).json["message"]["content"] == "{}"
    short = asked(text="one two three", options={"num_predict": 2}).json
    assert (short["message"]["content"], short["done_reason"]) == ("one two", "length")


LONG = [
    ASK,
    {"role": "system", "content": "Be brief."},
    *({**ASK, "content": f"number {i} " * 40} for i in range(20)),
    ASK,
]


def test_what_is_too_long_is_dropped_without_a_word() -> None:
    got = asked(messages=LONG, window=500)
    assert got.status == 200 and 0 < got.json["prompt_eval_count"] <= 500
    kept = truncated({"model": "llama3.2", "messages": LONG}, 500)["messages"]
    assert kept[0]["role"] == "system" and kept[-1] == ASK and len(kept) < len(LONG)
    alone = asked(messages=[{**ASK, "content": "word " * 2_000}], window=500)
    assert alone.json["prompt_eval_count"] == 250


def test_it_is_refused_where_nothing_may_be_dropped() -> None:
    got = asked(messages=LONG, window=500, truncate=False)
    inner = json.loads(got.json["error"])["error"]
    assert got.status == 400 and inner["n_ctx"] == 500 and inner["n_prompt_tokens"] > 500
    assert asked(messages=LONG, window=500, truncate=False, options={"num_ctx": 9_000}).status == 200


def test_what_is_loaded_is_told() -> None:
    app = Simulator(SimulatorConfig(window=500))
    asked(app=app)
    asked(app=app, model="qwen3:8b", options={"num_ctx": 9_000})
    got = asyncio.run(exchange(app, "GET", LOADED_PATH, b"", [])).json["models"]
    assert {m["name"]: m["context_length"] for m in got} == {"llama3.2:latest": 500, "qwen3:8b": 9_000}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": ""}, "model is required"),
        ({"messages": {}}, "ChatRequest.messages"),
        ({"messages": [1]}, "api.Message"),
        ({"messages": [{**ASK, "content": [{"type": "text"}]}]}, "of type string"),
        ({"messages": [{**ASK, "role": "developer"}]}, "role must be one of"),
        ({"messages": [{**ASK, "images": ["?"]}]}, "illegal base64"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]},
            "ToolCallFunctionArguments",
        ),
    ],
)
def test_what_its_decoder_does_not_take_is_refused(fields: dict[str, Any], said: str) -> None:
    got = asked(**fields)
    assert got.status == 400 and said in got.json["error"]


def test_its_errors_are_texts() -> None:
    assert asked(raw=b"{").json.keys() == asked(status=500).json.keys() == {"error"}
    assert asyncio.run(exchange(Simulator(SimulatorConfig()), "PUT", PATH, b"{}", [])).status == 405


def test_what_is_too_long_to_be_shortened_is_refused_where_nothing_may_shift() -> None:
    alone = [{"role": "user", "content": "word " * 900}]
    got = asked(messages=alone, window=500, shift=False)
    assert got.status == 400 and "currently available to the model; shorten the prompt" in got.json["error"]
    assert asked(messages=alone, window=500).status == asked(messages=LONG, window=500, shift=False).status == 200


def test_a_stream_may_end_with_an_error() -> None:
    got = lines(asked(text="Fine, thanks.", stream=True, fail_after=1))
    assert [line.get("done") for line in got] == [False, None] and got[1].keys() == {"error"}
