"""Drops blocks of a draft, and says of each message why, in figures. It decides nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from proxy.fit.relevance.history.cut import Gone
from proxy.fit.relevance.history.rooms import size_of
from proxy.model.conversation import Block
from proxy.model.plan import Draft, Drop
from proxy.model.structs import replace

OLD = "older, and no room"
KEPT, QUOTED = "kept", "quoted"
RELEVANT = re.compile(r"recalled: relevance \d")  # of a quoted message, with its score
NO_REASONS: Mapping[int, str] = {}


def without(draft: Draft, kept: Collection[int], why: Mapping[int, str] = NO_REASONS) -> Draft:
    """The draft with only the blocks at these places. `why`: see `drops`."""
    if len(kept) == len(draft.blocks):
        return draft
    return draft.with_blocks([b for i, b in enumerate(draft.blocks) if i in kept], drops(draft.blocks, kept, why))


def drops(blocks: Sequence[Block], kept: Collection[int], why: Mapping[int, str] = NO_REASONS) -> list[Drop]:
    """The client's messages in the blocks that are not kept. `why`: the reason by the place of a block; of any other
    its age decided."""
    return [
        Drop(m.index, why.get(i, OLD))
        for i, b in enumerate(blocks)
        if i not in kept
        for m in b.messages
        if m.index >= 0
    ]


def ranked(score: float, least: float | None, tokens: int, chosen: str = KEPT) -> str:
    """Why a block of so many tokens goes, that has a `score` between 0 and 1 for the question. `least`: the least score
    of those that were `chosen` for theirs; None if none was."""
    own, others = f"{score:.2f}", "" if least is None else f"{least:.2f}"
    if least is not None and score < least and own != others:
        return f"less relevant ({own}) than the least that is {chosen} ({others})"
    return f"relevance {own}, and no room for its {tokens:,} tokens" if score > 0 else OLD


def unquoted(draft: Draft, scores: Mapping[int, tuple[float, int]]) -> Draft:
    """The draft in which messages that went for their age also say why nothing of them is quoted, where others are.
    `scores`: by the index of a message its score for the question, and its tokens."""
    quoted = [scores[drop.index][0] for drop in draft.drops if drop.index in scores and RELEVANT.match(drop.why)]
    if not quoted:
        return draft
    reasons = {i: ranked(score, min(quoted), tokens, QUOTED) for i, (score, tokens) in scores.items()}
    return replace(draft, drops=tuple(_unquoted(drop, reasons.get(drop.index, OLD)) for drop in draft.drops))


def _unquoted(drop: Drop, why: str) -> Drop:
    return replace(drop, why=f"{drop.why}; {why}") if drop.why.startswith(OLD) and why != OLD else drop


def lost(blocks: Sequence[Block], gone: Iterable[Gone], highest: float) -> dict[int, str]:
    """Why each block of a run went, by its place: what it was worth at the cut that dropped it, and with which message
    that cut came, if not with the newest. `highest`: the largest value there is."""
    why: dict[int, str] = {}
    for each in gone:
        least = None if each.least is None else each.least / highest
        since = _since(blocks, each.at)
        for place, worth in each.lost.items():
            why[place] = (OLD if worth < 0 else ranked(worth / highest, least, size_of(blocks[place]).whole)) + since
    return why


def _since(blocks: Sequence[Block], place: int) -> str:
    newest = max((m.index for m in blocks[place].messages), default=-1)
    return f", since #{newest}" if newest >= 0 and place < len(blocks) - 1 else ""
