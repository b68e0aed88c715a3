"""Replaces old blocks by a summary that a model wrote of them (seed 003). Returns a `Want` for a missing summary.

A cover is the set of blocks that a summary replaces. The covers are replayed from the start of what the client sent, by
two marks as in section 5. Once the load reaches `ready`, the next cover is settled. Once it reaches `at`, that cover
takes effect and stays until the load reaches `at` again. So a summary is requested before it is needed, used for many
turns, and then extended by the new blocks.
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
    """`model`: the model that writes the summary; empty: the step is off. `at`: the load at which a cover takes effect
    (None: when the prompt does not fit). `ready`: the load at which the next cover is settled and its summary fetched.

    `keep_last`: how many of the newest messages a new cover leaves out. It leaves out fewer if they take more than the
    share `low` of the room that is not pinned. `max_tokens`: the most tokens of a summary; blocks of fewer tokens in
    total are not summarised.
    """

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
    """The payload of a `Want` for a summary of at most `max_tokens` tokens.

    `strides`: the covered blocks in pieces, one per cover. Each has the key of a summary of everything up to its end.
    """

    model: str
    max_tokens: int
    strides: tuple[tuple[str, tuple[Block, ...]], ...]


@dataclass(frozen=True, slots=True)
class Covers:
    """The ends of covers: a cover contains all blocks before its end except those that always stay (`lasting`).

    `ends`: of the covers that took effect, oldest first. `coming`: of the next cover, which is settled (0: none yet).
    """

    ends: tuple[int, ...] = ()
    coming: int = 0


def idle(params: Params) -> bool:
    """Whether the step is off."""
    return not params.model


def apply(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft with the summary in place of the covered blocks, or a `Want` for the summary.

    Returns the same draft if nothing is covered yet, or if the summary failed, is empty, or is not shorter.
    """
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
    """The `Want` of later turns, to fetch in the background.

    Returns the same draft if the summary is in the facts already, or if no cover is settled.
    """
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
    """The covers of what the client sent (`source`), for the window of `draft`. Linear time.

    Changes by other steps are ignored, because they grow from turn to turn and would move the covers.
    """
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
    """The prompt's tokens at the loads `at` and `ready`. Both are at most the room."""
    full = source.room
    if params.at is not None:
        full = min(full, int(params.at * source.window.tokens) - source.held)
    return full, min(full, int(params.ready * source.window.tokens) - source.held)


def _settled(blocks: Sequence[Block], place: int, start: int, room: int, keep_last: int) -> int:
    """The end of a cover that is settled at the block `place`. That block always stays outside."""
    end, messages, tokens = place, len(blocks[place].messages), blocks[place].tokens
    while end > start:
        messages, tokens = messages + len(blocks[end - 1].messages), tokens + blocks[end - 1].tokens
        if messages > keep_last or tokens > room:
            break
        end -= 1
    return end


def _strides(blocks: Sequence[Block], ends: Sequence[int]) -> list[tuple[Block, ...]]:
    """For each cover, the blocks that the cover before it does not contain."""
    lasts = lasting(blocks)
    return [
        tuple(blocks[i] for i in range(start, end) if i not in lasts)
        for start, end in zip((0, *ends[:-1]), ends, strict=True)
    ]


def _going(blocks: Sequence[Block], strides: Sequence[Sequence[Block]]) -> list[bool]:
    """Which blocks of a draft the summary replaces.

    A block that is pinned only in this request (the last user message of a long run) is covered but stays in the draft.
    So the cover does not change when the block is no longer pinned.
    """
    covered = {m.index for stride in strides for block in stride for m in block.messages}
    return [not b.pinned and all(m.index in covered for m in b.messages) for b in blocks]


def _want(strides: Sequence[tuple[Block, ...]], params: Params) -> Want:
    """The `Want` for a summary of all strides.

    Each stride has its own key, a digest of all that is covered up to its end. So an earlier summary can be extended.
    """
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
    """The draft with the summary at the place of the first replaced block; the same draft if that saves nothing."""
    if not summary:
        return draft
    made = Block(draft.recount((draft.write(HEADING + summary, MADE),)), pinned=True)
    first = going.index(True)
    # The summary is a user message: it must not follow a result directly, so it goes before a pinned tool round.
    while first and draft.blocks[first - 1].messages[-1].kind is Kind.RESULT:
        first -= 1
    kept = [block for block, goes in zip(draft.blocks[first:], going[first:], strict=True) if not goes]
    drops = [Drop(m.index, GONE) for b, goes in zip(draft.blocks, going, strict=True) if goes for m in b.messages]
    after = draft.with_blocks([*draft.blocks[:first], made, *kept], drops)
    return after if after.prompt < draft.prompt else draft
