"""Last resort: shortens the longest texts to what bears on the question, else to head and tail.

Markers say what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.fit.effective import fits_own
from proxy.fit.ends import cut_at_ends
from proxy.fit.relevance.passages.excerpt import excerpt
from proxy.fit.relevance.passages.texts import Span
from proxy.fit.relevance.results.messages import shorten_arguments
from proxy.fit.relevance.results.sources import Source, sources
from proxy.fit.relevance.text.question import Question, question_of
from proxy.fit.shorten import LEAST, head_and_tail, shorten_message, spread, waterline
from proxy.model.conversation import RULED, Block, Kind, Message
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace

READABLE = 100  # tokens from which an excerpt is more than its notes
SLACK = 16  # tokens: what counting may add where the end of a text changed
ESCAPED = 0.5  # results of parallel calls are sent as escaped JSON, where a text may cost twice as much
ARGUMENTS = (1000, 100)  # tokens that a long string in a call's arguments keeps: first pass, second pass


@dataclass(frozen=True, slots=True)
class Params:
    """`head`: the share of the kept tokens that the beginning of a text gets where nothing in it bears on the question.
    `instructions`: whether instructions may be shortened if nothing else is enough. `spread`: nothing is ranked: a text
    of several entries, with blank lines between them, loses the middle of the longest of them. `least`: tokens that a
    text keeps.
    """

    head: float = 0.7
    instructions: bool = False
    spread: bool = False
    least: int = LEAST

    def __post_init__(self) -> None:
        if not 0 <= self.head <= 1:
            raise ValueError("head must be a share between 0 and 1")
        if self.least < LEAST:
            raise ValueError(f"a text of under {LEAST} tokens is nothing but a marker")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its longest texts shortened until it fits.

    The last user message is shortened only if the other texts cannot free the excess; instructions only if the ladder
    allows it and nothing else is enough; what the client pinned never. Each text is shortened at most twice, deeper the
    second time, because escaped text may cost more than it was counted for. First, a reply limit above `Draft.held` is
    lowered to it: no text is cut to make room for a longer reply.
    """
    draft = draft.made()
    lowers = draft.excess > 0 and not fits_own(draft)
    if lowers and draft.reply is not None and draft.window.counted(draft.reply) > draft.held:
        draft = replace(draft, reply=draft.held)
    if draft.apart:
        return _with(draft, [_alone(block, draft, facts, params) for block in draft.blocks])
    if draft.excess > 0 and any(m.keep for m in draft.messages):
        draft = cut_at_ends(draft, lambda m: "" if m.keep == RULED else m.keep)
    last = next((m for m in reversed(tuple(draft.messages)) if m.kind is Kind.USER), None)
    loose = [m for m in draft.messages if m.kind is not Kind.INSTRUCTION and m.index not in draft.pins]
    others = [m for m in loose if m is not last]
    rounds = [_indices(others)] if _spare(others, draft) >= draft.excess + SLACK else []
    rounds.append(_indices(loose))
    if params.instructions:
        instructions = (m for m in draft.messages if m.kind is Kind.INSTRUCTION and m.index not in draft.pins)
        rounds.append(_indices(instructions))
    asked = Question(()) if params.spread else question_of(draft.blocks) or Question(())
    for places in rounds:
        for depth in (1.0, ESCAPED):
            if draft.excess > 0:
                draft = _level(draft, places, params, depth, asked)
        for limit in ARGUMENTS if params.least == LEAST else ():
            if draft.excess > 0:
                draft = _with_less_called(draft, places, limit)
    return draft


def _alone(block: Block, draft: Draft, facts: Facts, params: Params) -> Block:
    """One block of several that have the window to themselves."""
    alone = replace(draft, apart=False).with_blocks([block])
    return apply(alone, facts, params).blocks[0] if alone.excess > 0 else block


def _indices(messages: Iterable[Message]) -> frozenset[int]:
    return frozenset(m.index for m in messages)


def _spare(messages: Sequence[Message], draft: Draft) -> int:
    """An estimate of the tokens that these messages can free."""
    return sum(m.tokens - LEAST if m.calls else _text_cost(m, draft) - LEAST for m in messages if m.tokens > LEAST)


def _with_less_called(draft: Draft, places: frozenset[int], limit: int) -> Draft:
    """The draft with every long string in its calls' arguments shortened to `limit` tokens."""
    blocks = []
    for block, found in zip(draft.blocks, sources(draft.blocks), strict=True):
        source = found or Source(block.messages[:1])
        short = [shorten_arguments(m, source, draft.meter, limit) if m.index in places else m for m in block.messages]
        blocks.append(_if_less(block, short, draft))
    return _with(draft, blocks)


def _with(draft: Draft, blocks: Sequence[Block]) -> Draft:
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _if_less(block: Block, messages: Sequence[Message], draft: Draft) -> Block:
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    made = replace(block, messages=draft.recount(messages))
    return made if made.tokens < block.tokens else block


def _level(draft: Draft, places: frozenset[int], params: Params, depth: float, asked: Question) -> Draft:
    """The draft with every text of these messages shortened to one height: the largest that frees the excess.

    Images are unchanged.
    """
    costs = [[_text_cost(m, draft) if m.index in places else 0 for m in block.messages] for block in draft.blocks]
    least = params.least
    spare = sorted((cost - least for row in costs for cost in row if cost > least), reverse=True)
    height = least + int(depth * waterline(spare, _needed(draft) + SLACK))
    blocks = [
        _lowered(block, row, draft, height, params, asked, asked.spans if place == asked.place else ())
        for place, (block, row) in enumerate(zip(draft.blocks, costs, strict=True))
    ]
    return _with(draft, blocks)


def _needed(draft: Draft) -> int:
    """The tokens that must go: fewer than the excess, of which the margin of a shorter prompt is a smaller part."""
    if draft.window.max_input is not None:
        return draft.excess
    return math.ceil(draft.excess / (1 + draft.window.margin(draft.meter.margin).share))


def _text_cost(message: Message, draft: Draft) -> int:
    if message.tokens <= LEAST:
        return 0
    return min(message.tokens, draft.meter.text(message.text()))


def _lowered(
    block: Block,
    costs: Sequence[int],
    draft: Draft,
    height: int,
    params: Params,
    asked: Question,
    spans: Sequence[Span],
) -> Block:
    if max(costs) <= height:
        return block

    def shorten(text: str, room: int) -> str:
        if params.spread:
            return spread(text, room, draft.meter, params.head)
        made = excerpt(text, room, asked, draft.meter, spans) if room >= READABLE else None
        return head_and_tail(text, room, draft.meter, params.head) if made is None else made

    messages = [
        shorten_message(message, draft.meter, height, shorten, "longest text") if cost > height else message
        for message, cost in zip(block.messages, costs, strict=True)
    ]
    return _if_less(block, messages, draft)
