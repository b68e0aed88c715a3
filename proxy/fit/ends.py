"""Cuts texts and lists of token ids at an end, where nothing else may be done to them. It writes no markers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from proxy.fit.shorten import waterline
from proxy.model.conversation import HEAD, TAIL, Block, Message, Part, PartKind
from proxy.model.plan import Draft
from proxy.model.ports import Meter

WHY = "cut at its end"
SLACK = 2  # tokens: what counting may add where a text was cut
LINE = 200  # characters at a cut that go with the rest of their line

Keep = Callable[[Message], str]  # the end of a message that stays; empty for one that is not cut


def cut_at_ends(draft: Draft, keep: Keep) -> Draft:
    """The draft with its messages cut at their ends, so that it fits, as far as `keep` allows it.

    All are cut to one height. What the client pinned is unchanged.
    """
    ends = {m.index: keep(m) for m in draft.messages if m.index not in draft.pins}
    costs = [m.tokens if ends.get(m.index) else 0 for m in draft.messages]
    height = _height(draft, costs)
    blocks = [_cut(block, ends, height, draft) for block in draft.blocks]
    same = all(a is b for a, b in zip(blocks, draft.blocks, strict=True))
    return draft if same else draft.with_blocks(blocks)


def _height(draft: Draft, costs: Sequence[int]) -> int:
    """The tokens that a message may have at most."""
    if draft.apart:
        return max(0, draft.room - draft.fixed)
    return waterline(sorted(costs, reverse=True), draft.prompt - draft.room)


def _cut(block: Block, ends: dict[int, str], height: int, draft: Draft) -> Block:
    if all(m.tokens <= height or not ends.get(m.index) for m in block.messages):
        return block
    found = [_shorter(m, ends.get(m.index, ""), height, draft.meter) for m in block.messages]
    made = replace(block, messages=draft.recount(found))
    return made if made.tokens < block.tokens else block


def _shorter(message: Message, end: str, height: int, meter: Meter) -> Message:
    if message.tokens <= height or not end:
        return message
    return message.edit([(part, _kept(part, height, end, meter)) for part in message.parts()], WHY)


def _kept(part: Part, height: int, end: str, meter: Meter) -> str:
    if part.kind is PartKind.TOKENS:
        ids = part.text.split(",")
        return ",".join(ids[:height] if end == HEAD else ids[max(0, len(ids) - height) :])
    kept = meter.cut(part.text, max(0, height - SLACK), tail=end == TAIL)
    return _whole_lines(kept, end)


def _whole_lines(text: str, end: str) -> str:
    """The text without the rest of a line at its cut, if that is short."""
    place = text.rfind("\n", -LINE) if end == HEAD else text.find("\n", 0, LINE)
    if place < 0:
        return text
    return text[: place + 1] if end == HEAD else text[place + 1 :]
