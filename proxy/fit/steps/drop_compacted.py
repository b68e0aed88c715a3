"""Drops what stands before the newest message in which the provider itself compacted the conversation.

Such a message stands for all before it, so nothing is lost. It may not be understood without the user's own messages:
these go only if the rest is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.plan import Draft, Drop, Facts

WHY = "the provider's compaction stands for it"


@dataclass(frozen=True, slots=True)
class Params:
    """None."""


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft without the blocks that a compaction stands for; what is pinned stays. The same draft if there are
    none."""
    newest = max((i for i, block in enumerate(draft.blocks) for m in block.messages if m.compacts), default=0)
    before = [i for i in range(newest) if not draft.blocks[i].pinned]
    if not before:
        return draft
    made = _without(draft, {i for i in before if draft.blocks[i].user is None})
    return made if made.excess <= 0 else _without(draft, set(before))


def _without(draft: Draft, gone: set[int]) -> Draft:
    if not gone:
        return draft
    dropped = [Drop(m.index, WHY) for i in sorted(gone) for m in draft.blocks[i].messages if m.index >= 0]
    return draft.with_blocks([block for i, block in enumerate(draft.blocks) if i not in gone], dropped)
