"""Detaches messages from stored ones that a cut has removed: the upstream would require those, too."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.model.conversation import Block
from proxy.model.plan import Draft
from proxy.model.structs import replace

NAME = "drop_stored_ids"  # its name in notes; it is not a step of a ladder, because it must run after all steps
WHY = "what it refers to is gone"


def detached(before: Draft, after: Draft) -> Draft:
    """The draft `after`, counted anew, without what refers to messages that a cut has removed.

    Returns `after` itself if nothing does.
    """
    if after.blocks is before.blocks or not after.blocks:
        return after
    messages = list(after.messages)
    written = messages[0].format.detached(list(before.messages), messages)
    if not written:
        return after
    blocks, place = [], 0
    for block in after.blocks:
        blocks.append(_written(after, block, place, written))
        place += len(block.messages)
    return after.with_blocks(blocks)


def _written(draft: Draft, block: Block, start: int, written: Mapping[int, bytes]) -> Block:
    """The block, whose first message is at the place `start`, with the JSON that is written for its messages."""
    if written.keys().isdisjoint(range(start, start + len(block.messages))):
        return block
    messages = [
        replace(m, raw=written[place], why=m.why or WHY) if place in written else m
        for place, m in enumerate(block.messages, start)
    ]
    return replace(block, messages=draft.recount(messages))
