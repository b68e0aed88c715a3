"""Puts stubs in place of calls and results that a later call superseded.

Some tools report a whole state with every call (todo lists, plans): only the newest call keeps its text. The step drops
no message, so calls and results stay paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from proxy.fit.nested import decoded
from proxy.model.conversation import Block, Message, Part, PartKind
from proxy.model.lenient_json import Json
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter

# Tools of well-known agents whose every call contains the whole list. Names are compared without case, "_" and "-".
STATE_TOOLS = (
    "TodoWrite",
    "TodoRead",
    "write_todos",
    "read_todos",
    "update_plan",
    "update_todo_list",
    "manage_todo_list",
)
PARTIAL = ("merge",)  # the argument that marks a call as containing only the changes
FAILED = ("error", "<tool_use_error>", "failed", "invalid", "exception", '{"error')
RESULT_STUB = "[superseded by a later result of this tool]"
ARGUMENTS_STUB = '{"superseded":"by a later call"}'
SHORT = len(ARGUMENTS_STUB) + 4  # bytes of arguments as a JSON string that are not worth a stub


@dataclass(frozen=True, slots=True)
class Params:
    """`tools`: names of tools whose every call contains the whole state, in its arguments or in its result. Case, `_`,
    `-` and a prefix before `__` are ignored.

    `partial`: arguments that, if true, mark a call as containing only the changes. Such a call supersedes nothing.
    `batch`: the share of the room that the stubs must save before any is made. All stale text is stubbed together,
    because each change of old messages invalidates the provider's prompt cache once.
    """

    tools: tuple[str, ...] = STATE_TOOLS
    partial: tuple[str, ...] = PARTIAL
    batch: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.batch <= 1:
            raise ValueError("batch must be a share between 0 and 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with a stub for each stale result and for the arguments of each stale call, if that saves tokens."""
    draft = draft.made()
    stale = _stale(draft.blocks, params, int(params.batch * max(0, draft.room)), draft.meter)
    if not stale:
        return draft
    blocks = [
        _stubbed(block, stale[place], draft) if place in stale and not block.pinned else block
        for place, block in enumerate(draft.blocks)
    ]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _stale(blocks: Sequence[Block], params: Params, batch: int, meter: Meter) -> dict[int, dict[str, int]]:
    """Maps the place of a block to the ids of its calls that a later call of the same tool superseded, each with the
    index of the message that has that call.

    Stale calls are included once their stubs save `batch` tokens together. The conversation is read from the start, so
    every later turn finds the same calls.
    """
    wanted = {_plain(name) for name in params.tools}
    since: dict[str, list[tuple[int, str]]] = {}  # by tool: its calls that are not superseded yet
    waiting: list[tuple[int, str, int]] = []
    saved = 0  # by the stubs of what is waiting
    found: dict[int, dict[str, int]] = {}
    read: dict[int, Round] = {}
    every = ((i, m, call) for i, block in enumerate(blocks) for m in block.messages for call in m.calls)
    for place, message, call in every:
        tool = _plain(call.name)
        if tool not in wanted:
            continue
        if place not in read:
            read[place] = _round(blocks[place])
        calls = since.setdefault(tool, [])
        if _is_whole(read[place], call.id, params.partial):
            waiting += [(i, ident, message.index) for i, ident in calls]
            saved += sum(0 if blocks[i].pinned else _saved(read[i], ident, meter) for i, ident in calls)
            calls.clear()
        calls.append((place, call.id))
        if waiting and saved >= batch:
            for i, ident, later in waiting:
                found.setdefault(i, {})[ident] = later
            waiting.clear()
            saved = 0
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """The texts of a block by the ids of its calls: the arguments of each call, and the text of each of its results."""

    arguments: Mapping[str, str]
    results: Mapping[str, Sequence[str]]


def _round(block: Block) -> Round:
    """The texts of a block, each message decoded once: a round may have thousands of calls."""
    arguments: dict[str, str] = {}
    results: dict[str, list[str]] = {}
    for m in block.messages:
        for part in m.parts() if m.calls else ():
            if _is_call(part):
                arguments.setdefault(part.call, part.text)
        for ident, text in _results(m).items():
            results.setdefault(ident, []).append(text)
    return Round(arguments, results)


def _saved(calls: Round, ident: str, meter: Meter) -> int:
    """The tokens that the stubs of one call and its results save; 0 if they are stubs already."""
    arguments = [calls.arguments[ident]] if ident in calls.arguments else []
    saved = sum(max(0, meter.text(text) - meter.text(ARGUMENTS_STUB)) for text in arguments)
    return saved + sum(max(0, meter.text(text) - meter.text(RESULT_STUB)) for text in calls.results.get(ident, ()))


def _plain(name: str) -> str:
    return name.rpartition("__")[2].replace("_", "").replace("-", "").lower()


def _is_whole(calls: Round, ident: str, partial: Sequence[str]) -> bool:
    """Whether a call contains the whole state: it has no `partial` argument, and it did not fail."""
    if any(text.lstrip().lower().startswith(FAILED) for text in calls.results.get(ident, ())):
        return False
    arguments = _decoded(calls.arguments[ident]) if ident in calls.arguments else None
    return not (isinstance(arguments, dict) and any(arguments.get(name) for name in partial))


def _decoded(arguments: str) -> Json:
    """The decoded arguments of a call; None if they are not JSON."""
    try:
        return decoded(arguments)
    except msgspec.DecodeError:
        return None


def _is_call(part: Part) -> bool:
    return part.kind is PartKind.CALL and part.editable


def _results(message: Message) -> dict[str, str]:
    """The text of each result in a message, by the id of its call."""
    found: dict[str, list[str]] = {ident: [] for ident in message.answers}
    for part in message.parts() if found else ():
        if part.kind is PartKind.RESULT and part.call in found:
            found[part.call].append(part.text)
    return {ident: "".join(texts) for ident, texts in found.items()}


def _stubbed(block: Block, stale: Mapping[str, int], draft: Draft) -> Block:
    """The block with its stale parts stubbed; the same block if that saves nothing."""
    messages = tuple(_stub(m, stale) for m in block.messages)
    made = replace(block, messages=draft.recount(messages))
    return made if made.tokens < block.tokens else block


def _stub(message: Message, stale: Mapping[str, int]) -> Message:
    long = {ident for ident, text in _results(message).items() if ident in stale and len(text) > len(RESULT_STUB)}
    if long:
        message = replace(message, raw=message.format.with_results(message, long, RESULT_STUB), why=_why(long, stale))
    return _stub_calls(message, stale) if message.calls else message


def _is_long(arguments: str) -> bool:
    return len(msgspec.json.encode(arguments)) > SHORT


def _stub_calls(message: Message, stale: Mapping[str, int]) -> Message:
    """The message with a stub for the arguments of its stale calls."""
    calls = [p for p in message.parts() if _is_call(p) and p.call in stale and _is_long(p.text)]
    return message.edit([(part, ARGUMENTS_STUB) for part in calls], _why([p.call for p in calls], stale))


def _why(calls: Iterable[str], stale: Mapping[str, int]) -> str:
    """The reason of a message with stubs for these calls: `superseded by #45`."""
    later = max((stale[ident] for ident in calls), default=-1)
    return f"superseded by #{later}" if later >= 0 else "superseded"
