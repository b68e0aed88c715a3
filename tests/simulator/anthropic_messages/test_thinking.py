"""Thinking in requests of the Messages API: the kinds that models take, its place, and what it is bound to."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator.anthropic_messages.request import Request
from proxy.simulator.anthropic_messages.thinking import sign, transformations
from proxy.simulator.anthropic_messages.validation import validate

ASK, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
BINDING, MANUAL = "claude-fable-5-1", "claude-sonnet-4-5"
CONTROLS = "thinking-binding-controls-2026-08-01"
THINKS: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
DROPS: dict[str, Any] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": "of another"}
BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". That setting requires '
    "the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
)


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def text(told: str = "x") -> dict[str, Any]:
    return {"type": "text", "text": told}


def body(*messages: Any, model: str = MANUAL, **fields: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 2048, "tools": TOOLS, **fields, "messages": list(messages)}


def error(sent: dict[str, Any], *betas: str) -> str:
    """The text of the error; empty for a valid request."""
    found = validate(Request(sent, betas))
    assert found is None or found.status == 400
    return "" if found is None else found.message


ENABLED = (
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" '
    "to control thinking behavior."
)
DISABLED = (
    '"thinking.type.disabled" is not supported for this model. Thinking defaults to adaptive mode when not specified; '
    'use "thinking.type.enabled" with "budget_tokens" for extended thinking.'
)
ADAPTIVE = "adaptive thinking is not supported on this model"
# What models say of the kinds enabled, adaptive and disabled.
KINDS = {
    "claude-3-7-sonnet-20250219": ("", ADAPTIVE, ""),
    "claude-opus-4-1-20250805": ("", ADAPTIVE, ""),
    "claude-sonnet-4-5": ("", ADAPTIVE, ""),
    "claude-haiku-4-5-20251001": ("", ADAPTIVE, ""),
    "claude-opus-4-6": ("", "", ""),
    "claude-sonnet-4-6": ("", "", ""),
    "claude-opus-4-7": (ENABLED, "", ""),
    "claude-opus-4-8": (ENABLED, "", ""),
    "claude-sonnet-5": (ENABLED, "", ""),
    "claude-opus-5": (ENABLED, "", ""),
    "claude-opus-5-5": (ENABLED, "", DISABLED),
    "claude-fable-5": (ENABLED, "", DISABLED),
    "claude-mythos-5-1": (ENABLED, "", DISABLED),
    "claude-sim": ("", "", ""),
}


@pytest.mark.parametrize("model", KINDS)
def test_a_model_takes_some_kinds_of_thinking(model: str) -> None:
    kinds: tuple[dict[str, Any], ...] = (THINKS["thinking"], {"type": "adaptive"}, {"type": "disabled"})
    assert tuple(error(body(ASK, model=model, thinking=kind)) for kind in kinds) == KINDS[model]
    assert error(body(ASK, model=model)) == ""
    found = error(body(ASK, model=model, thinking={"type": "hard"}))
    assert found == (
        "thinking: Input tag 'hard' found using 'type' does not match any of the expected tags: 'adaptive', "
        "'between_tools', 'disabled', 'enabled'"
    )


def test_a_budget_has_a_least_size_and_is_less_than_the_limit() -> None:
    def budget(tokens: int) -> str:
        return error(body(ASK, thinking={"type": "enabled", "budget_tokens": tokens}))

    assert budget(1000) == "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    assert budget(2048) == "`max_tokens` must be greater than `thinking.budget_tokens`"
    assert budget(1024) == budget(2047) == ""


def test_what_happens_to_bound_blocks_is_said_with_a_beta_alone() -> None:
    sent = body(ASK, model=BINDING, thinking=DROPS)
    assert error(sent) == "thinking.adaptive.block_binding: Extra inputs are not permitted"
    assert error(sent, CONTROLS) == ""


def test_in_an_open_tool_loop_thinking_comes_first() -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}

    def loop(*blocks: dict[str, Any]) -> str:
        result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
        return error(body(ASK, said("assistant", *blocks), said("user", result), **THINKS))

    assert loop(THOUGHT, use) == ""
    assert loop(use) == (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
        "is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
        "`tool_use` and `tool_result` blocks)."
    )
    assert loop(text(), THOUGHT, use) == (
        "messages.1.content.0.type: If an assistant message contains any thinking blocks, the first block must be "
        "`thinking` or `redacted_thinking`. Found `text`."
    )
    assert error(body(ASK, ANSWER, ASK, **THINKS)) == ""


def thought(sent: dict[str, Any], place: int, told: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": told, "signature": sign(sent, place, told)}


def signed(model: str, **fields: Any) -> dict[str, Any]:
    """A conversation of two turns whose thinking blocks the simulator itself signed."""
    told: list[Any] = [ASK]
    for turn in ("t", "u"):
        sent = body(*told, model=model, system="s", **fields)
        told += [said("assistant", thought(sent, len(told), turn), text()), ASK]
    return body(*told, model=model, system="s", **fields)


@pytest.mark.parametrize("model", [MANUAL, BINDING])
def test_thinking_is_unmodified(model: str) -> None:
    sent = signed(model)
    assert error(sent) == ""
    sent["messages"][1]["content"][0]["thinking"] = "u"
    assert error(sent) == "messages.1.content.0: Invalid `signature` in `thinking` block"


@pytest.mark.parametrize("change", [{"system": "t"}, {"tools": [*TOOLS, {"name": "g"}]}, {"messages": 0}])
@pytest.mark.parametrize("model", [BINDING, "claude-opus-5-5", MANUAL])
def test_thinking_is_bound_to_what_stands_before_it(change: dict[str, Any], model: str) -> None:
    sent = signed(model)
    other = [{"role": "user", "content": "other"}, *sent["messages"][1:]]
    changed = {**sent, **change, "messages": other if "messages" in change else sent["messages"]}
    assert error(changed) == ("" if model == MANUAL else BOUND)
    if model != MANUAL:
        assert error({**changed, "thinking": DROPS}, CONTROLS) == ""


def test_the_error_says_that_the_block_before_is_missing() -> None:
    sent = signed(BINDING)
    first = sent["messages"][1]
    sent["messages"][1] = {**first, "content": first["content"][1:]}
    assert error(sent) == BOUND.replace("messages.1", "messages.3") + (
        " The `thinking` block that preceded this one when it was created is missing from this request."
    )
    del sent["messages"][3]["content"][0]
    assert error(sent) == ""


def test_marks_of_caching_and_tools_that_are_loaded_later_bind_nothing() -> None:
    sent = signed(BINDING)
    sent["tools"] = [{**TOOLS[0], **MARK}, {"name": "later", "defer_loading": True}]
    assert error(sent) == ""


def test_what_is_left_out_is_reported_with_all_that_follows() -> None:
    sent = signed(BINDING)
    assert transformations(sent) == transformations({**signed(MANUAL), "system": "t"}) == []
    assert transformations({**sent, "system": "t"}) == [
        {"type": "thinking_dropped", "path": f"messages.{i}.content.0", "reason": "prefix_binding_mismatch"}
        for i in (1, 3)
    ]


def test_thinking_of_another_model_is_left_out_without_an_error() -> None:
    sent = {**signed("claude-fable-5-2"), "model": BINDING}
    assert error(sent) == ""
    assert {one["reason"] for one in transformations(sent)} == {"model_binding_mismatch"}
