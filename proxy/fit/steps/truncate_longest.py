"""Last resort: the longest texts keep their head and tail, with a marker that says how much is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.fit.shorten import LEAST, content_of, head_and_tail, shorten_content
from proxy.types import Block, Draft, Facts, Message, replace, text_of

SLACK = 16  # tokens: what a recipe may add where a text's end changed
ESCAPED = 0.5  # results of parallel calls are sent as escaped JSON: a text in it may cost twice what it costs alone
INSTRUCTIONS = ("system", "developer")
OTHERS = ("tool", "function", "assistant", "user")


@dataclass(frozen=True, slots=True)
class Params:
    """`head`: the share of what is kept that goes to the beginning of a text."""

    head: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.head <= 1:
            raise ValueError("head must be a share between 0 and 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its longest texts shortened by what is missing; instructions only where all else is not enough.
    Each at most twice, deeper the second time: what is escaped may cost more than its text foretells.

    A reply limit over what a cut leaves free is lowered to that first: no text need make room for more."""
    if draft.excess > 0 and draft.reply is not None and draft.reply > draft.held // draft.n:
        draft = replace(draft, reply=draft.held // draft.n)
    for roles, depth in ((OTHERS, 1.0), (OTHERS, ESCAPED), (INSTRUCTIONS, 1.0), (INSTRUCTIONS, ESCAPED)):
        if draft.excess > 0:
            draft = _level(draft, roles, params.head, depth)
    return draft


def _level(draft: Draft, roles: Sequence[str], head: float, depth: float) -> Draft:
    """Every text of these roles brought down to one height, the highest that frees the excess. Only texts count: a
    call's arguments and an image cannot give way."""
    costs = [[_text_cost(m, draft, roles) for m in block.messages] for block in draft.blocks]
    spare = sorted((cost - LEAST for row in costs for cost in row if cost > LEAST), reverse=True)
    height = LEAST + int(depth * waterline(spare, draft.excess + SLACK))
    blocks = [_lowered(b, row, draft, height, head) for b, row in zip(draft.blocks, costs, strict=True)]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _text_cost(message: Message, draft: Draft, roles: Sequence[str]) -> int:
    if message.role not in roles or message.tokens <= LEAST:
        return 0
    return min(message.tokens, draft.meter.text(text_of(content_of(message))))


def waterline(costs: Sequence[int], excess: int) -> int:
    """The largest height to which costs (descending) must be brought down so that `excess` is freed; 0 where all of
    them together do not hold that much."""
    freed = 0
    for i, cost in enumerate(costs):
        lower = costs[i + 1] if i + 1 < len(costs) else 0
        if freed + (i + 1) * (cost - lower) >= excess:
            return cost - -(-(excess - freed) // (i + 1))
        freed += (i + 1) * (cost - lower)
    return 0


def _lowered(block: Block, costs: Sequence[int], draft: Draft, height: int, head: float) -> Block:
    if max(costs) <= height:
        return block

    def shorten(text: str, room: int) -> str:
        return head_and_tail(text, room, draft.meter, head)

    messages = [
        shorten_content(message, draft.meter, height, shorten, "longest text") if cost > height else message
        for message, cost in zip(block.messages, costs, strict=True)
    ]
    lowered = replace(block, messages=draft.recount(messages))
    return lowered if lowered.tokens < block.tokens else block
