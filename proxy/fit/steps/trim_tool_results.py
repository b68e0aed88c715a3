"""Shortens long tool results (seed 004) to the parts relevant to their query, with a marker for what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.fit.blocks import have_results
from proxy.fit.claims.claims import raised_results
from proxy.fit.less_reply import as_asked, with_less_reply
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import Bounds, Raised, Size, arrival, low_of, newest_results, plan_rooms
from proxy.fit.relevance.results.messages import RESULT_WHY, costs_of_results, parts_of_results, shorten_results
from proxy.fit.relevance.results.read_on import NO_NAMES, ArgumentNames
from proxy.fit.relevance.results.sources import Source, sources
from proxy.fit.shorten import LEAST
from proxy.model.claims import ResultClaim
from proxy.model.conversation import Block, Message, Part
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace

SHARE = 0.1  # of the room, for the newest result if others were cut already: it will be cut again (measured)
OF_CAP = 0.75  # of `cap_tokens`, in a small room: shorter results mean fewer cuts and no less support (measured)
BEHIND = 0.25  # of the room without pinned blocks: an answer after the newest results is kept if it takes no more
SHORTER = 0.9  # of the room: results that are so much shorter than estimated are JSON, and nothing need be dropped
SURELY = 1.25  # times the room: a prompt estimated above this almost never fits after shortening
AROUND, OUTLINE = 1.1, 150  # of what is claimed of a result, the tokens that it takes; and those of the rest's outline
NOTHING: Mapping[str, ResultClaim] = {}
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
    low: float = 0.65
    cap_chars: int | None = None
    keep_newest: int = 0
    preview: int | None = None
    arguments: ArgumentNames = NO_NAMES

    def __post_init__(self) -> None:
        if self.cap_tokens < LEAST or (self.cap_chars is not None and self.cap_chars < 100):
            raise ValueError(f"a cap under {LEAST} tokens or 100 characters leaves nothing of a result")
        if not 0 < self.low <= 1:
            raise ValueError("low must be a share over 0 and at most 1")
        if self.keep_newest < 0 or (self.preview is not None and self.preview < 1):
            raise ValueError("keep_newest and preview must not be negative, and preview at least 1")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its long results shortened, the oldest first, down to the lower mark (see `plan_rooms`).

    If that is not enough, the same for the room that is left if `clamp_output` lowers the reply to the floor. If that
    is not enough either, the shortening is deferred (`Block.later`): a later step may drop a block, and gives those
    that stay their room.
    """
    draft = draft.made()
    if not have_results(draft.blocks):
        return draft
    lowered = with_less_reply(draft)
    made = _within_room(lowered, facts, params)
    return draft if made is lowered else as_asked(made, draft)


def _within_room(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its results shortened to its room, or to what a lower reply limit leaves."""
    left = _left_for_newest(draft)
    first = _sizes(draft, params, left)
    claimed = _claimed(draft, facts, params, first, left)
    sizes = [_last(claimed, place, size) for place, size in enumerate(first)]
    always = lasting(draft.blocks)
    for room in dict.fromkeys((draft.room, _widest(draft))):
        bounds = Bounds(room, draft.fixed, low_of(draft, params.low))
        rooms = plan_rooms(draft.blocks, first, always, bounds, claimed.places)
        if rooms is not None:
            return _trimmed(draft, params, rooms, sizes, claimed)
    least = [size.least for size in sizes]
    widest, prompt, loose = _widest(draft), draft.fixed + sum(least), _may_drop(draft, sizes)
    if prompt <= SURELY * widest and not (loose and prompt <= widest):
        made = _trimmed(draft, params, least, sizes, claimed)
        if made.prompt <= (SHORTER if loose else 1) * widest or (made.excess <= 0 and not loose):
            return _with_rest(draft, made, params, least, sizes, claimed)
    return _trimmed(draft, params, _over(draft, sizes), sizes, claimed, later=True)


def _with_rest(
    draft: Draft, made: Draft, params: Params, least: Sequence[int], sizes: Sequence[Size], claimed: Claims
) -> Draft:
    """The draft with what all results at their least leave free for the newest; `made` is the draft without that."""
    fresh, rest = newest_results(draft.blocks), made.room - made.prompt
    if fresh < 0 or rest <= 0 or made.blocks[fresh] is draft.blocks[fresh]:
        return made
    rooms = [*least[:fresh], min(sizes[fresh].whole, least[fresh] + rest), *least[fresh + 1 :]]
    filled = _trimmed(draft, params, rooms, sizes, claimed)
    return filled if filled.prompt <= made.room else made


@dataclass(frozen=True, slots=True)
class Claims:
    """What is claimed of the results of a draft. `first`: the sizes of its blocks without. `results`: the claims by the
    ids of their calls, each as it was made last. `leasts`: by the place of a block, the messages that claim of it, in
    order, each with its least from there on. `places`: of the blocks."""

    first: Sequence[Size]
    results: Mapping[str, ResultClaim]
    leasts: Mapping[int, Sequence[tuple[int, int]]]
    places: Raised


def _claimed(draft: Draft, facts: Facts, params: Params, first: Sequence[Size], left: int) -> Claims:
    """What is claimed of results. Of the newest no more than is `left` for it."""
    results: dict[str, ResultClaim] = {}
    leasts: dict[int, list[tuple[int, int]]] = {}
    cap, fresh = _cap(draft, params), newest_results(draft.blocks)

    def size(place: int, claim: ResultClaim) -> Size:
        results[claim.call] = claim
        block, least = draft.blocks[place], first[place].least
        if least < block.tokens:
            most = _capped(block, cap, params.cap_chars, draft.meter, results)
            least = max(least, min(most, left) if place == fresh else most)
        leasts.setdefault(place, []).append((claim.since, least))
        return Size(block.tokens, least)

    places = raised_results(draft, facts, size)
    return Claims(first, results, leasts, places)


def _last(claimed: Claims, place: int, size: Size) -> Size:
    """The size of a block with what was claimed of it last."""
    return Size(size.whole, claimed.leasts[place][-1][1]) if place in claimed.leasts else size


def _may_drop(draft: Draft, sizes: Sequence[Size]) -> bool:
    """Whether the newest results would find their room if other blocks went."""
    fresh = newest_results(draft.blocks)
    stays = sum(size.least for i, size in enumerate(sizes) if draft.blocks[i].pinned and i != fresh)
    needed = arrival(sizes[fresh], draft.room, Bounds(draft.room, draft.fixed, 0.0))
    return draft.fixed + stays + needed <= draft.room


def _over(draft: Draft, sizes: Sequence[Size]) -> list[int]:
    """The least of each block, but as many of the newest whole as make the request not fit: what is older must go
    instead, so a step that drops blocks is due."""
    most = max(_widest(draft), draft.prompt - draft.excess)
    rooms = [size.least for size in sizes]
    prompt = draft.fixed + sum(rooms)
    for place in reversed(range(len(rooms))):
        if prompt > most:
            break
        prompt += sizes[place].whole - rooms[place]
        rooms[place] = sizes[place].whole
    return rooms


def _cap(draft: Draft, params: Params) -> int:
    """The tokens to which a result may be shortened."""
    return min(params.cap_tokens, max(int(SHARE * draft.room), int(OF_CAP * params.cap_tokens)))


def _sizes(draft: Draft, params: Params, left: int) -> list[Size]:
    """What each block takes as it came, and the least that it may be shortened to where nothing of it is claimed.

    The newest results may get less than the cap: no more than is `left` for them.
    """
    cap = _cap(draft, params)
    blocks, fresh = draft.blocks, newest_results(draft.blocks)
    left_whole = _left_whole(blocks, params.keep_newest)
    found: list[Size] = []
    for place, block in enumerate(blocks):
        least = block.tokens
        if block.has_results and place not in left_whole and (place == len(blocks) - 1 or not block.pinned):
            least = _capped(block, cap, params.cap_chars, draft.meter)
            least = min(least, left) if place == fresh else least
        found.append(Size(block.tokens, least))
    return found


def _left_for_newest(draft: Draft) -> int:
    """The tokens that what is pinned, and a short answer behind them, leave for the newest results."""
    blocks, fresh = draft.blocks, newest_results(draft.blocks)
    pinned = draft.fixed + sum(b.tokens for i, b in enumerate(blocks) if b.pinned and i != fresh)
    behind = sum(b.tokens for b in blocks[fresh + 1 :] if not b.pinned)
    return draft.room - pinned - (behind if behind <= BEHIND * (draft.room - pinned) else 0)


def _widest(draft: Draft) -> int:
    """The room if `clamp_output` lowers the reply to the floor, in tokens."""
    return replace(draft, reply=draft.floor if draft.reply is None else min(draft.reply, draft.floor)).room


def _trimmed(
    draft: Draft,
    params: Params,
    rooms: Sequence[int],
    sizes: Sequence[Size],
    claimed: Claims,
    *,
    later: bool = False,
) -> Draft:
    """The draft with each block shortened to its room.

    With `later`, blocks that are certain to fit their room are only marked: `Block.later` shortens them when needed.
    """

    def trimmed(place: int, block: Block, source: Source | None, room: int) -> Block:
        least = sizes[place].least
        if source is None or block.tokens <= (least if later else room):
            return block
        unclaimed = replace(source, claimed={}) if source.claimed else source

        def made(room: int) -> Block:  # what is claimed has no room any more where a cut has released it
            return _block(block, source if room >= least else unclaimed, draft, params, room, capped=room <= least)

        first = claimed.first[place].least
        if later and _is_sure(block, first):
            return replace(block, later=made, most=room, least=first, claimed=tuple(claimed.leasts.get(place, ())))
        return made(room)

    asked = sources(draft.blocks, following=True, tools=draft.definitions.arguments, claimed=claimed.results)
    blocks = [trimmed(*each) for each in zip(range(len(rooms)), draft.blocks, asked, rooms, strict=True)]
    return draft if all(a is b for a, b in zip(blocks, draft.blocks, strict=True)) else draft.with_blocks(blocks)


def _is_sure(block: Block, room: int) -> bool:
    """Whether a block certainly fits its room once shortened: its results are texts, and the room is large enough."""
    results = [m for m in block.messages if m.answers and m.tokens > FRAME + LEAST]
    least = block.tokens - sum(m.tokens - FRAME - LEAST for m in results)
    return least <= room < block.tokens and all(any(part.whole for part in m.parts()) for m in results)


def _capped(
    block: Block, cap: int, cap_chars: int | None, meter: Meter, claimed: Mapping[str, ResultClaim] = NOTHING
) -> int:
    """The tokens of the block with each of its results shortened to the cap, or to what is claimed of it."""
    least = block.tokens
    for message in block.messages:
        for call, cost in costs_of_results(message, meter):
            most = cap
            if cap_chars is not None:
                share = min(1.0, cap_chars * max(1, len(message.answers)) / max(1, len(message.raw)))
                most = min(cap, max(LEAST + FRAME, int(share * cost)))
            least -= max(0, cost - max(most, _needed(claimed.get(call), cost)))
    return least


def _needed(claim: ResultClaim | None, cost: int) -> int:
    """The tokens that a claimed result needs of its cost: beside what is claimed, notes and the outline of the rest."""
    if claim is None:
        return 0
    return cost if claim.whole else min(cost, FRAME + int(AROUND * claim.tokens) + OUTLINE)


def _left_whole(blocks: Sequence[Block], newest: int) -> frozenset[int]:
    places = [i for i, b in enumerate(blocks) if b.has_results]
    return frozenset(places[len(places) - newest :]) if newest else frozenset()


def _block(block: Block, source: Source, draft: Draft, params: Params, room: int, *, capped: bool) -> Block:
    """The block shortened to `room` tokens. `capped`: the room is the least, so that the caps of characters and rows
    hold. A second time where escaped texts cost more than they were counted for."""
    params = params if capped else replace(params, cap_chars=None, preview=None)
    made = _shortened(block, source, draft, params, room)
    over = made.tokens - room
    return _shortened(block, source, draft, params, room - over - over // 8) if 0 < over < room // 2 else made


def _shortened(block: Block, source: Source, draft: Draft, params: Params, room: int) -> Block:
    """The block shortened to about `room` tokens. Small results stay whole; the large ones get equal shares, but what
    is claimed comes first."""
    results = [each for m in block.messages for each in costs_of_results(m, draft.meter)]
    costs = [cost for _, cost in results]
    least = [_needed(source.claimed.get(call), cost) for call, cost in results]
    allowance = allowances(costs, room - (sum(m.tokens for m in block.messages) - sum(costs)), least)
    given, alone = iter(allowance), len(allowance) == 1
    messages = tuple(_message(m, source, draft, params, given, alone) for m in block.messages)
    if all(a is b for a, b in zip(messages, block.messages, strict=True)):
        return block
    trimmed = replace(block, messages=draft.recount(messages))
    return trimmed if trimmed.tokens < block.tokens else block


def allowances(costs: Sequence[int], room: int, least: Sequence[int] = ()) -> tuple[int, ...]:
    """The tokens for each result, at most `room` in total: first what each needs at least, as far as it is there, then
    the same for all. Small results stay whole."""
    shares = [0] * len(costs)
    left = max(0, room)
    for i, needed in enumerate(least):
        shares[i] = min(needed, costs[i], left)
        left -= shares[i]
    order = sorted(range(len(costs)), key=lambda i: costs[i] - shares[i])
    for rank, i in enumerate(order):
        more = min(costs[i] - shares[i], left // (len(costs) - rank))
        shares[i] += more
        left -= more
    return tuple(shares)


def _message(
    message: Message, source: Source, draft: Draft, params: Params, given: Iterator[int], alone: bool
) -> Message:
    """The message with each of its results shortened to the next of the given allowances."""
    allowed = [(call, cost, next(given)) for call, cost in costs_of_results(message, draft.meter)]
    capped = params.cap_chars is not None and len(message.raw) > params.cap_chars
    long = [(c, cost, most) for c, cost, most in allowed if cost > most or (capped and c not in source.claimed)]
    if not long:
        return message
    parts, meter, names = parts_of_results(message), draft.meter, params.arguments
    limits = {call: _for_text(parts[call], meter, cost, allowance, alone) for call, cost, allowance in long}
    ours = {call: limit for call, limit in limits.items() if call in source.claimed}
    others = {call: limit for call, limit in limits.items() if call not in ours}
    if others:
        cap_chars, preview = params.cap_chars, params.preview
        message = shorten_results(message, others, source, meter, cap_chars=cap_chars, preview=preview, names=names)
    if ours:  # no cap of characters or rows holds for what is claimed
        why = f"{RESULT_WHY}; kept: {', '.join(sorted({source.claimed[call].reason for call in ours}))}"
        short = shorten_results(message, ours, source, meter, names=names, why=why)
        # A note that says who cut takes no room from what is claimed.
        message = short if short is message else replace(short, again=None)
    return message


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
