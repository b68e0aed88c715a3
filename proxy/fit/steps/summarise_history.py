"""Replaces old blocks by a summary that a model wrote of them (seed 003); what it lacks it asks for with a `Want`.

Which blocks a summary covers is replayed from the start of what the client sent, by two marks as in section 5: once
the load passes `ready`, the next cover is settled; once it passes `at`, that cover takes effect and stays until the
load passes again. So a summary is asked for before it is needed, used for many turns, and then extended by what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from proxy.fit.relevance.history.replay import lasting
from proxy.model.conversation import Block, Kind
from proxy.model.plan import Draft, Drop, Facts, Want
from proxy.model.structs import replace

KIND = "summary"
HEADING = "[Summary of what was said earlier in this conversation and is left out here:]\n"
MADE = "a summary of what was left out"
GONE = "summarised"


@dataclass(frozen=True, slots=True)
class Params:
    """`model`: who sums up; empty: the step takes no part. `at`: the load at which a cover takes effect (None: once it
    does not fit); `ready`: the load at which the next one is settled and made ready. `keep_last`: the newest messages
    that no new cover takes; fewer where they hold over `low` of the room that is not pinned. `max_tokens`: how long a
    summary may become; less than that is not summed up."""

    model: str = ""
    at: float | None = None
    ready: float = 0.70
    keep_last: int = 20
    max_tokens: int = 1000
    low: float = 0.5

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise ValueError("keep_last must be at least 1")
        if self.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        if not 0 < self.ready <= 1:
            raise ValueError("ready must be a share over 0 and at most 1")
        if not 0 <= self.low < 1:
            raise ValueError("low must be a share of at least 0 and under 1")


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The payload of a `Want` for a summary of at most `max_tokens` tokens by a model. `strides`: the blocks to cover,
    in pieces, each with the key of a summary of everything up to its end."""

    model: str
    max_tokens: int
    strides: tuple[tuple[str, tuple[Block, ...]], ...]


@dataclass(frozen=True, slots=True)
class Covers:
    """Places before which all blocks are covered that do not last: of the covers that took effect, oldest first, and
    of the one that is settled and comes next (0: none yet)."""

    ends: tuple[int, ...] = ()
    coming: int = 0


def idle(params: Params) -> bool:
    """Whether it takes no part."""
    return not params.model


def apply(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft with the summary in the place of what it covers. The same draft where nothing is covered yet, or where
    the summary failed, says nothing, or is no shorter."""
    if idle(params):
        return draft
    draft = draft.made()
    source = facts.original or draft
    covers = covers_of(source, draft, params)
    if not covers.ends:
        return draft
    fresh = _strides(source.blocks, covers.ends)
    going = _going(draft.blocks, fresh)
    if not any(going):
        return draft
    want = _want(fresh, params)
    summary = facts.knowledge.get(want.key)
    return want if summary is None else _replaced(draft, going, str(summary))


def ahead(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """What the next turns will want, while nobody waits for it; the same draft where it is known, or not settled."""
    if idle(params):
        return draft
    source = facts.original or draft
    covers = covers_of(source, draft, params)
    ends = (*covers.ends, covers.coming) if covers.coming else covers.ends
    if not ends:
        return draft
    want = _want(_strides(source.blocks, ends), params)
    return draft if want.key in facts.knowledge else want


def covers_of(source: Draft, draft: Draft, params: Params) -> Covers:
    """The covers of what the client sent (`source`), in the window that `draft` has now. What other steps did to
    `draft` must not count: they do more from turn to turn. Linear."""
    full, ready = _marks(replace(source, window=draft.window), params)
    blocks, lasts = source.blocks, lasting(source.blocks)
    pinned = list(accumulate((b.tokens if i in lasts else 0 for i, b in enumerate(blocks)), initial=source.fixed))
    loose = list(accumulate((0 if i in lasts else b.tokens for i, b in enumerate(blocks)), initial=0))
    ends: list[int] = []
    start, coming = 0, 0
    for place in range(len(blocks)):
        summed = loose[start] - (params.max_tokens if ends else 0)
        used = pinned[place + 1] + loose[place + 1] - summed
        if used >= ready and not coming:
            end = _settled(blocks, place, start, int(params.low * max(0, ready - pinned[place + 1])), params.keep_last)
            coming = end if loose[end] - loose[start] > params.max_tokens else 0
        if used >= full and coming:
            ends.append(coming)
            start, coming = coming, 0
    return Covers(tuple(ends), coming)


def _marks(source: Draft, params: Params) -> tuple[int, int]:
    """The prompt's tokens at the load `at` (where it does not fit before that), and at `ready`."""
    full = source.room
    if params.at is not None:
        full = min(full, int(params.at * source.window.tokens) - source.held)
    return full, min(full, int(params.ready * source.window.tokens) - source.held)


def _settled(blocks: Sequence[Block], place: int, start: int, room: int, keep_last: int) -> int:
    """How far a cover goes that is settled when the block at `place` has come: that one always stays."""
    end, messages, tokens = place, len(blocks[place].messages), blocks[place].tokens
    while end > start:
        messages, tokens = messages + len(blocks[end - 1].messages), tokens + blocks[end - 1].tokens
        if messages > keep_last or tokens > room:
            break
        end -= 1
    return end


def _strides(blocks: Sequence[Block], ends: Sequence[int]) -> list[tuple[Block, ...]]:
    """What each cover has that the one before it had not."""
    lasts = lasting(blocks)
    return [
        tuple(blocks[i] for i in range(start, end) if i not in lasts)
        for start, end in zip((0, *ends[:-1]), ends, strict=True)
    ]


def _going(blocks: Sequence[Block], strides: Sequence[Sequence[Block]]) -> list[bool]:
    """Which blocks of a draft the summary stands for. What is pinned only now (the last user message of a long run) is
    covered and stays all the same: so the cover need not be another one once it is not pinned any more."""
    covered = {m.index for stride in strides for block in stride for m in block.messages}
    return [not b.pinned and all(m.index in covered for m in b.messages) for b in blocks]


def _want(strides: Sequence[tuple[Block, ...]], params: Params) -> Want:
    """What is wanted: a summary of all strides. Each has a key of its own, of what is covered up to its end: whoever
    has an earlier summary need only extend it."""
    key, keyed = f"{params.model}\0{params.max_tokens}".encode(), []
    for stride in strides:
        key = _digest(key, stride)
        keyed.append((key.hex(), stride))
    return Want(KIND, key.hex(), SummaryRequest(params.model, params.max_tokens, tuple(keyed)))


def _digest(before: bytes, blocks: Sequence[Block]) -> bytes:
    made = blake2b(before, digest_size=16)
    for message in (m for block in blocks for m in block.messages):
        made.update(b"%d:" % len(message.raw) + message.raw)
    return made.digest()


def _replaced(draft: Draft, going: Sequence[bool], summary: str) -> Draft:
    """The summary where the first of what goes stood; the same draft where that is no gain."""
    if not summary:
        return draft
    made = Block(draft.recount((draft.write(HEADING + summary, MADE),)), pinned=True)
    first = going.index(True)
    while (
        first and draft.blocks[first - 1].messages[-1].kind is Kind.RESULT
    ):  # a round that is pinned goes on behind it
        first -= 1
    kept = [block for block, goes in zip(draft.blocks[first:], going[first:], strict=True) if not goes]
    drops = [Drop(m.index, GONE) for b, goes in zip(draft.blocks, going, strict=True) if goes for m in b.messages]
    after = draft.with_blocks([*draft.blocks[:first], made, *kept], drops)
    return after if after.prompt < draft.prompt else draft
