"""The edits of context, made as Anthropic makes them: the simulator is the oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.apis.anthropic_messages.context_edits import CLEARED, apply, report
from proxy.apis.anthropic_messages.request import parse
from proxy.simulator.anthropic_messages.context import as_read
from tests.makers import WordMeter, words

KIND = "clear_tool_uses_20250919"


def run(turns: int) -> list[dict[str, Any]]:
    """A run of so many reads; every third call is a search."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for i in range(turns):
        name = "search" if i % 3 == 2 else "read"
        use = {"type": "tool_use", "id": f"t{i}", "name": name, "input": {"path": words(5, f"p{i}-")}}
        told.append({"role": "assistant", "content": [{"type": "text", "text": f"Step {i}"}, use]})
        result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": words(50), "cache_control": {"type": "x"}}
        told.append({"role": "user", "content": [result]})
    return told


def body(turns: int, *edits: Any, **more: Any) -> bytes:
    fields = {"model": "m", "system": "Be brief.", "context_management": {"edits": list(edits)}, **more}
    return json.dumps({**fields, "messages": run(turns)}, indent=1).encode()


def applied(sent: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    plain, edits = apply(sent, lambda prompt: WordMeter())
    return json.loads(plain), json.loads(edits)


def clear(**fields: Any) -> dict[str, Any]:
    return {"type": KIND, "trigger": {"type": "tool_uses", "value": 4}, **fields}


def cost(sent: Mapping[str, Any]) -> int:
    """The tokens of a body, by the same meter."""
    meter = WordMeter()
    return 3 + sum(meter.costs(parse(json.dumps(dict(sent)).encode()).messages))


EDITS = [
    clear(),
    clear(keep={"type": "tool_uses", "value": 1}),
    clear(keep={"type": "tool_uses", "value": 0}),
    clear(exclude_tools=["search"]),
    clear(clear_at_least={"type": "input_tokens", "value": 100}),
    clear(clear_at_least={"type": "input_tokens", "value": 10_000}),
    {"type": KIND, "trigger": {"type": "input_tokens", "value": 300}},
    {"type": KIND, "trigger": {"type": "input_tokens", "value": 3_000}},
    {"type": KIND},
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("turns", [3, 5, 9])
def test_what_is_cleared_is_what_anthropic_clears(edit: dict[str, Any], turns: int) -> None:
    sent = body(turns, edit)
    plain, edits = applied(sent)
    wanted = as_read(json.loads(sent), cost)
    assert [one["cleared_tool_uses"] for one in edits] == [one["cleared_tool_uses"] for one in wanted.edits]
    gone = [
        m for m in plain["messages"] if isinstance(m["content"], list) and m["content"][0].get("content") == CLEARED
    ]
    assert len(gone) == sum(one["cleared_tool_uses"] for one in edits)
    assert "context_management" not in plain
    before = {key: value for key, value in json.loads(sent).items() if key != "context_management"}
    assert cost(before) - cost(plain) == sum(one["cleared_input_tokens"] for one in edits)
    if not edits:
        assert plain == before


def test_inputs_go_only_where_that_is_asked_and_all_else_of_a_block_stays() -> None:
    plain, _ = applied(body(6, clear(clear_tool_inputs=True)))
    inputs = [b["input"] for m in plain["messages"] for b in m["content"] if isinstance(b, dict) and "input" in b]
    assert [bool(found) for found in inputs] == [False] * 3 + [True] * 3
    some, _ = applied(body(6, clear(clear_tool_inputs=["search"])))
    inputs = [b["input"] for m in some["messages"] for b in m["content"] if isinstance(b, dict) and "input" in b]
    assert [bool(found) for found in inputs] == [True, True, False, True, True, True]
    result = plain["messages"][2]["content"][0]
    assert result == {"type": "tool_result", "tool_use_id": "t0", "content": CLEARED, "cache_control": {"type": "x"}}
    assert plain["messages"][1]["content"][0] == {"type": "text", "text": "Step 0"}


@pytest.mark.parametrize(
    "edit",
    [
        {"type": "clear_thinking_20251015"},
        {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1}},
        {"type": "unheard_of"},
        "text",
        None,
        7,
    ],
)
def test_other_edits_are_left_out_and_not_reported(edit: Any) -> None:
    plain, edits = applied(body(9, edit))
    assert edits == [] and "context_management" not in plain and plain["messages"] == run(9)


@pytest.mark.parametrize("wrong", [None, 7, "x", [], {"edits": None}, {"edits": {}}, {"edits": "clear_tool_uses"}])
def test_a_field_of_another_form_goes_without_an_edit(wrong: Any) -> None:
    plain, edits = applied(json.dumps({"model": "m", "context_management": wrong, "messages": run(9)}).encode())
    assert edits == [] and plain == {"model": "m", "messages": run(9)}


@pytest.mark.parametrize("value", [-1, 10**30, 1.5, "4", True, None, {}])
def test_a_figure_that_is_none_counts_as_if_it_were_not_there(value: Any) -> None:
    edit = {"type": KIND, "trigger": {"type": "tool_uses", "value": value}}
    assert applied(body(9, edit))[1] == []
    kept = clear(keep={"type": "tool_uses", "value": value}, exclude_tools=[value], clear_tool_inputs=value)
    assert applied(body(9, kept))[1][0]["cleared_tool_uses"] == 6


def test_the_same_request_gives_the_same_bytes_and_what_was_cleared_costs_no_second_edit() -> None:
    sent = body(9, clear(), clear())
    assert apply(sent, lambda prompt: WordMeter()) == apply(sent, lambda prompt: WordMeter())


EDIT = b'[{"type":"x"}]'


def test_a_response_and_the_event_that_ends_one_report_what_was_applied() -> None:
    message = b'{"type":"message","content":[],"stop_reason":"end_turn"} \n'
    assert report(message, EDIT) == message.replace(b"}", b',"context_management":{"applied_edits":%b}}' % EDIT)
    last = b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}   }'
    found = json.loads(report(last, EDIT))
    assert found["context_management"] == {"applied_edits": [{"type": "x"}]} and found["usage"] == {"output_tokens": 1}


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"message_start","message":{"stop_reason":null}}',
        b'{"type":"message_delta","delta":{"stop_reason":null}}',
        b'{"type":"message","stop_reason":"end_turn","context_management":null}',
        b'{"type":"error","error":{"message":"stop_reason"}}',
        b'{"type":"message"',
        b"[1]",
        b"",
    ],
)
def test_any_other_event_stays_as_it_is(data: bytes) -> None:
    assert report(data, EDIT) == data
