"""Replies of the simulated Messages API, whole and as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.simulator.anthropic_messages.replies import SUMMARY_TOKENS, Reply, events, ident_of, message, reply_to

TOOL = {"name": "f", "input_schema": {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}}}


def body(model: str = "claude-sonnet-4-5", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}], **more}


def streamed(reply: Reply) -> list[Any]:
    blocks = b"".join(events(reply)).decode().strip().split("\n\n")
    return [json.loads(block.split("\n")[1].removeprefix("data: ")) for block in blocks]


def test_the_same_request_gets_the_same_reply_and_another_another_id() -> None:
    assert reply_to(body(), 9) == reply_to(body(), 9)
    assert reply_to(body(), 9).id == ident_of(body()) != ident_of(body("claude-opus-4-5"))


def test_what_was_cached_is_not_in_the_input_tokens() -> None:
    plain = reply_to(body(), 100).usage(1)
    marked = reply_to(body(cache_control={"type": "ephemeral"}), 100).usage(1)
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert [plain[key] for key in keys] == [100, 0, 0]
    assert [marked[key] for key in keys] == [25, 50, 25]


def test_structured_output_is_json_of_the_schema() -> None:
    form = {"type": "json_schema", "schema": TOOL["input_schema"]}
    for more in ({"output_format": form}, {"output_config": {"format": form}}):
        assert json.loads(reply_to(body(**more), 9).blocks[0]["text"]) == {"q": "sim"}


@pytest.mark.parametrize(
    ("choice", "model", "calls"),
    [
        ({"type": "any"}, "m", 1),
        ({"type": "tool", "name": "f"}, "m", 1),
        ({"type": "tool", "name": "g"}, "m", 0),
        ({"type": "none"}, "sim-tools", 0),
        (None, "sim-tools-parallel", 2),
        ({"type": "auto", "disable_parallel_tool_use": True}, "sim-tools-parallel", 1),
        (None, "m", 0),
    ],
)
def test_tools_are_called_by_the_script(choice: Any, model: str, calls: int) -> None:
    blocks = reply_to(body(model, tools=[TOOL], tool_choice=choice), 9).blocks
    assert [block["type"] for block in blocks] == (["tool_use"] * calls or ["text"])
    assert len({block.get("id") for block in blocks}) == len(blocks)


def test_events_add_up_to_the_message() -> None:
    for request in (body(thinking={"type": "adaptive"}), body("sim-tools", tools=[TOOL])):
        reply = reply_to(request, 9, "Fine, thanks.")
        told = streamed(reply)
        built: list[Any] = []
        for one in told:
            if one["type"] == "content_block_start":
                built.append(dict(one["content_block"]) | ({"input": ""} if "input" in one["content_block"] else {}))
            for key, value in one.get("delta", {}).items() if one["type"] == "content_block_delta" else ():
                if key != "type":
                    built[-1]["input" if key == "partial_json" else key] += value
        for block in built:
            block |= {"input": json.loads(block["input"])} if "input" in block else {}
        assert built == json.loads(message(reply))["content"]
        assert told[-2]["delta"]["stop_reason"] == reply.stop


def test_what_was_compacted_is_an_iteration_of_its_own() -> None:
    usage: Any = Reply("i", "m", (), "end_turn", 5, 1, False, summarised=400).usage(1)
    assert [one["input_tokens"] for one in usage["iterations"]] == [400, 5]
    assert usage["iterations"][0]["output_tokens"] == SUMMARY_TOKENS
