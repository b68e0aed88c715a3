"""What the Messages API leaves out itself, and what it refuses of such a request."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.anthropic_messages.context import CLEARED, as_read, compaction
from proxy.simulator.anthropic_messages.request import Body, Request, blocks_of
from proxy.simulator.anthropic_messages.validation import validate

ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
EDIT, COMPACT, TURN = (
    "context-management-2025-06-27",
    "compact-2026-01-12",
    "mid-conversation-system-clear-at-2026-08-21",
)
THINKING: dict[str, Any] = {"type": "thinking", "thinking": "t" * 50, "signature": "s"}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def body(*messages: Any, edits: Any = None, **fields: Any) -> dict[str, Any]:
    managed = {} if edits is None else {"context_management": {"edits": edits}}
    shared = {"model": "claude-opus-4-8", "max_tokens": 2048, "tools": TOOLS, "thinking": {"type": "adaptive"}}
    return {**shared, **managed, **fields, "messages": list(messages)}


def error(sent: dict[str, Any], *betas: str) -> str:
    found = validate(Request(sent, betas))
    return "" if found is None else found.message


def size(sent: Body) -> int:
    """A count: one token for each character of a text, a thought or a result."""
    told = [b for m in sent["messages"] for b in blocks_of(m)]
    return sum(len(str(block.get(key, ""))) for block in told for key in ("text", "thinking", "content"))


def run(calls: int) -> list[dict[str, Any]]:
    """A conversation with so many calls, each with its result of a hundred characters."""
    found: list[dict[str, Any]] = [ASK]
    for i in range(calls):
        use: dict[str, Any] = {"type": "tool_use", "id": f"t{i}", "name": "f" if i % 2 else "g", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": "r" * 100}
        found += [{"role": "assistant", "content": [THINKING, use]}, {"role": "user", "content": [result]}]
    return found


CLEAR: dict[str, Any] = {"type": "clear_tool_uses_20250919"}
THOUGHTS: dict[str, Any] = {"type": "clear_thinking_20251015"}


@pytest.mark.parametrize(
    ("edits", "fields", "betas", "text"),
    [
        ([{"type": "forget"}], {}, (EDIT,), "context_management.edits.0: Input tag 'forget' found using 'type' does"),
        ([{"type": "compact_20260112"}], {}, (EDIT,), "Input tag 'compact_20260112' found using 'type' does not match"),
        (
            [CLEAR, THOUGHTS],
            {},
            (EDIT,),
            "context_management.edits.1: `clear_thinking_20251015` must be the first edit",
        ),
        (
            [THOUGHTS],
            {"thinking": {"type": "disabled"}},
            (EDIT,),
            "`clear_thinking_20251015` requires `thinking` to be enabled or adaptive",
        ),
        ([CLEAR], {}, (), "context_management: Extra inputs are not permitted"),
    ],
)
def test_edits_that_are_refused(edits: Any, fields: dict[str, Any], betas: tuple[str, ...], text: str) -> None:
    assert text in error(body(ASK, edits=edits, **fields), *betas)
    assert error(body(ASK, edits=[THOUGHTS, CLEAR, {"type": "compact_20260112"}]), EDIT, COMPACT) == ""


def test_old_results_are_cleared_above_the_trigger() -> None:
    def read(**edit: Any) -> tuple[int, int]:
        found = as_read(body(*run(6), edits=[{**CLEAR, **edit}]), size)
        cleared = found.edits[0]["cleared_tool_uses"] if found.edits else 0
        assert found.original - found.prompt == (100 - len(CLEARED)) * int(str(cleared))
        return found.original, int(str(cleared))

    whole, cleared = read(trigger={"type": "input_tokens", "value": 500})
    assert cleared == 3 and read()[1] == 0  # by default it keeps three, and clears above 100,000 tokens
    assert read(trigger={"type": "input_tokens", "value": whole})[1] == 0
    assert read(trigger={"type": "tool_uses", "value": 5}, keep={"type": "tool_uses", "value": 1})[1] == 5
    assert read(trigger={"type": "tool_uses", "value": 5}, exclude_tools=["g"])[1] == 1
    few = {"type": "input_tokens", "value": 10_000}
    assert read(trigger={"type": "tool_uses", "value": 5}, clear_at_least=few)[1] == 0


@pytest.mark.parametrize(
    ("keep", "turns"),
    [("all", 0), ({"type": "all"}, 0), ({"type": "thinking_turns", "value": 4}, 2), (None, 5)],
)
def test_thinking_of_older_turns_is_cleared(keep: Any, turns: int) -> None:
    edit = THOUGHTS if keep is None else {**THOUGHTS, "keep": keep}
    found = as_read(body(*run(6), edits=[edit]), size)
    assert found.original - found.prompt == 50 * turns and found.managed
    assert [one["cleared_thinking_turns"] for one in found.edits] == ([turns] if turns else [])


def test_a_compaction_stands_for_what_is_before_it() -> None:
    stands = {"role": "assistant", "content": [compaction(), {"type": "text", "text": "x"}]}
    found = as_read(body(*run(3), stands, ASK), size)
    assert list(found.body["messages"]) == [stands, ASK] and not found.managed


def test_the_server_compacts_above_the_trigger_or_at_once() -> None:
    def read(**edit: Any) -> tuple[bool, bool]:
        found = as_read(body(*run(3), edits=[{"type": "compact_20260112", **edit}]), size)
        return found.compacts, found.ends

    low = {"type": "input_tokens", "value": 100}
    assert read() == (False, False) and read(trigger=low) == (True, False)
    assert read(trigger=low, pause_after_compaction=True) == (True, True)
    asked = as_read(body(ASK, compaction={"type": "summarize"}), size)
    assert asked.compacts and asked.ends


def test_a_message_of_one_turn_is_not_read_after_it() -> None:
    note = {"role": "system", "content": "now", "clear_at": "next_user_message"}
    sent = body(ASK, note, ANSWER, ASK, {**note, "clear_at": "never"}, ANSWER, ASK, note)
    assert [m.get("clear_at") for m in as_read(sent, size).body["messages"] if m["role"] == "system"] == [
        "never",
        "next_user_message",
    ]
    assert error(sent, TURN) == "" and error(sent) == "messages.1.clear_at: Extra inputs are not permitted"


def test_a_message_of_one_turn_is_not_cached_and_its_end_is_known() -> None:
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    note = {"role": "system", "content": [block], "clear_at": "next_user_message"}
    assert error(body(ASK, note), TURN) == (
        "messages.1.content.0.cache_control: cache_control is not permitted in a message with `clear_at`"
    )
    assert error(body(ASK, {**note, "clear_at": "never"}), TURN) == ""
    assert error(body(ASK, {**note, "clear_at": "soon"}), TURN) == (
        "messages.1.clear_at: Input should be 'next_user_message' or 'never'"
    )


def test_a_compaction_comes_back_as_it_was() -> None:
    def told(**fields: Any) -> str:
        return error(body({"role": "assistant", "content": [{**compaction(), **fields}]}, ASK))

    assert told() == told(cache_control={"type": "ephemeral"}) == told(signature=None, content="another") == ""
    assert told(content="ours") == "messages.0.content.0: Invalid `signature` in `compaction` block"
    assert told(content="", signature=None) == "messages.0.content.0.compaction.content: Input should be non-empty"
    assert "Input tag 'drop' found" in error(body(ASK, compaction={"type": "drop"}), "compact-2026-09-04")
