"""Leaves out the reasoning of earlier turns, the oldest turn first, of models that do without it.

A model needs what it thought in the turn that it is at: there it goes on from its own thoughts, and providers require
them back as they came. Of earlier turns it has what it said and did. All of a turn's reasoning goes or none: its parts
are signed, and refer to one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.fit.binding import unbound
from proxy.fit.less_reply import as_asked, with_less_reply
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import low_of
from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Drop, Facts
from proxy.model.structs import replace

WHY = "reasoning of an earlier turn"


@dataclass(frozen=True, slots=True)
class Params:
    """`low`: the depth of a cut, as a share of the room that is not pinned."""

    low: float = 0.65

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1:
            raise ValueError("low must be a share over 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn: the places of its blocks, what is left of those that have reasoning, and the tokens that this saves."""

    places: range
    without: dict[int, Block]
    saved: int


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft without the reasoning of its oldest turns, of as many as its room requires.

    The same draft if the model requires all reasoning, or if leaving it out saves nothing. Where reasoning is bound to
    what stands before it, what the cuts of other steps have unbound goes, and no other.
    """
    if draft.window.requires_reasoning:
        return draft
    if draft.window.binds:
        return draft if facts.original is None or any(b.later for b in draft.blocks) else unbound(facts.original, draft)
    turns = [_turn(draft, places) for places in _turns(draft.blocks)]
    if not any(turn.without for turn in turns):
        return draft
    lowered = with_less_reply(draft)
    gone = _gone(lowered, turns, params)
    return as_asked(_without(lowered, gone), draft) if gone else draft


def _turns(blocks: Sequence[Block]) -> Iterator[range]:
    """The turns of a conversation, each from its user's words on; the last is that which the model is at."""
    started = [
        i for i, block in enumerate(blocks) if any(m.kind is Kind.USER and not m.answers for m in block.messages)
    ]
    newest = max(
        (i for i, block in enumerate(blocks) if any(m.kind is Kind.ASSISTANT for m in block.messages)), default=0
    )
    if blocks and blocks[newest].has_results:  # a user's words behind results need not end the model's turn
        started = [i for i in started if i < newest]
    yield from map(range, [0, *started], [*started, len(blocks)])


def _turn(draft: Draft, places: range) -> Turn:
    """A turn, with its blocks as they are without reasoning."""
    without: dict[int, Block] = {}
    saved = 0
    before: list[Message] = []
    after: list[Message] = []
    for place in () if places.stop == len(draft.blocks) else places:
        block = draft.blocks[place]
        left = block if _is_pinned(block, draft) else _stripped(block, draft)
        before += block.messages
        after += left.messages
        if left is not block:
            without[place] = left
            saved += block.tokens - left.tokens
    if saved <= 0 or b"" in before[0].format.detached(before, after).values():  # what an item refers to must stay
        return Turn(places, {}, 0)
    return Turn(places, without, saved)


def _is_pinned(block: Block, draft: Draft) -> bool:
    return block.pinned or any(m.pinned or m.index in draft.pins for m in block.messages)


def _stripped(block: Block, draft: Draft) -> Block:
    """The block without the reasoning of its messages; the same block if it has none."""
    messages = tuple(_messages(block.messages))
    if len(messages) == len(block.messages) and all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    made = replace(block, messages=draft.recount(messages) if messages else ())
    later, saved = block.later, sum(m.tokens for m in block.messages) - sum(m.tokens for m in made.messages)
    if later is None:
        return made
    claimed = tuple((since, max(0, least - saved)) for since, least in block.claimed)
    return replace(
        made,
        later=lambda room: _stripped(later(room + saved), draft),
        most=max(0, block.most - saved),
        least=max(0, block.least - saved),
        claimed=claimed,
    )


def _messages(messages: Sequence[Message]) -> Iterator[Message]:
    for message in messages:
        raw = message.format.without_reasoning(message) if message.kind is Kind.ASSISTANT else None
        if raw is None:
            yield message
        elif raw:
            yield replace(message, raw=raw, why=message.why or WHY)


def _gone(draft: Draft, turns: Sequence[Turn], params: Params) -> list[Turn]:
    """The turns whose reasoning goes: the oldest, at each place where the conversation was longer than its room, until
    it was at the lower mark. What a cut takes depends on what stood before it alone, so that it stays."""
    always = draft.fixed + sum(draft.blocks[place].tokens for place in lasting(draft.blocks))
    mark = always + int(low_of(draft, params.low) * max(0, draft.room - always))
    total, found, waiting = draft.fixed, list[Turn](), deque[Turn]()
    for turn in turns:
        for place in turn.places:
            total += draft.blocks[place].tokens
            if total > draft.room:
                while waiting and total > mark:
                    total -= waiting[0].saved
                    found.append(waiting.popleft())
        if turn.without:
            waiting.append(turn)
    return found


def _without(draft: Draft, gone: Sequence[Turn]) -> Draft:
    """The draft without the reasoning of these turns."""
    without = {place: block for turn in gone for place, block in turn.without.items()}
    blocks = [without.get(place, block) for place, block in enumerate(draft.blocks)]
    left = {m.index for block in without.values() for m in block.messages}
    whole = [m for place in without for m in draft.blocks[place].messages]
    drops = [Drop(m.index, WHY) for m in whole if m.index >= 0 and m.index not in left]
    return draft.with_blocks([block for block in blocks if block.messages], drops)
