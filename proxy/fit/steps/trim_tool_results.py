"""Shortens long tool results (seed 004): metadata, count and rows or ends of the text stay, and it says what went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.fit.results import shorten_result
from proxy.fit.shorten import LEAST, content_of, shorten_content
from proxy.types import Block, Draft, Facts, Message, Meter, replace, text_of

FRAME = 64  # tokens: the most that role and name of a result cost besides its text


@dataclass(frozen=True, slots=True)
class Params:
    """`cap_tokens`: what a result may cost where room is short. `cap_chars`: the same in characters (seed 004), heeded
    where set. `keep_newest`: so many of the newest results are left whole while there is room for them. `preview`: of a
    JSON list only so many rows are kept (seed 004); None keeps as many as the cap holds."""

    cap_tokens: int = 2000
    cap_chars: int | None = None
    keep_newest: int = 0
    preview: int | None = None

    def __post_init__(self) -> None:
        if self.cap_tokens < LEAST or (self.cap_chars is not None and self.cap_chars < 100):
            raise ValueError(f"a cap under {LEAST} tokens or 100 characters leaves nothing of a result")
        if self.keep_newest < 0 or (self.preview is not None and self.preview < 1):
            raise ValueError("keep_newest and preview must not be negative, and preview at least 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its long results shortened: first each to the room that what stood before it leaves, and where
    that is not enough, each to the cap; only the newest may then still take all that is left, and comes under the cap
    with the next turn. Either depends on what stood before it only: what is under the cap never changes later."""
    rooms, prompt = _rooms(draft, params, roomy=True)
    if prompt <= max(draft.room, draft.prompt - draft.excess):
        first = _trimmed(draft, params, rooms)
        if first.excess <= 0 or first.prompt <= first.room:  # a reply limit that is too long is the clamp's to lower
            return first
    return _trimmed(draft, params, _rooms(draft, params, roomy=False)[0])


def _rooms(draft: Draft, params: Params, *, roomy: bool) -> tuple[list[int | None], int]:
    """What each block with results may cost (None: it is left alone), and what the prompt will cost then."""
    rooms: list[int | None] = []
    before, whole = draft.fixed, _left_whole(draft.blocks, params.keep_newest)
    pinned = draft.fixed + sum(b.tokens for b in draft.blocks[:-1] if b.pinned)
    for place, block in enumerate(draft.blocks):
        last, room = place == len(draft.blocks) - 1, None
        if block.has_results and place not in whole and (last or not block.pinned):
            least = min(_capped(block, params), draft.room - pinned) if last else _capped(block, params)
            room = max(draft.room - before, least) if roomy or last else least
        rooms.append(room)
        before += block.tokens if room is None else min(room, block.tokens)
    return rooms, before


def _trimmed(draft: Draft, params: Params, rooms: Sequence[int | None]) -> Draft:
    pairs = zip(draft.blocks, rooms, strict=True)
    blocks = [block if room is None else _block(block, draft, params, room) for block, room in pairs]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _capped(block: Block, params: Params) -> int:
    """What the block costs with each of its results under the cap."""
    return sum(min(m.tokens, params.cap_tokens) if m.answers is not None else m.tokens for m in block.messages)


def _left_whole(blocks: Sequence[Block], newest: int) -> frozenset[int]:
    places = [i for i, b in enumerate(blocks) if b.has_results]
    return frozenset(places[len(places) - newest :]) if newest else frozenset()


def _block(block: Block, draft: Draft, params: Params, room: int) -> Block:
    """One call and its results, which together get `room`: the small ones whole, the large ones alike."""
    calls = sum(m.tokens for m in block.messages if m.answers is None)
    allowance = allowances([m.tokens for m in block.messages if m.answers is not None], room - calls)
    given = iter(allowance)
    messages = tuple(m if m.answers is None else _message(m, draft, params, next(given)) for m in block.messages)
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    trimmed = replace(block, messages=draft.recount(messages))
    return trimmed if trimmed.tokens < block.tokens else block


def allowances(costs: Sequence[int], room: int) -> tuple[int, ...]:
    """What each result may cost so that together they stay within `room`: the small whole, the large ones alike."""
    left, shares = max(0, room), [0] * len(costs)
    for rank, i in enumerate(sorted(range(len(costs)), key=lambda i: costs[i])):
        shares[i] = min(costs[i], left // (len(costs) - rank))
        left -= shares[i]
    return tuple(shares)


def _message(message: Message, draft: Draft, params: Params, allowance: int) -> Message:
    cap_chars = params.cap_chars
    if message.tokens <= allowance and (cap_chars is None or len(message.raw) <= cap_chars):
        return message

    def shorten(text: str, room: int) -> str:
        return shorten_result(text, room, draft.meter, cap_chars=cap_chars, preview=params.preview)

    limit = _for_text(message, draft.meter, allowance)
    return shorten_content(message, draft.meter, limit, shorten, "tool result over its cap")


def _for_text(message: Message, meter: Meter, allowance: int) -> int:
    """What an allowance leaves for a result's text. Results of parallel calls are sent as escaped JSON: there a text
    costs more than it would alone, and what it costs more is no frame."""
    content = content_of(message)
    frame = message.tokens - meter.text(text_of(content))
    return max(LEAST, allowance - max(0, min(frame, FRAME) if isinstance(content, str) else frame))
