"""Removes messages that their API refuses where they stand after a cut; what is left is in its order."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from proxy.model.conversation import Block
from proxy.model.plan import Draft, Drop

NAME = "drop_misplaced"  # its name in notes; it is not a step of a ladder, because it must run after all steps
WHY = "what it stood before or behind is gone"


def in_place(before: Draft, after: Draft) -> Draft:
    """The draft `after` without messages that may not stand where a cut left them.

    Returns `after` itself if no block changed, and leaves what was misplaced in what the client sent (`before`).
    """
    if after.blocks is before.blocks or not after.blocks:
        return after
    wrong = _misplaced(after)
    gone = wrong - _misplaced(before) - after.pins if wrong else wrong
    return _without(after, gone) if gone else after


def _misplaced(draft: Draft) -> set[int]:
    """The indices of the messages that may not stand where they are."""
    messages = list(draft.messages)
    return {messages[place].index for place in messages[0].format.misplaced(messages)}


def _without(draft: Draft, gone: Collection[int]) -> Draft:
    blocks = [_left(block, gone) for block in draft.blocks]
    drops = [Drop(m.index, WHY) for m in draft.messages if m.index in gone]
    return draft.with_blocks([block for block in blocks if block.messages], drops)


def _left(block: Block, gone: Collection[int]) -> Block:
    messages = tuple([m for m in block.messages if m.index not in gone])
    return block if len(messages) == len(block.messages) else replace(block, messages=messages)
