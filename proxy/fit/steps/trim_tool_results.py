"""Shortens long tool results (seed 004) to the parts relevant to their query, with a marker for what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.fit.relevance.results.messages import costs_of_results, parts_of_results, shorten_results
from proxy.fit.relevance.results.read_on import NO_NAMES, ArgumentNames
from proxy.fit.relevance.results.sources import Source, sources
from proxy.fit.shorten import LEAST
from proxy.model.conversation import Block, Message, Part
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace

AFTER = 2  # blocks that may follow the newest results: an answer and the next question
SHARE = 0.1  # of the room, for the newest result if others were cut already: it will be cut again (measured)
OF_CAP = 0.75  # of `cap_tokens`, in a small room: shorter results mean fewer cuts and no less support (measured)
BEHIND = 0.25  # of the room without pinned blocks: an answer after the newest results is kept if it takes no more
SURELY = 1.25  # times the room: a prompt estimated above this almost never fits after shortening
FRAME = 64  # tokens: the most that a result's role and name add to its text


@dataclass(frozen=True, slots=True)
class Params:
    """`cap_tokens`: the most tokens of a result if they do not all fit the room. In a small room the cap is a tenth
    of the room, but at least three quarters of `cap_tokens`.

    `cap_chars`: the same in characters (seed 004), if set. `keep_newest`: how many blocks with the newest results stay
    whole. `preview`: how many rows of a JSON list are kept (seed 004); None keeps as many as the cap allows.

    `arguments`: names of tools' arguments by which a call can be repeated for what is missing (`rules/tools.toml`).
    """

    cap_tokens: int = 2000
    cap_chars: int | None = None
    keep_newest: int = 0
    preview: int | None = None
    arguments: ArgumentNames = NO_NAMES

    def __post_init__(self) -> None:
        if self.cap_tokens < LEAST or (self.cap_chars is not None and self.cap_chars < 100):
            raise ValueError(f"a cap under {LEAST} tokens or 100 characters leaves nothing of a result")
        if self.keep_newest < 0 or (self.preview is not None and self.preview < 1):
            raise ValueError("keep_newest and preview must not be negative, and preview at least 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its long results shortened.

    First, each result gets the room that the blocks before it leave. If that is not enough, each gets the cap; only the
    newest may take more until the next round. A result under the cap depends only on what precedes it and on the
    question directly after it, so it stays the same in later requests. If the prompt still leaves no room for the
    smallest reply, the shortening is deferred (`Block.later`), because a later step may drop the block.
    """
    draft = draft.made()
    if not any(block.has_results for block in draft.blocks):
        return draft
    rooms, prompt = _rooms(draft, params, roomy=True)
    if prompt <= max(draft.room, draft.prompt - draft.excess):
        first = _trimmed(draft, params, rooms)
        if first.excess <= 0 or first.prompt <= first.room:  # `clamp_output` lowers a reply limit that is too high
            return first
    rooms, prompt = _rooms(draft, params, roomy=False)
    widest = _widest(draft)
    if prompt <= SURELY * widest:
        made = _trimmed(draft, params, rooms)
        if prompt <= draft.room or made.excess <= 0 or made.prompt <= widest:
            return made
    return _trimmed(draft, params, rooms, later=True)


def _rooms(draft: Draft, params: Params, *, roomy: bool) -> tuple[list[int | None], int]:
    """The tokens that each block with results may cost (None: unchanged), and the prompt's tokens then, estimated."""
    rooms: list[int | None] = []
    cap = min(params.cap_tokens, max(int(SHARE * draft.room), int(OF_CAP * params.cap_tokens)))
    before, whole, fresh = draft.fixed, _left_whole(draft.blocks, params.keep_newest), _fresh(draft.blocks)
    pinned = draft.fixed + sum(b.tokens for i, b in enumerate(draft.blocks) if b.pinned and i != fresh)
    behind = sum(b.tokens for b in draft.blocks[fresh + 1 :] if not b.pinned)
    if behind <= BEHIND * (draft.room - pinned):
        pinned += behind
    for place, block in enumerate(draft.blocks):
        newest, room = place == fresh, None
        if block.has_results and place not in whole and (place == len(draft.blocks) - 1 or not block.pinned):
            least = _capped(block, cap, draft.meter)
            least = min(least, draft.room - pinned) if newest else least
            after = sum(b.tokens for b in draft.blocks[place + 1 :]) if newest else 0
            left = draft.room - before - after
            if not roomy and any(rooms):  # leave room for the next results: else this one is cut again
                left = min(left, int(SHARE * draft.room))
            room = max(left, least) if roomy or newest else least
        rooms.append(room)
        before += block.tokens if room is None else min(room, block.tokens)
    return rooms, before


def _widest(draft: Draft) -> int:
    """The room if `clamp_output` lowers the reply to the floor, in tokens."""
    return replace(draft, reply=draft.floor if draft.reply is None else min(draft.reply, draft.floor)).room


def _fresh(blocks: Sequence[Block]) -> int:
    """The place of the newest results, which the model reads in this request; -1 if there are none.

    At most `AFTER` blocks may follow them: an answer in words and the next question.
    """
    last = max((i for i, block in enumerate(blocks) if block.has_results), default=-1)
    return last if len(blocks) - 1 - last <= AFTER else -1


def _trimmed(draft: Draft, params: Params, rooms: Sequence[int | None], *, later: bool = False) -> Draft:
    """The draft with each block shortened to its room.

    With `later`, blocks that are certain to fit their room are only marked: `Block.later` shortens them when needed.
    """

    def trimmed(block: Block, source: Source | None, room: int | None) -> Block:
        if room is None or source is None:
            return block
        if later and _is_sure(block, room):
            return replace(block, later=lambda: _block(block, source, draft, params, room), most=room)
        return _block(block, source, draft, params, room)

    asked = sources(draft.blocks, following=True)
    blocks = [trimmed(*each) for each in zip(draft.blocks, asked, rooms, strict=True)]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _is_sure(block: Block, room: int) -> bool:
    """Whether a block certainly fits its room once shortened: its results are texts, and the room is large enough."""
    results = [m for m in block.messages if m.answers and m.tokens > FRAME + LEAST]
    least = block.tokens - sum(m.tokens - FRAME - LEAST for m in results)
    return least <= room < block.tokens and all(any(part.whole for part in m.parts()) for m in results)


def _capped(block: Block, cap: int, meter: Meter) -> int:
    """The tokens of the block with each of its results shortened to the cap."""
    return block.tokens - sum(max(0, cost - cap) for m in block.messages for _, cost in costs_of_results(m, meter))


def _left_whole(blocks: Sequence[Block], newest: int) -> frozenset[int]:
    places = [i for i, b in enumerate(blocks) if b.has_results]
    return frozenset(places[len(places) - newest :]) if newest else frozenset()


def _block(block: Block, source: Source, draft: Draft, params: Params, room: int) -> Block:
    """The block shortened to `room` tokens. Small results stay whole; the large ones get equal shares."""
    costs = [cost for m in block.messages for _, cost in costs_of_results(m, draft.meter)]
    allowance = allowances(costs, room - (sum(m.tokens for m in block.messages) - sum(costs)))
    given, alone = iter(allowance), len(allowance) == 1
    messages = tuple(_message(m, source, draft, params, given, alone) for m in block.messages)
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    trimmed = replace(block, messages=draft.recount(messages))
    return trimmed if trimmed.tokens < block.tokens else block


def allowances(costs: Sequence[int], room: int) -> tuple[int, ...]:
    """The tokens for each result, at most `room` in total. Small results stay whole; large ones get equal shares."""
    left, shares = max(0, room), [0] * len(costs)
    for rank, i in enumerate(sorted(range(len(costs)), key=lambda i: costs[i])):
        shares[i] = min(costs[i], left // (len(costs) - rank))
        left -= shares[i]
    return tuple(shares)


def _message(
    message: Message, source: Source, draft: Draft, params: Params, given: Iterator[int], alone: bool
) -> Message:
    """The message with each of its results shortened to the next of the given allowances."""
    allowed = [(call, cost, next(given)) for call, cost in costs_of_results(message, draft.meter)]
    capped = params.cap_chars is not None and len(message.raw) > params.cap_chars
    long = [each for each in allowed if each[1] > each[2] or capped]
    if not long:
        return message
    parts = parts_of_results(message)
    return shorten_results(
        message,
        {call: _for_text(parts[call], draft.meter, cost, allowance, alone) for call, cost, allowance in long},
        source,
        draft.meter,
        cap_chars=params.cap_chars,
        preview=params.preview,
        names=params.arguments,
    )


def _for_text(parts: Sequence[Part], meter: Meter, cost: int, allowance: int, alone: bool) -> int:
    """The tokens that an allowance leaves for a result's text, without the result's role and name.

    Results of parallel calls are sent as escaped JSON, where a text costs more than it does separately. The difference
    would count as the frame, so it is not computed and `FRAME` is used.
    """
    whole = any(part.whole for part in parts)
    if whole and not alone:
        return max(LEAST, allowance - FRAME)
    frame = cost - meter.text("".join(part.text for part in parts))
    return max(LEAST, allowance - max(0, min(frame, FRAME) if whole else frame))
