"""Drops whole blocks of old history: keeps what is pinned and the newest, and stays where it cut (section 5)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.fit.blocks import INSTRUCTIONS
from proxy.types import Block, Draft, Drop, Facts


@dataclass(frozen=True, slots=True)
class Params:
    """`low`: how deep a cut goes, as a share of the room that is not pinned. `target`: instead, a fixed share of what
    is available for history (seed 000), cut anew at every request. `max_messages` and `keep_last`: over so many
    messages keep what is pinned and the newest (seed 004). `min_messages`: kept however little room there is (seed
    000)."""

    low: float = 0.6
    target: float | None = None
    max_messages: int | None = None
    keep_last: int | None = None
    min_messages: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1:
            raise ValueError("low must be a share over 0 and at most 1")
        if self.target is not None and not 0 < self.target <= 1:
            raise ValueError("target must be a share over 0 and at most 1")
        if self.max_messages is not None and self.max_messages < 1:
            raise ValueError("max_messages must be at least 1")
        if self.keep_last is not None and not 1 <= self.keep_last <= (self.max_messages or self.keep_last):
            raise ValueError("keep_last must be at least 1 and not more than max_messages")
        if self.min_messages < 0:
            raise ValueError("min_messages must not be negative")


def history_budget(window: int, reserve: int, fixed: int, target: float) -> int:
    """Seed 000's budget for the history: a share of what reply, system prompt and tools leave. Tokens."""
    return math.floor(target * (window - reserve - fixed))


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft without the blocks that had to go."""
    kept = set(range(len(draft.blocks)))
    if params.max_messages is not None:
        kept &= newest_messages(draft.blocks, params.max_messages, params.keep_last or params.max_messages)
    if params.target is not None:
        kept &= newest_within(draft.blocks, kept, _target(draft, params.target), params.min_messages)
    elif _cost(draft, kept) > draft.room:
        kept &= two_marks(draft.blocks, sorted(kept), draft.fixed, draft.room, params.low)
    return without(draft, kept)


def without(draft: Draft, kept: set[int], why: str = "older than the window holds") -> Draft:
    """The draft with only the blocks of these places."""
    if len(kept) == len(draft.blocks):
        return draft
    gone = [b for i, b in enumerate(draft.blocks) if i not in kept]
    drops = [Drop(m.index, why) for b in gone for m in b.messages if m.index >= 0]
    return draft.with_blocks([b for i, b in enumerate(draft.blocks) if i in kept], drops)


def _cost(draft: Draft, kept: Iterable[int]) -> int:
    return draft.fixed + sum(draft.blocks[i].tokens for i in kept)


def _target(draft: Draft, target: float) -> int:
    """The budget for history in tokens, and never more than fits."""
    fixed = draft.fixed + sum(b.tokens for b in draft.blocks if b.messages[0].role in INSTRUCTIONS)
    return min(history_budget(draft.window.tokens, draft.held, fixed, target), draft.room - fixed)


def newest_messages(blocks: Sequence[Block], most: int, keep: int) -> set[int]:
    """Seed 004's rule: over `most` messages, what is pinned and the newest `keep` messages, whole blocks only."""
    if sum(len(b.messages) for b in blocks) <= most:
        return set(range(len(blocks)))
    kept, left = {i for i, b in enumerate(blocks) if b.pinned}, keep
    for i in reversed(range(len(blocks))):
        left -= len(blocks[i].messages)
        if left >= 0:
            kept.add(i)
    return kept


def newest_within(blocks: Sequence[Block], kept: set[int], budget: int, least: int) -> set[int]:
    """Newest to oldest until the budget for history is full (seed 000); what is pinned counts first and stays."""
    chosen = {i for i in kept if blocks[i].pinned}
    history = [i for i in kept if blocks[i].messages[0].role not in INSTRUCTIONS]
    used = sum(blocks[i].tokens for i in history if i in chosen)
    count = sum(len(blocks[i].messages) for i in history if i in chosen)
    for i in sorted(set(history) - chosen, reverse=True):
        if used + blocks[i].tokens > budget and count >= least:
            break
        chosen.add(i)
        used += blocks[i].tokens
        count += len(blocks[i].messages)
    return chosen


def two_marks(blocks: Sequence[Block], order: Sequence[int], fixed: int, room: int, low: float) -> set[int]:
    """Replays the conversation from its start: whenever it passes the room, cuts to `low` of what is not pinned, and
    keeps that cut until the room is passed again. So every replica, and every later turn, cuts in the same place."""
    always = {i for i in order[:-1] if blocks[i].pinned}
    loose: deque[int] = deque()
    pinned, used, asked = fixed, 0, -1
    for place in order:
        block = blocks[place]
        if place in always:
            pinned += block.tokens
        else:
            loose.append(place)
            used += block.tokens
        asked = place if block.messages[0].role == "user" else asked
        if pinned + used > room:
            spared = {asked, place} - always - {-1}  # the last user message, and the newest block, as they were then
            used = _cut(blocks, loose, used, spared, pinned, room, low)
    return always | set(loose)


def _cut(
    blocks: Sequence[Block], loose: deque[int], used: int, spared: set[int], pinned: int, room: int, low: float
) -> int:
    """Drops the oldest of what is loose but what is spared; tells what stays of it costs."""
    kept = sum(blocks[i].tokens for i in spared)
    used -= kept
    aside = []
    while used > low * max(0, room - pinned - kept):
        oldest = loose.popleft()
        if oldest in spared:
            aside.append(oldest)
        else:
            used -= blocks[oldest].tokens
    loose.extendleft(reversed(aside))
    return used + kept
