"""What the Messages API itself leaves out of a prompt, as the request asks: edits, compaction, messages of one turn.

Its checks are in Anthropic's wording where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.simulator.anthropic_messages.request import Body, Check, Request, blocks_of, expected_tags, invalid
from proxy.simulator.anthropic_messages.thinking import ALWAYS, SIM, kind_of
from proxy.simulator.check import ApiError
from proxy.simulator.json import Json

CLEAR_TOOLS, CLEAR_THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
EDITS: Mapping[str, str] = {  # the betas that they need
    CLEAR_TOOLS: "context-management-",
    CLEAR_THINKING: "context-management-",
    COMPACT: "compact-2026-01-12",
}
CLEAR_AT = ("next_user_message", "never")
TRIGGER, KEPT_USES, KEPT_TURNS = 100_000, 3, 1  # where a request does not say
COMPACT_TRIGGER = 150_000  # tokens
CLEARED = "[cleared]"
SUMMARY = "The simulator summarised the conversation."
COMPACTED, SEAL = "compaction", "sim-compaction"  # the type of a block, and its signature

Count = Callable[[Body], int]


@dataclass(frozen=True, slots=True)
class Read:
    """The request as the model reads it, its prompt's tokens before and after, and the edits that were applied.

    `compacts`: it is compacted first; `ends`: and the answer ends with that. `managed`: it asks for edits.
    """

    body: Body
    original: int
    prompt: int
    edits: tuple[Mapping[str, Json], ...] = ()
    compacts: bool = False
    ends: bool = False
    managed: bool = False


def as_read(body: Body, count: Count) -> Read:
    """What the model reads of a valid request. `count` tells the tokens of one."""
    shown = _shown(body)
    first = count(shown)
    applied: list[Mapping[str, Json]] = []
    tokens, compacts = first, bool(body.get("compaction"))
    ends = compacts
    for edit in edits_of(body):
        if edit["type"] == COMPACT:
            compacts = compacts or tokens > _value(edit.get("trigger"), COMPACT_TRIGGER)
            ends = ends or (compacts and bool(edit.get("pause_after_compaction")))
            continue
        shorter, name, number = _cleared(shown, edit, tokens)
        left = count(shorter)
        if number and tokens - left >= _value(edit.get("clear_at_least"), 0):
            applied.append({"type": edit["type"], "cleared_input_tokens": tokens - left, name: number})
            shown, tokens = shorter, left
    return Read(shown, first, tokens, tuple(applied), compacts, ends, bool(edits_of(body)))


def edits_of(body: Body) -> list[Mapping[str, Any]]:
    """The edits that a request asks for."""
    return list((body.get("context_management") or {}).get("edits") or ())


def compaction() -> dict[str, Json]:
    """The block that stands for the conversation."""
    return {"type": COMPACTED, "content": SUMMARY, "signature": SEAL}


def _shown(body: Body) -> Body:
    """Without what a compaction stands for, and without system messages of turns that are over."""
    told = list(body["messages"])
    starts = [i for i, m in enumerate(told) if any(block.get("type") == COMPACTED for block in blocks_of(m))]
    told = told[starts[-1] :] if starts else told
    users = [i for i, m in enumerate(told) if m["role"] == "user"]
    last = users[-1] if users else -1
    kept = [m for i, m in enumerate(told) if m.get("clear_at") != CLEAR_AT[0] or i > last]
    return body if len(kept) == len(body["messages"]) else {**body, "messages": kept}


def _cleared(body: Body, edit: Mapping[str, Any], tokens: int) -> tuple[Body, str, int]:
    """The request after an edit, and what is counted, with its number."""
    if edit["type"] == CLEAR_THINKING:
        return _without_thinking(body, edit.get("keep"))
    return _without_results(body, edit, tokens)


def _without_thinking(body: Body, keep: Json) -> tuple[Body, str, int]:
    every = keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all")
    left = _value(keep, KEPT_TURNS)
    turns = [i for i, m in enumerate(body["messages"]) if any(b.get("type") == "thinking" for b in blocks_of(m))]
    gone = set() if every else set(turns[: len(turns) - left] if left else turns)
    told = [_without(m, "thinking") if i in gone else m for i, m in enumerate(body["messages"])]
    return {**body, "messages": told}, "cleared_thinking_turns", len(gone)


def _without(message: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return {**message, "content": [block for block in blocks_of(message) if block.get("type") != kind]}


def _without_results(body: Body, edit: Mapping[str, Any], tokens: int) -> tuple[Body, str, int]:
    uses = list(_uses(body))
    trigger = edit.get("trigger") or {}
    reached = len(uses) if trigger.get("type") == "tool_uses" else tokens
    kept = _value(edit.get("keep"), KEPT_USES)
    if reached <= _value(trigger, TRIGGER) or len(uses) <= kept:
        return body, "cleared_tool_uses", 0
    old = uses[: len(uses) - kept] if kept else uses
    gone = {ident for ident, name in old if name not in (edit.get("exclude_tools") or ())}
    told = [{**m, "content": [_emptied(b, gone) for b in blocks_of(m)]} for m in body["messages"]]
    return {**body, "messages": told}, "cleared_tool_uses", len(gone)


def _uses(body: Body) -> Iterator[tuple[str, str]]:
    """The ids and names of all calls."""
    for message in body["messages"]:
        for block in blocks_of(message):
            if block.get("type") == "tool_use":
                yield str(block.get("id")), str(block.get("name"))


def _emptied(block: Mapping[str, Any], gone: set[str]) -> Mapping[str, Any]:
    return {**block, "content": CLEARED} if block.get("tool_use_id") in gone else block


def _value(said: Json, default: int) -> int:
    value = said.get("value") if isinstance(said, dict) else None
    return value if isinstance(value, int) else default


def _edits_are_valid(request: Request) -> ApiError | None:
    for i, edit in enumerate(edits_of(request.body)):
        kind, path = str(edit.get("type")), f"context_management.edits.{i}"
        known = tuple(name for name, beta in EDITS.items() if request.may(beta))
        if kind not in known:
            return expected_tags(path, kind, known)
        if kind == CLEAR_THINKING and i:
            return invalid(f"{path}: `{CLEAR_THINKING}` must be the first edit")
        thinks = kind_of(request) in ("enabled", "adaptive", "between_tools")
        defaults = not kind_of(request) and (ALWAYS.search(request.model) or SIM in request.model)
        if kind == CLEAR_THINKING and not thinks and not defaults:
            return invalid(f"`{CLEAR_THINKING}` requires `thinking` to be enabled or adaptive")
    return None


def _turn_messages_are_valid(request: Request) -> ApiError | None:
    """A system message of one turn is not cached."""
    for i, message in enumerate(request.messages):
        said = message.get("clear_at")
        if said is not None and said not in CLEAR_AT:
            return invalid(f"messages.{i}.clear_at: Input should be 'next_user_message' or 'never'")
        for k, block in enumerate(blocks_of(message)):
            if said == CLEAR_AT[0] and block.get("cache_control"):
                path = f"messages.{i}.content.{k}.cache_control"
                return invalid(f"{path}: cache_control is not permitted in a message with `clear_at`")
    return None


def _compaction_is_valid(request: Request) -> ApiError | None:
    """A block that the API wrote comes back as it was."""
    kind = (request.body.get("compaction") or {}).get("type")
    if kind not in (None, "summarize"):
        return expected_tags("compaction", str(kind), ("summarize",))
    for i, message in enumerate(request.messages):
        for k, block in enumerate(blocks_of(message)):
            path = f"messages.{i}.content.{k}"
            if block.get("type") == COMPACTED and block.get("content") == "":
                return invalid(f"{path}.{COMPACTED}.content: Input should be non-empty")
            if block.get("signature") == SEAL and block.get("content") != SUMMARY:
                return invalid(f"{path}: Invalid `signature` in `{COMPACTED}` block")
    return None


CHECKS: tuple[Check, ...] = (_edits_are_valid, _turn_messages_are_valid, _compaction_is_valid)
