"""The simulated Completions API: rules, refusals and replies; its counts are the proxy's own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from proxy.simulator.app import Simulator, SimulatorConfig, simulator
from proxy.wire.sse import events
from tests.simulator.test_app import ResponseReader, exchange

MODEL = "gpt-3.5-turbo-instruct"


def ask(app: Simulator | None = None, path: str = "/v1/completions", **fields: Any) -> ResponseReader:
    body = msgspec.json.encode({"model": MODEL, "prompt": "hello", **fields})
    return asyncio.run(exchange(app or simulator(), path=path, body=body))


@pytest.mark.parametrize(
    ("prompt", "tokens", "answers"),
    [("hello there", 2, 1), (["hello", "hello there"], 3, 2), ([1, 2, 3], 3, 1), ([[1, 2], [3]], 3, 2)],
)
def test_each_prompt_is_answered_and_all_are_counted(prompt: Any, tokens: int, answers: int) -> None:
    found = ask(prompt=prompt, n=2).json
    assert found["usage"]["prompt_tokens"] == tokens
    assert [choice["index"] for choice in found["choices"]] == list(range(2 * answers))


def test_a_suffix_counts_and_an_echo_repeats_the_prompt() -> None:
    assert ask(suffix=" there").json["usage"]["prompt_tokens"] == 2
    found = ask(echo=True, max_tokens=0).json
    assert found["choices"][0]["text"] == "hello" and found["usage"]["completion_tokens"] == 0
    assert ask(prompt=[1, 2], echo=True).json["choices"][0]["text"].startswith("<2 tokens>")


def test_a_reply_has_sixteen_tokens_unless_the_request_says_otherwise() -> None:
    app = simulator(SimulatorConfig(text="aye " * 40))
    assert ask(app).json["usage"]["completion_tokens"] == 16
    assert ask(app, max_tokens=3).json["choices"][0]["finish_reason"] == "length"
    assert ask(app, max_tokens=90).json["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_the_texts_the_usage_if_it_is_asked_for_and_an_end() -> None:
    reader = ask(stream=True, stream_options={"include_usage": True}, prompt=["a", "b"], echo=True)
    *found, last = [data for _, data in events(reader.body)]
    assert last == b"[DONE]" and msgspec.json.decode(found[-1])["usage"]["prompt_tokens"] == 2
    assert {msgspec.json.decode(one)["choices"][0]["index"] for one in found[:-1]} == {0, 1}
    assert b"usage" not in ask(stream=True).body


def test_openai_refuses_a_prompt_that_is_too_long_in_its_old_words() -> None:
    app = simulator(SimulatorConfig(window=100))
    found = ask(app, prompt=["a", "word " * 95], max_tokens=20)
    assert found.status == 400 and found.json["error"] == {
        "message": "This model's maximum context length is 100 tokens, however you requested 116 tokens (96 in your "
        "prompt; 20 for the completion). Please reduce your prompt; or completion length.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    newer = simulator(SimulatorConfig(window=100, provider="openai"))
    assert ask(newer, prompt=list(range(99))).json["error"]["code"] == "context_length_exceeded"
    assert ask(simulator(SimulatorConfig(window=100, provider="llamacpp")), prompt=list(range(99))).status == 200


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model": ""}, "you must provide a model parameter"),
        ({"prompt": []}, "empty array"),
        ({"prompt": None}, "Invalid type for 'prompt'"),
        ({"prompt": [1, "a"]}, "Invalid type for 'prompt'"),
        ({"prompt": [[]]}, "Invalid type for 'prompt'"),
        ({"prompt": [-1]}, "Invalid type for 'prompt'"),
        ({"max_tokens": -1}, "out of range"),
        ({"max_tokens": 1.5}, "expected an integer"),
        ({"max_tokens": 0}, "unless echo"),
        ({"n": 3, "best_of": 2}, "n > best_of"),
        ({"best_of": 21}, "out of range"),
        ({"suffix": 1}, "Invalid type for 'suffix'"),
        ({"stream_options": {}}, "only allowed when 'stream' is enabled"),
    ],
)
def test_what_openai_refuses_is_refused(fields: dict[str, Any], says: str) -> None:
    found = ask(**fields)
    assert found.status == 400 and says in found.json["error"]["message"]


def test_a_server_that_truncates_says_nothing_of_it() -> None:
    app = simulator(SimulatorConfig(window=40, truncates=True))
    assert ask(app, prompt="word " * 100).json["usage"]["prompt_tokens"] == 20
    assert ask(app).json["usage"]["prompt_tokens"] == 1
