"""The simulator's Messages API: its answers, whole and as streams, its counts and its refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import response
from proxy.model.api import ResponseState
from proxy.model.outcome import Usage
from proxy.simulator.anthropic_messages import COUNT_PATH, MAX_BYTES, PATH, count_prompt
from proxy.simulator.app import Simulator
from proxy.simulator.check import ApiError
from proxy.simulator.replies import END
from proxy.simulator.settings import SimulatorConfig
from tests.simulator.test_app import ResponseReader, exchange

ASK = {"role": "user", "content": "How are you?"}
HEADERS = [(b"anthropic-version", b"2023-06-01"), (b"x-api-key", b"sk-ant-test")]
TOOL = {"name": "f", "input_schema": {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}}


def asked(
    path: str = PATH, headers: Any = None, method: str = "POST", raw: bytes = b"", **fields: Any
) -> ResponseReader:
    config = {key: fields.pop(key) for key in ("window", "text", "api_key", "max_output", "status") if key in fields}
    base = {"model": "claude-sonnet-4-5", "max_tokens": 50, "messages": [ASK]}
    if path == COUNT_PATH:
        del base["max_tokens"]
    sent = raw or json.dumps({**base, **fields}).encode()
    app = Simulator(SimulatorConfig(**config))
    return asyncio.run(exchange(app, method, path, sent, HEADERS if headers is None else headers))


def read(got: ResponseReader) -> list[Any]:
    """The data of a stream's events, whose names are their types."""
    found = []
    for block in got.body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_plain_answer() -> None:
    got = asked(text="Fine, thanks.")
    assert got.status == 200 and got.json["content"] == [{"type": "text", "text": "Fine, thanks."}]
    assert (got.json["stop_reason"], got.json["usage"]["output_tokens"]) == ("end_turn", 2)
    assert response.complete_usage(got.body) == Usage(got.json["usage"]["input_tokens"], 2, 0)


def test_a_stream_has_the_events_of_the_real_one() -> None:
    got = asked(text="Fine, thanks.", stream=True, thinking={"type": "adaptive"})
    events = read(got)
    kinds = [event["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", "ping", *block, *block, "message_delta", "message_stop"]
    deltas = [e["delta"]["type"] for e in events if e["type"] == "content_block_delta"]
    assert deltas == ["thinking_delta", "signature_delta", "text_delta", "text_delta"]
    state = ResponseState()
    for event in events:
        state = response.read(json.dumps(event).encode(), state)
    assert state.finish == "end_turn" and state.ended and state.usage is not None and state.usage.completion == 2


def test_what_was_cached_is_not_in_the_input_tokens() -> None:
    marked = asked(cache_control={"type": "ephemeral"}).json["usage"]
    plain = asked().json["usage"]
    parts = [marked[key] for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    assert min(parts) > 0 and sum(parts) == plain["input_tokens"] and plain["cache_read_input_tokens"] == 0


def test_tools_are_called_where_the_request_or_the_model_says_so() -> None:
    forced: list[dict[str, Any]] = [{"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "f"}}]
    for fields in (*forced, {"model": "claude-sim-tools"}):
        got = asked(tools=[TOOL], **fields).json
        (call,) = got["content"]
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "f", {"q": "sim"})
        assert got["stop_reason"] == "tool_use"
    assert len(asked(tools=[TOOL], model="claude-sim-tools-parallel").json["content"]) == 2
    free: list[dict[str, Any]] = [{}, {"tool_choice": {"type": "none"}, "model": "claude-sim-tools"}]
    for fields in free:
        assert asked(tools=[TOOL], **fields).json["stop_reason"] == "end_turn"
    streamed = read(asked(tools=[TOOL], tool_choice={"type": "any"}, stream=True))
    parts = [e["delta"]["partial_json"] for e in streamed if e["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == {"q": "sim"}


def test_after_a_result_it_replies_with_text() -> None:
    call = asked(tools=[TOOL], model="claude-sim-tools").json["content"]
    result = [{"type": "tool_result", "tool_use_id": call[0]["id"], "content": "r"}]
    told = [ASK, {"role": "assistant", "content": call}, {"role": "user", "content": result}]
    assert asked(tools=[TOOL], model="claude-sim-tools", messages=told).json["content"][0]["type"] == "text"


def test_structured_output_is_json_of_the_schema() -> None:
    form = {"type": "json_schema", "schema": TOOL["input_schema"]}
    assert json.loads(asked(output_config={"format": form}).json["content"][0]["text"]) == {"q": "sim"}


@pytest.mark.parametrize(("limit", "stop"), [(1, "max_tokens"), (2, "end_turn")])
def test_the_reply_limit(limit: int, stop: str) -> None:
    assert asked(text="Fine, thanks.", max_tokens=limit).json["stop_reason"] == stop


def tokens(**fields: Any) -> int:
    return int(asked(COUNT_PATH, **fields).json["input_tokens"])


def test_it_counts_what_it_reports() -> None:
    assert (
        tokens(system="Be brief.", tools=[TOOL])
        == asked(system="Be brief.", tools=[TOOL]).json["usage"]["input_tokens"]
    )
    assert asked(COUNT_PATH, max_tokens=5).told == "max_tokens: Extra inputs are not permitted"


def test_a_prompt_over_the_window_is_refused() -> None:
    long = [{"role": "user", "content": "word " * 300}]
    count = tokens(messages=long)
    for model in ("claude-sonnet-4-5", "claude-opus-4-1"):
        got = asked(messages=long, window=count - 1, model=model, stream=True)
        assert (
            got.status == 400
            and got.told.startswith("prompt is too long: ")
            and got.told.endswith(f"> {count - 1} maximum")
        )
    both = asked(window=100, max_tokens=99, model="claude-opus-4-1").told
    assert both.startswith("input length and `max_tokens` exceed context limit: ") and "+ 99 > 100, decrease" in both


def test_since_4_5_the_model_writes_until_the_window_is_full() -> None:
    got = asked(window=tokens() + 1, max_tokens=5000, text="Fine, thanks.").json
    assert (got["stop_reason"], got["content"][0]["text"]) == ("model_context_window_exceeded", "Fine,")
    full = asked(window=tokens(), max_tokens=5000, text="Fine, thanks.").json
    assert (full["stop_reason"], full["content"]) == ("model_context_window_exceeded", [])


@pytest.mark.parametrize(
    ("fields", "status", "kind", "text"),
    [
        ({"method": "GET"}, 405, "invalid_request_error", "Method Not Allowed"),
        ({"headers": []}, 400, "invalid_request_error", "anthropic-version: header is required"),
        ({"api_key": "other"}, 401, "authentication_error", "invalid x-api-key"),
        ({"raw": b"{x"}, 400, "invalid_request_error", "The request body is not valid JSON"),
        ({"x": 1}, 400, "invalid_request_error", "x: Extra inputs are not permitted"),
        ({"max_tokens": 99, "max_output": 9}, 400, "invalid_request_error", "which is the maximum allowed number of"),
        ({"status": 503}, 503, "api_error", "overloaded"),
        ({"status": 429}, 429, "rate_limit_error", "Rate limit"),
    ],
)
def test_errors_have_anthropics_envelope(fields: dict[str, Any], status: int, kind: str, text: str) -> None:
    got = asked(**fields)
    assert (
        got.status == status and got.json["type"] == "error" and got.json["error"]["type"] == kind and text in got.told
    )


@pytest.mark.parametrize("header", [(b"x-api-key", b"k"), (b"authorization", b"Bearer k")])
def test_a_key_is_taken_from_either_header(header: tuple[bytes, bytes]) -> None:
    assert asked(api_key="k", headers=[HEADERS[0], header]).status == 200


@pytest.mark.parametrize("raw", [b"{}", b'{"model":1,"messages":[]}', b'{"model":"m"}', b"x"])
def test_what_cannot_be_counted_is_an_error(raw: bytes) -> None:
    with pytest.raises(ApiError):
        count_prompt(raw)


def test_long_bodies_are_counted_in_a_thread() -> None:
    assert tokens(messages=[{"role": "user", "content": "word " * 20_000}]) > 20_000


def test_a_model_that_goes_on_calls_until_a_result_says_that_it_was_the_last() -> None:
    call = asked(tools=[TOOL], model="claude-sim-tools-loop").json["content"]
    for text, kind in (("x", "tool_use"), (END, "text")):
        result = {"type": "tool_result", "tool_use_id": call[0]["id"], "content": text}
        told = [ASK, {"role": "assistant", "content": call}, {"role": "user", "content": [result]}]
        assert asked(tools=[TOOL], model="claude-sim-tools-loop", messages=told).json["content"][0]["type"] == kind


def test_a_request_that_is_too_large_is_refused_unread() -> None:
    got = asked(raw=b" " * (MAX_BYTES + 1))
    assert (got.status, got.json["error"]["type"]) == (413, "request_too_large")
    assert got.json["error"]["message"] == "Request exceeds the maximum size"
