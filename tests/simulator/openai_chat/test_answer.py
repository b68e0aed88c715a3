"""The simulated Chat Completions API over ASGI: its replies and its refusals."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from proxy.apis.openai_chat import API
from proxy.simulator.app import SimulatorConfig, simulator
from proxy.wire.sse import events
from proxy.wire.tap import Tap
from tests.simulator.test_app import COUNTED, USER, asked, words


def test_one_that_does_not_is_refused_in_the_words_of_the_provider_it_plays() -> None:
    got = asked(simulator(COUNTED), max_tokens=88)
    assert got.status == 400
    assert got.told.startswith(
        "This model's maximum context length is 100 tokens. However, you requested 101 tokens (13"
    )
    assert asked(simulator(COUNTED), max_tokens=87).status == 200
    assert (
        asked(simulator(COUNTED), max_completion_tokens=87, n=2).status == 200
    )  # each answer has the window to itself
    tgi = SimulatorConfig(count=words, window=100, provider="tgi")
    assert asked(simulator(tgi), max_tokens=88).status == 422


def test_a_window_can_be_a_models_own() -> None:
    app = simulator(SimulatorConfig(count=words, window=100, windows={"m": 50}))
    assert asked(app, max_tokens=40).status == 400
    assert asked(app, max_tokens=37).status == 200


def test_a_refusal_can_come_as_an_event_inside_a_stream() -> None:
    app = simulator(SimulatorConfig(count=words, window=12, in_stream=True))
    got = asked(app, stream=True)
    assert (got.status, got.headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    first, last = (data for _, data in events(got.body))
    assert "maximum context length is 12" in msgspec.json.decode(first)["error"]["message"]
    assert last == b"[DONE]"
    assert asked(app).status == 400


@pytest.mark.parametrize("provider", ["vllm", "cerebras"])
def test_an_event_that_refuses_is_an_error_whatever_the_providers_envelope(provider: str) -> None:
    got = asked(simulator(SimulatorConfig(count=words, window=12, in_stream=True, provider=provider)), stream=True)
    tap = Tap(API, "text/event-stream")
    tap.feed(got.body)
    assert (tap.error is not None, tap.content_seen, tap.done) == (provider == "vllm", False, True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_can_be_a_finish_reason_and_nothing_else(stream: bool) -> None:
    got = asked(simulator(SimulatorConfig(count=words, window=12, provider="zai")), stream=stream)
    tap = Tap(API, "text/event-stream" if stream else "application/json")
    tap.feed(got.body)
    assert (got.status, tap.finish, tap.content_seen) == (200, "model_context_window_exceeded", False)


def test_a_stream_says_what_an_answer_says() -> None:
    app = simulator(COUNTED)
    got = asked(app, stream=True, stream_options={"include_usage": True})
    tap = Tap(API, got.headers[b"content-type"].decode())
    for part in got.parts:
        tap.feed(part)
    assert (tap.done, tap.finish, tap.content_seen) == (True, "stop", True)
    assert tap.usage and tap.usage.prompt == 13
    assert asked(app, stream=True).body.count(b'"usage"') == 0


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([USER, {"role": "tool", "tool_call_id": "a", "content": "x"}], "Invalid parameter: messages with role 'tool'"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}], "An assistant message with 'tool_calls' must be"),
        ([{"role": "user", "content": ""}], "messages: text content blocks must be non-empty"),
        ([{"role": "ai", "content": "x"}], "Invalid value: 'ai'."),
    ],
)
def test_what_breaks_a_law_is_refused_in_openais_shape(messages: list[Any], told: str) -> None:
    got = asked(simulator(COUNTED), *messages)
    assert got.status == 400
    assert got.told.startswith(told)
    assert set(got.json["error"]) == {"message", "type", "param", "code"}


def test_a_system_prompt_that_vanished_is_missed() -> None:
    app = simulator(SimulatorConfig(count=words, system="Be brief"))
    assert asked(app, {"role": "system", "content": "Be brief."}, USER).status == 200
    assert asked(app, USER).json["error"]["code"] == "system_message_missing"


@pytest.mark.parametrize(("asks", "reports"), [(b"8", 8), (b"1000", 13)])
def test_it_reports_as_many_cached_tokens_as_it_is_told_up_to_all(asks: bytes, reports: int) -> None:
    usage = asked(simulator(COUNTED), headers=[(b"x-sim-cached", asks)]).json["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (13, reports)


def test_a_long_body_is_counted_in_a_thread() -> None:
    seen: list[threading.Thread] = []

    def count(body: bytes) -> int:
        seen.append(threading.current_thread())
        return len(body) // 4

    app = simulator(SimulatorConfig(count=count, window=1_000_000))
    assert asked(app, {"role": "user", "content": "x" * 100_000}).status == 200
    assert asked(app).status == 200
    assert [thread is threading.main_thread() for thread in seen] == [False, True]
