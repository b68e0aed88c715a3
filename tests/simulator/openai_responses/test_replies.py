"""The script of replies, as one response and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from proxy.simulator.openai_responses.replies import events, refusal_events, reply_to, response
from proxy.simulator.replies import END

TOOL = {"type": "function", "name": "f", "parameters": {"properties": {"q": {"type": "string"}}, "required": ["q"]}}


def asked(model: str = "m", **fields: Any) -> dict[str, Any]:
    return {"model": model, "input": "hello", **fields}


def told(stream: Iterable[bytes]) -> list[dict[str, Any]]:
    found = [json.loads(one.split(b"\ndata: ")[1]) for one in stream]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_a_text_is_replied_and_may_be_cut_short() -> None:
    whole = response(reply_to(asked(), 12, "a b c"))
    assert whole["status"] == "completed" and whole["output"][0]["content"][0]["text"] == "a b c"
    assert whole["usage"]["input_tokens"] == 12 and whole["usage"]["output_tokens"] == 3
    cut = response(reply_to(asked(max_output_tokens=2), 12, "a b c"))
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply_to(asked(), 12).tokens[:2] == ("The", " simulator")


def test_the_same_request_gets_the_same_reply_and_its_stream_says_the_same() -> None:
    reply = reply_to(asked("sim-reasons", include=["reasoning.encrypted_content"]), 12, "a b c")
    stream = told(events(reply))
    assert [one["type"] for one in stream][:2] == ["response.created", "response.in_progress"]
    assert stream[-1] == {"type": "response.completed", "response": response(reply), "sequence_number": len(stream) - 1}
    assert "".join(one["delta"] for one in stream if one["type"] == "response.output_text.delta") == "a b c"
    assert reply == reply_to(asked("sim-reasons", include=["reasoning.encrypted_content"]), 12, "a b c")
    thought, said = reply.items
    assert thought["encrypted_content"].startswith("gAAAA")
    assert thought["id"].removeprefix("rs_")[:-1] == said["id"].removeprefix("msg_")[:-1]
    assert "encrypted_content" not in reply_to(asked("sim-reasons"), 12).items[0]


def test_tools_are_called_where_the_request_or_the_model_asks_for_it() -> None:
    required = reply_to(asked(tools=[TOOL, 5], tool_choice="required"), 1).items
    assert [(item["name"], item["arguments"]) for item in required] == [("f", '{"q":"sim"}')]
    assert len(reply_to(asked("sim-tools-parallel", tools=[TOOL]), 1).items) == 2
    assert len(reply_to(asked("sim-tools-parallel", tools=[TOOL], parallel_tool_calls=False), 1).items) == 1
    assert reply_to(asked(tools=[TOOL], tool_choice={"type": "function", "name": "f"}), 1).items[0]["name"] == "f"
    answered = [{"type": "function_call_output", "call_id": "c", "output": "x"}]
    free = asked("sim-tools", tools=[TOOL])
    for body in ({**free, "tool_choice": "none"}, {**free, "input": answered}):
        assert reply_to(body, 1).items[0]["type"] == "message"
    stream = told(events(reply_to(asked("sim-tools", tools=[TOOL]), 1)))
    deltas = [one["delta"] for one in stream if one["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == '{"q":"sim"}'


def test_json_is_replied_where_it_is_wanted() -> None:
    schema = {"type": "json_schema", "schema": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    assert "".join(reply_to(asked(text={"format": schema}), 1).tokens) == '{"n":1}'
    assert "".join(reply_to(asked(text={"format": {"type": "json_object"}}), 1).tokens) == "{}"
    assert "".join(reply_to(asked(text={"format": {"type": "text"}}), 1, "x").tokens) == "x"


def test_a_refusal_in_a_stream_comes_after_events_that_prove_nothing() -> None:
    stream = told(refusal_events(asked(), "code", "message"))
    assert [one["type"] for one in stream] == ["response.created", "response.in_progress", "response.failed"]
    assert stream[-1]["response"]["error"] == {"code": "code", "message": "message"}


def test_a_model_that_goes_on_calls_until_an_output_says_that_it_was_the_last() -> None:
    for output, kind in (("x", "function_call"), (END, "message")):
        answered = [{"type": "function_call_output", "call_id": "c", "output": output}]
        reply = reply_to({**asked("sim-tools-loop", tools=[TOOL]), "input": answered}, 1)
        assert reply.items[0]["type"] == kind
