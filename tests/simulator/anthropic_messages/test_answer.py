"""The simulator's Messages API: its answers, whole and as streams, its counts and its refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.apis.anthropic_messages import response
from proxy.model.api import ResponseState
from proxy.model.outcome import Usage
from proxy.simulator.anthropic_messages.answer import COUNT_PATH, MAX_BYTES, PATH
from proxy.simulator.app import Simulator
from proxy.simulator.replies import END
from proxy.simulator.settings import SimulatorConfig
from tests.simulator.test_app import ResponseReader, exchange

ASK = {"role": "user", "content": "How are you?"}
CONFIGURED = ("window", "text", "api_key", "max_output", "status", "provider", "in_stream", "fail_after", "truncates")
HEADERS = [(b"anthropic-version", b"2023-06-01"), (b"x-api-key", b"sk-ant-test")]
TOOL = {"name": "f", "input_schema": {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}}


def asked(
    path: str = PATH, headers: Any = None, method: str = "POST", raw: bytes = b"", **fields: Any
) -> ResponseReader:
    config = {key: fields.pop(key) for key in CONFIGURED if key in fields}
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
    assert response.complete_usage(got.body) == Usage(
        got.json["usage"]["input_tokens"], 2, 0, written=0, model=got.json["model"]
    )


def test_a_stream_has_the_events_of_the_real_one() -> None:
    got = asked(text="Fine, thanks.", stream=True, thinking={"type": "adaptive"}, model="claude-opus-4-6")
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


def beta(*names: str) -> list[tuple[bytes, bytes]]:
    return [*HEADERS, (b"anthropic-beta", ",".join(names).encode())]


def run(calls: int) -> list[dict[str, Any]]:
    """A conversation with so many calls and their results."""
    found: list[dict[str, Any]] = [ASK]
    for i in range(calls):
        use = {"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": "word " * 50}
        found += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return found


CLEAR = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 4}}
MANAGED: dict[str, Any] = {"messages": run(6), "tools": [TOOL], "context_management": {"edits": [CLEAR]}}
SUMMARIZE = {"type": "summarize"}
LONG = [{"role": "user", "content": "word " * 300}]


def test_what_it_cleared_is_reported_and_not_counted() -> None:
    headers = beta("context-management-2025-06-27")
    whole = tokens(messages=run(6), tools=[TOOL])
    counted = asked(COUNT_PATH, headers, **MANAGED).json
    assert counted["context_management"] == {"original_input_tokens": whole} and counted["input_tokens"] < whole
    (edit,) = asked(headers=headers, **MANAGED).json["context_management"]["applied_edits"]
    assert (edit["type"], edit["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 3)
    assert edit["cleared_input_tokens"] == whole - counted["input_tokens"]
    last = read(asked(headers=headers, stream=True, **MANAGED))[-2]
    assert last["type"] == "message_delta" and last["context_management"]["applied_edits"] == [edit]
    assert asked(headers=headers, window=whole - 1, **MANAGED).status == 200
    assert asked(messages=run(6), tools=[TOOL], window=whole - 1).status == 400


def test_it_compacts_where_the_request_says_so() -> None:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50}}
    headers = beta("compact-2026-01-12", "compact-2026-09-04")
    got = asked(headers=headers, text="Fine.", context_management={"edits": [edit]}, system="word " * 60).json
    assert [block["type"] for block in got["content"]] == ["compaction", "text"]
    first, last = got["usage"]["iterations"]
    assert (first["type"], last["type"]) == ("compaction", "message")
    assert first["input_tokens"] > 50 > last["input_tokens"] == got["usage"]["input_tokens"]
    paused = {"context_management": {"edits": [{**edit, "pause_after_compaction": True}]}, "system": "word " * 60}
    for fields in (paused, {"compaction": SUMMARIZE}):
        alone = asked(headers=headers, **fields).json
        assert ([block["type"] for block in alone["content"]], alone["stop_reason"]) == (["compaction"], "compaction")
    events = read(asked(headers=headers, compaction=SUMMARIZE, stream=True))
    (delta,) = (event["delta"] for event in events if event["type"] == "content_block_delta")
    assert delta["type"] == "compaction_delta" and delta["content"]


def test_thinking_that_it_left_out_is_reported() -> None:
    drops = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    fields: dict[str, Any] = {"model": "claude-fable-5-1", "headers": beta("thinking-binding-controls-2026-08-01")}
    content = asked(thinking=drops, **fields).json["content"]
    told = [ASK, {"role": "assistant", "content": content}, ASK]
    assert "input_transformations" not in asked(thinking=drops, messages=told, **fields).json
    (one,) = asked(thinking=drops, messages=told, system="x", **fields).json["input_transformations"]
    assert one == {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}


def test_betas_change_windows() -> None:
    headers = beta("context-1m-2025-08-07")
    for model, status in (("claude-sonnet-4-5", 200), ("claude-sonnet-4-20250514", 200), ("claude-opus-4-5", 400)):
        assert asked(messages=LONG, window=200, model=model).status == 400
        assert asked(messages=LONG, window=200, model=model, headers=headers).status == status
    both: dict[str, Any] = {"window": 100, "max_tokens": 99, "model": "claude-opus-4-1", "text": "word " * 99}
    assert asked(**both).status == 400
    got = asked(headers=beta("model-context-window-exceeded-2025-08-26"), **both).json
    assert got["stop_reason"] == "model_context_window_exceeded"


def test_servers_beside_anthropic_refuse_in_their_own_words() -> None:
    said = {"message": "Input is too long for requested model."}
    assert asked(provider="bedrock", messages=LONG, window=200).json == said
    assert asked(provider="vllm", messages=LONG, window=200).json["object"] == "error"
    assert asked(truncates=True, messages=LONG, window=200).json["usage"]["input_tokens"] == 100


def test_an_error_may_come_in_the_stream() -> None:
    (refused,) = read(asked(in_stream=True, stream=True, messages=LONG, window=200))
    assert refused["error"]["type"] == "invalid_request_error"
    assert refused["error"]["message"].startswith("prompt is too long: ")
    *begun, failed = read(asked(stream=True, fail_after=3))
    assert [event["type"] for event in begun] == ["message_start", "ping", "content_block_start"]
    assert failed == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def test_every_answer_names_its_request() -> None:
    assert asked().headers[b"request-id"] == asked(stream=True).headers[b"request-id"] == b"req_simulator"
