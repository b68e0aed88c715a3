"""Stubs what a later call made stale: of tools that report a whole state (todo lists, plans), only the newest keeps its
text. It drops no message, so calls and results stay paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.shorten import content_of
from proxy.model.conversation import Block, Call, Message, text_of
from proxy.model.lenient_json import Json
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace

# Tools of well-known agents whose every call carries the whole list, by their names without case, "_" and "-".
STATE_TOOLS = (
    "TodoWrite",
    "TodoRead",
    "write_todos",
    "read_todos",
    "update_plan",
    "update_todo_list",
    "manage_todo_list",
)
PARTIAL = ("merge",)  # the argument by which a call says that it carries only what changed
FAILED = ("error", "<tool_use_error>", "failed", "invalid", "exception", '{"error')
RESULT_STUB = "[superseded by a later result of this tool]"
ARGUMENTS_STUB = '{"superseded":"by a later call"}'
WHY = "superseded"

Raws = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Params:
    """`tools`: the names of tools whose every call carries the whole state, in its arguments or in its result; case,
    `_`, `-` and a prefix before `__` do not matter. `partial`: arguments that, where true, say that a call carries only
    what changed, and so supersedes nothing. `batch`: the share of the room that stale text must come to before it is
    stubbed, all at once: each change of what is old costs the provider's prompt cache once."""

    tools: tuple[str, ...] = STATE_TOOLS
    partial: tuple[str, ...] = PARTIAL
    batch: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.batch <= 1:
            raise ValueError("batch must be a share between 0 and 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with a stub for each stale result and for the arguments of each stale call, where that saves tokens."""
    draft = draft.made()
    stale = _stale(draft.blocks, params, int(params.batch * max(0, draft.room)), draft.meter)
    if not stale:
        return draft
    blocks = [
        _stubbed(block, stale[place], draft) if place in stale and not block.pinned else block
        for place, block in enumerate(draft.blocks)
    ]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _stale(blocks: Sequence[Block], params: Params, batch: int, meter: Meter) -> dict[int, set[str]]:
    """For each block, the ids of its calls that a later call of the same tool made stale, as far as they have come to
    `batch` tokens together. Read from the start, so that every later turn finds the same."""
    wanted = {_plain(name) for name in params.tools}
    since: dict[str, list[tuple[int, str]]] = {}  # by tool: its calls that nothing superseded yet
    waiting: list[tuple[int, str]] = []
    found: dict[int, set[str]] = {}
    for place, call in ((i, call) for i, block in enumerate(blocks) for call in block.messages[0].calls):
        tool = _plain(call.name)
        if tool not in wanted:
            continue
        calls = since.setdefault(tool, [])
        if _is_whole(blocks[place], call, params.partial):
            waiting += calls
            calls.clear()
        calls.append((place, call.id))
        if waiting and sum(_saved(blocks[i], ident, meter) for i, ident in waiting) >= batch:
            for i, ident in waiting:
                found.setdefault(i, set()).add(ident)
            waiting.clear()
    return found


def _saved(block: Block, ident: str, meter: Meter) -> int:
    """How many tokens the stubs for one call and its result save; none where they are stubs already, or must stay."""
    if block.pinned:
        return 0
    call = next((c for c in _calls(block.messages[0]) if c.get("id") == ident), {})
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    saved = max(0, meter.text(arguments) - meter.text(ARGUMENTS_STUB)) if isinstance(arguments, str) else 0
    for message in block.messages[1:]:
        if message.answers == ident:
            saved += max(0, meter.text(text_of(content_of(message))) - meter.text(RESULT_STUB))
    return saved


def _plain(name: str) -> str:
    return name.rpartition("__")[2].replace("_", "").replace("-", "").lower()


def _is_whole(block: Block, call: Call, partial: Sequence[str]) -> bool:
    """Whether a call carries the whole state: it says nothing else, and it did not fail."""
    for message in block.messages[1:]:
        if message.answers == call.id and text_of(content_of(message)).lstrip().lower().startswith(FAILED):
            return False
    arguments = _arguments(block.messages[0], call.id)
    return not (isinstance(arguments, dict) and any(arguments.get(name) for name in partial))


def _arguments(message: Message, ident: str) -> Json:
    """The arguments of a call, parsed; None where they are no JSON."""
    for call in _calls(message):
        if call.get("id") == ident:
            try:
                return decoded(call["function"]["arguments"])
            except (msgspec.DecodeError, TypeError, KeyError):
                return None
    return None


def _calls(message: Message) -> list[dict[str, Any]]:
    try:
        calls = message.fields().get("tool_calls")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _stubbed(block: Block, stale: set[str], draft: Draft) -> Block:
    """The block with its stale parts stubbed; the same block where that would save nothing."""
    messages = tuple(_stub(m, stale) for m in block.messages)
    made = replace(block, messages=draft.recount(messages))
    return made if made.tokens < block.tokens else block


def _stub(message: Message, stale: set[str]) -> Message:
    if message.answers in stale:
        short = len(text_of(content_of(message))) <= len(RESULT_STUB)
        return message if short else message.with_content(RESULT_STUB, WHY)
    return _stub_calls(message, stale) if message.calls else message


def _stub_calls(message: Message, stale: set[str]) -> Message:
    """The message with a stub for the arguments of its stale calls; every other field keeps its bytes."""
    parts = msgspec.json.decode(message.raw, type=Raws)
    calls = msgspec.json.decode(parts.get("tool_calls", b"[]"), type=list[Raws])
    made = [_stub_call(call) if _ident(call) in stale else call for call in calls]
    if all(a is b for a, b in zip(calls, made, strict=True)):
        return message
    parts["tool_calls"] = msgspec.Raw(msgspec.json.encode(made))
    return replace(message, raw=msgspec.json.encode(parts), why=WHY)


def _ident(call: Raws) -> str | None:
    ident = msgspec.json.decode(call.get("id", b"null"))
    return ident if isinstance(ident, str) else None


def _stub_call(call: Raws) -> Raws:
    function = msgspec.json.decode(call["function"], type=Raws)
    if len(function.get("arguments", b"")) <= len(ARGUMENTS_STUB) + 4:
        return call
    function["arguments"] = msgspec.Raw(msgspec.json.encode(ARGUMENTS_STUB))
    return {**call, "function": msgspec.Raw(msgspec.json.encode(function))}
