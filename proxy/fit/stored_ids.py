"""Detaches messages from stored ones that a cut has removed: the upstream would require those, too."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from proxy.model.conversation import Block, Message
from proxy.model.plan import Draft, Drop

NAME = "drop_stored_ids"  # its name in notes; it is not a step of a ladder, because it must run after all steps
WHY = "what it refers to is gone"


def detached(before: Draft, after: Draft) -> Draft:
    """The draft `after`, counted anew, without what refers to messages that a cut has removed. A message that consists
    of such a reference goes, unless it is pinned.

    Returns `after` itself if nothing does.
    """
    if after.blocks is before.blocks or not after.blocks:
        return after
    messages = list(after.messages)
    found = messages[0].format.detached(list(before.messages), messages)
    pinned = {m.index for block in after.blocks for m in block.messages if block.pinned or m.pinned} | after.pins
    written = {place: raw for place, raw in found.items() if raw or messages[place].index not in pinned}
    if not written:
        return after
    blocks, place = [], 0
    for block in after.blocks:
        blocks.append(_written(after, block, place, written))
        place += len(block.messages)
    drops = [Drop(messages[at].index, WHY) for at, raw in written.items() if not raw]
    return after.with_blocks([block for block in blocks if block.messages], drops)


def _written(draft: Draft, block: Block, start: int, written: Mapping[int, bytes]) -> Block:
    """The block, whose first message is at the place `start`, with the JSON that is written for its messages."""
    if written.keys().isdisjoint(range(start, start + len(block.messages))):
        return block
    placed = [(m, written.get(place)) for place, m in enumerate(block.messages, start)]
    messages = [_changed(m, raw) for m, raw in placed if raw != b""]
    return replace(block, messages=draft.recount(messages) if messages else ())


def _changed(message: Message, raw: bytes | None) -> Message:
    return message if raw is None else replace(message, raw=raw, why=message.why or WHY)
