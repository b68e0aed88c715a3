"""Drops whole blocks of old history: keeps pinned blocks, the newest, and older ones relevant to the question.

A cut stays in the same place over many turns (section 5).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from msgspec.structs import replace

from proxy.fit.blocks import closings
from proxy.fit.claims.claims import ORDERS, places_of, raised_results, room_for_claims
from proxy.fit.claims.orders import shortened
from proxy.fit.claims.reasons import KEPT
from proxy.fit.dropping import OLD, drops, lost, ranked, without
from proxy.fit.held_quotes import held_quotes
from proxy.fit.layout import LAYOUTS, STABLE, layout_of
from proxy.fit.less_reply import as_asked, with_less_reply
from proxy.fit.long_texts import EXCERPTED
from proxy.fit.quotes import CHANGES, with_quotes
from proxy.fit.relevance.history.blocks import REUSE
from proxy.fit.relevance.history.changes import changing
from proxy.fit.relevance.history.cut import BRIEF, Marks
from proxy.fit.relevance.history.embedding_scores import likeness
from proxy.fit.relevance.history.replay import NO_CLAIMS, Claimed, lasting, replay
from proxy.fit.relevance.history.rooms import Size, low_of, size_of
from proxy.fit.relevance.history.turns import choose_turns, rank_turns
from proxy.fit.relevance.results.messages import brief_block, brief_cost
from proxy.fit.relevance.results.read_on import NO_NAMES, ArgumentNames
from proxy.fit.relevance.results.sources import sources
from proxy.fit.relevance.text.question import Question, question_of
from proxy.fit.relevance.text.reading import read_message
from proxy.model.claims import Reason, ResultClaim
from proxy.model.conversation import Block, Kind
from proxy.model.plan import Draft, Facts, Want

T = TypeVar("T")
OLDER, MOST_OLDER = 1.2, 0.9  # of `recall`, and of the room at most, for older turns or blocks (measured)
NEWEST = 0.1  # share of the room that the newest turns of a chat get first (measured), ...
FOLLOWED = 0.2  # ... and if the question is a follow-up, which refers to them
HIGHEST = 1 + REUSE  # the largest worth of an older block of a run
EMPTY = 0.2  # share of the room that may stay empty in layout `best` while something was dropped
READY = 0.70  # the load from which embeddings are fetched ahead


@dataclass(frozen=True, slots=True)
class Params:
    """`low`: the depth of a cut, as a share of the room that is not pinned. The rest of it is freed, and the same share
    of the margin of estimates, so that a cut lasts as long as with exact counts. `target`: instead of `low`, a fixed
    share of what is available for history (seed 000); every request is cut again.

    `max_messages`, `keep_last`: if there are more than `max_messages` messages, keep the pinned ones and the newest
    `keep_last` (seed 004). `min_messages`: how many messages stay in any case (seed 000). `budget`: the most tokens of
    the history, newest whole blocks first (seed 002), even if more would fit.

    `recall`: the share of the room for older blocks by relevance; 0 keeps only the newest. `layout`: `stable` keeps the
    same blocks for many turns, so that the provider's prompt cache stays valid; `best` chooses again for every
    question; empty means `best` if there are no tools and the provider is known not to cache. `embeddings`: the model
    whose embeddings contribute to the relevance of older turns of a chat; empty: none. `arguments`: names of tools'
    arguments by which a call can be repeated for what its short form lacks (`rules/tools.toml`).
    """

    low: float = 0.65
    target: float | None = None
    max_messages: int | None = None
    keep_last: int | None = None
    min_messages: int = 1
    recall: float = 0.0
    layout: str = ""
    budget: int | None = None
    embeddings: str = ""
    arguments: ArgumentNames = NO_NAMES

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1:
            raise ValueError("low must be a share over 0 and at most 1")
        if self.target is not None and not 0 < self.target <= 1:
            raise ValueError("target must be a share over 0 and at most 1")
        if self.max_messages is not None and self.max_messages < 1:
            raise ValueError("max_messages must be at least 1")
        if self.keep_last is not None and not 1 <= self.keep_last <= (self.max_messages or self.keep_last):
            raise ValueError("keep_last must be at least 1 and not more than max_messages")
        if self.budget is not None and self.budget < 1:
            raise ValueError("budget must be at least 1 token")
        if self.min_messages < 0:
            raise ValueError("min_messages must not be negative")
        if not 0 <= self.recall < 1:
            raise ValueError("recall must be a share of at least 0 and under 1")
        if self.layout not in LAYOUTS:
            raise ValueError("layout must be stable or best")

    @property
    def ready(self) -> float | None:
        """The load from which the step fetches embeddings ahead; None if it uses none."""
        return READY if self.embeddings and self.recall else None


def history_budget(window: int, reserve: int, fixed: int, target: float) -> int:
    """Seed 000's budget for the history, in tokens: a share of the window without reply, system prompt and tools."""
    return math.floor(target * (window - reserve - fixed))


def apply(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft without the dropped blocks, or a `Want` for the embeddings that are needed to choose them."""
    if draft.prompt <= draft.room or not _only_weighs(draft, params):
        draft = draft.made()
    kept = set(range(len(draft.blocks)))
    why: dict[int, str] = {}
    if params.max_messages is not None:
        most = params.keep_last or params.max_messages
        kept = newest_messages(draft.blocks, params.max_messages, most)
        draft, kept = _with_claimed(draft, facts, kept)
        why = {i: f"older than the newest {most:,} messages" for i in range(len(draft.blocks)) if i not in kept}
    target = None if params.target is None else _target(draft, params.target)
    for budget in (params.budget, target):
        if budget is not None:
            kept &= newest_within(draft.blocks, kept, budget, params.min_messages)
            less = f"{OLD} in the {budget:,} tokens for history"
            why |= {i: why.get(i, less) for i in range(len(draft.blocks)) if i not in kept}
    if target is None and (_cost(draft, kept) > draft.room or any(block.later for block in draft.blocks)):
        return _cut(without(draft, kept, why), facts, params)
    return without(draft, kept, why)


def ahead(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The `Want` for embeddings of the present messages, to fetch in the background.

    Returns the same draft if no embeddings are used or none are missing.
    """
    question = question_of(draft.blocks)
    if question is None or not _by_relevance(draft, params):
        return draft
    wanted = _alike(draft.blocks, question, facts, params)
    return wanted if isinstance(wanted, Want) else draft


def _cut(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft cut to its room."""
    layout = _by_relevance(draft, params)
    if layout == STABLE and any(block.user is not None and block.user.index >= 0 for block in draft.blocks):
        return _with_excerpts(draft, facts, params)
    question = question_of(draft.blocks) if layout else None
    if question is None:
        lowered = with_less_reply(draft)
        made = _replayed(lowered, facts, params)
        return draft if made is lowered else as_asked(made, draft)
    return _best(draft, facts, params, question)


def _only_weighs(draft: Draft, params: Params) -> bool:
    """Whether estimated costs of deferred blocks are enough: a replay ranks many blocks and keeps few."""
    counts = params.budget is not None or params.target is not None
    return not counts and params.recall > 0 and not _by_relevance(draft, params)


def _by_relevance(draft: Draft, params: Params) -> str:
    """The layout of blocks chosen by relevance; empty if a run with tools is replayed or only the newest are kept."""
    return layout_of(draft, params.layout) if params.recall else ""


def _others(blocks: Sequence[T], question: Question) -> list[T]:
    """All blocks but that of the question."""
    return [*blocks[: question.place], *blocks[question.place + 1 :]]


def _alike(
    blocks: Sequence[Block | None], question: Question, facts: Facts, params: Params
) -> list[float] | Want | None:
    """The similarity of each other block to the question, by embeddings (see `likeness`)."""
    return likeness(_others(blocks, question), question, params.embeddings, facts)


def _scores(blocks: Sequence[Block], question: Question, alike: Sequence[float] | None) -> list[float]:
    """The relevance of each block to the question, which itself has 0: 1 for the best."""
    turns = [tuple(map(read_message, block.messages)) for block in _others(blocks, question)]
    found = rank_turns(turns, question, alike=alike)
    return [*found[: question.place], 0.0, *found[question.place :]]


def _best(draft: Draft, facts: Facts, params: Params, question: Question) -> Draft | Want:
    """The draft with the newest blocks and the most relevant others, in their order, chosen for this question.

    Where more than `EMPTY` of the room is left because no dropped block fits, passages of these are quoted.
    """
    alike = _alike(draft.blocks, question, facts, params)
    if isinstance(alike, Want):
        return alike
    blocks, held = draft.blocks, _held(draft, facts)
    scores = _scores(blocks, question, alike)
    news = _news(draft, facts, scores, min(CHANGES * draft.room, draft.room - _cost(draft, held))).keys() - held
    held = held | news
    late = {i: cost for i, cost in _claimed(draft, facts).at(len(blocks) - 1).items() if cost and i not in held}
    late = late if sum(late.values()) <= draft.room - _cost(draft, held) else {}
    reserve = sum(late.values())
    newest = FOLLOWED if question.follows else NEWEST
    closing = closings([b.messages for b in blocks])
    worth = _chosen(draft, held, scores, newest, closing, reserve)
    while draft.room - reserve - _cost(draft, held | worth.keys()) > EMPTY * draft.room:
        room = draft.room - reserve - _cost(draft, held)
        dropped = [{i, closing.get(i, i)} - held for i in range(len(blocks)) if i not in held and i not in worth]
        fitting = [places for places in dropped if sum(blocks[i].tokens for i in places) <= room]
        if not fitting:
            break
        held = held | max(fitting, key=lambda places: (max(scores[i] for i in places), max(places)))
        worth = _chosen(draft, held, scores, newest, closing, reserve)
    kept = held | worth.keys()
    if len(kept) == len(blocks):
        return draft
    lines = {i: _with_lines(blocks[i], draft, facts) for i in late if i not in kept}
    kept = kept | lines.keys()
    why = dict.fromkeys(news, f"{KEPT}{Reason.CHANGED}")
    stay = [lines.get(i) or _because(b, worth.get(i, 0.0), why.get(i, "")) for i, b in enumerate(blocks) if i in kept]
    least = min([score for score in worth.values() if score > 0], default=None)  # the newest are chosen with 0
    gone = {i: ranked(scores[i], least, blocks[i].tokens) for i in range(len(blocks)) if i not in kept}
    made = draft.with_blocks(stay, drops(blocks, kept, gone))
    if made.room - made.prompt <= EMPTY * made.room:
        return made
    return with_quotes(made, blocks, {i: k for k, i in enumerate(sorted(kept))}, facts.original, question, alike)


def _chosen(
    draft: Draft,
    held: Collection[int],
    scores: Sequence[float],
    newest: float,
    closing: Mapping[int, int],
    reserve: int,
) -> dict[int, float]:
    """The places of the blocks that are chosen besides those that are held, with the score of each. `reserve`: tokens
    that stay free."""
    blocks = draft.blocks
    loose = [i for i in range(len(blocks)) if i not in held]
    at = {place: k for k, place in enumerate(loose)}
    needs = {at[i]: at[k] for i, k in closing.items() if i in at and k in at}
    costs = [blocks[i].tokens for i in loose]
    room = draft.room - reserve - _cost(draft, held)
    chosen = choose_turns([scores[i] for i in loose], costs, room, newest=newest, closing=needs)
    return {loose[place]: score for place, score in chosen.items()}


def _with_claimed(draft: Draft, facts: Facts, kept: set[int]) -> tuple[Draft, set[int]]:
    """The places that are kept, and those of what is claimed; the draft, in which claimed lines of a message that
    would go are all of it."""
    if len(kept) == len(draft.blocks):
        return draft, kept
    claimed = _claimed(draft, facts)
    typed = claimed.at(len(draft.blocks) - 1)
    lines = {i: _with_lines(draft.blocks[i], draft, facts) for i, enough in typed.items() if enough and i not in kept}
    if lines:
        draft = draft.with_blocks([lines.get(i, block) for i, block in enumerate(draft.blocks)])
    return draft, kept.union(typed, claimed.results.held(len(draft.blocks) - 1, -1))


def _held(draft: Draft, facts: Facts) -> set[int]:
    """The places of the blocks that stay: what is pinned and what is claimed, and excerpts, which were chosen for this
    question in competition with the turns."""
    pinned = {i for i, block in enumerate(draft.blocks) if block.pinned}
    claimed = _claimed(draft, facts)
    results = claimed.results.held(len(draft.blocks) - 1, -1)
    typed = {place for place, enough in claimed.at(len(draft.blocks) - 1).items() if not enough}
    for place in sorted(results | typed, reverse=True):
        if _cost(draft, pinned | {place}) <= draft.room:
            pinned = pinned | {place}
    excerpts = {i for i, block in enumerate(draft.blocks) if any(m.why == EXCERPTED for m in block.messages)}
    return pinned | excerpts if _cost(draft, pinned | excerpts) <= draft.room else pinned


def _because(block: Block, worth: float, why: str = "") -> Block:
    """The block with why it stays as the reason in its messages: its relevance, if nothing else is told."""
    why = why or (f"relevance {worth:.2f}" if worth > 0 else "")
    if not why:
        return block
    return replace(block, messages=tuple(m if m.why else replace(m, why=why) for m in block.messages))


def _replayed(draft: Draft, facts: Facts, params: Params, *, exact: bool = False) -> Draft:
    """The draft cut by two marks: the newest blocks, and the short forms of older ones that the run may need, in order.

    Costs of short forms are estimates, and only the blocks that stay are made. If they exceed the room, the cut is
    repeated with counted costs (`exact`).
    """
    blocks = [_weighed(block) for block in draft.blocks] if exact else draft.blocks
    asked = sources(blocks, tools=draft.definitions.arguments) if params.recall else []

    @cache
    def short(place: int) -> Block:
        if not asked:
            return blocks[place].made()
        return brief_block(blocks[place], asked[place], draft.meter, BRIEF, params.arguments)

    @cache
    def about(place: int) -> int:
        if not asked:
            return size_of(blocks[place]).least
        return brief_cost(blocks[place], asked[place], draft.meter, BRIEF, params.arguments)

    low, counting = low_of(draft, params.low), draft.meter.key
    marks = Marks(draft.room, draft.fixed, low, _older(params), exact=exact, counting=counting)
    found = replay(blocks, marks, (lambda place: short(place).tokens) if exact else about, _claimed(draft, facts))
    brief = found.brief(blocks)
    lines = {i: _with_lines(blocks[i], draft, facts) for i in brief if blocks[i].user is not None}
    claimed = {i: block for i, block in lines.items() if block is not blocks[i]}  # the others are rounds
    made = [
        _because(claimed.get(i, short(i)) if i in brief else blocks[i].within(cost), found.worth.get(i, 0.0) / HIGHEST)
        for i, cost in found.costs.items()
    ]
    if not exact and draft.fixed + sum(found.costs.values()) <= draft.room < draft.fixed + sum(b.tokens for b in made):
        return _replayed(draft, facts, params, exact=True)
    if len(made) == len(blocks) and all(a is b for a, b in zip(made, blocks, strict=True)):
        return draft
    return draft.with_blocks(made, drops(blocks, found.costs.keys(), lost(blocks, found.gone, HIGHEST)))


def _claimed(draft: Draft, facts: Facts) -> Claimed:
    """The blocks that are claimed: results from the block that claims them on, and what users typed."""
    claims = facts.claims
    if claims is None:
        return NO_CLAIMS
    room = room_for_claims(draft, facts)
    places = cache(lambda: places_of(draft.blocks))

    def size(place: int, claim: ResultClaim) -> Size:
        known = size_of(draft.blocks[place])
        return Size(known.whole, dict(draft.blocks[place].claimed).get(claim.since, known.least))

    def typed(place: int) -> dict[int, int]:
        newest = max([m.index for m in draft.blocks[place].messages], default=-1)
        standing = claims.standing(room, newest).messages
        known = places() if standing else {}
        return {known[i]: claim.tokens if claim.spans else 0 for i, claim in standing.items() if i in known}

    return Claimed(raised_results(draft, facts, size), typed)


def _with_lines(block: Block, draft: Draft, facts: Facts) -> Block:
    """A user's block with the lines of its message that are claimed."""
    message = block.messages[0]
    spans = facts.claims.order_lines(message.index) if facts.claims is not None and len(block.messages) == 1 else ()
    return replace(block, messages=draft.recount((shortened(message, spans),))) if spans else block


def _older(params: Params) -> float:
    """The share of the room for what is chosen by relevance. With `recall` 0.5 that is more than a half, because it is
    rarely full."""
    return min(MOST_OLDER, OLDER * params.recall)


def _weighed(block: Block) -> Block:
    """The block with its exact tokens. It stays deferred: a short form is made of what the client sent."""
    if block.later is None:
        return block
    least = block.later(block.least).tokens
    claimed = tuple((since, block.later(room).tokens) for since, room in block.claimed)
    return replace(block, most=claimed[-1][1] if claimed else least, least=least, claimed=claimed)


def _with_excerpts(draft: Draft, facts: Facts, params: Params) -> Draft | Want:
    """The draft with the newest turns by two marks, and excerpts of older turns in the rest of the room.

    The excerpts are one message before the question, which differs from turn to turn, and, of what was asked at the
    last cut, another one that stays until the next cut. Embeddings are compared of the turns that the last deep cut
    dropped: until the next one these are the same turns, so that a new turn needs the embedding of its question alone,
    and what is kept in place follows from no embedding.
    """
    blocks = draft.blocks
    always = draft.fixed + sum(blocks[i].tokens for i in lasting(blocks))
    window = always + int((1 - _older(params)) * max(0, draft.room - always))
    marks = Marks(window, draft.fixed, low_of(draft, params.low), 0.0, counting=draft.meter.key)
    found = replay(blocks, marks, lambda place: blocks[place].tokens, _claimed(draft, facts))
    kept, brief = found.costs, found.brief(blocks)
    stay = [_with_lines(blocks[place], draft, facts) if place in brief else blocks[place] for place in kept]
    gone = drops(blocks, kept, lost(blocks, found.gone, HIGHEST))
    made = draft if len(kept) == len(blocks) and not brief else draft.with_blocks(stay, gone)
    places = {place: number for number, place in enumerate(kept) if place not in brief}
    dropped = [None if place in kept else block for place, block in enumerate(blocks)]
    held = held_quotes(blocks, kept, found.at, draft.room)  # before the question: its index then grows from this one
    question = question_of(blocks)
    if question is None:
        return made
    alike = _alike(dropped, question, facts, params)
    if isinstance(alike, Want):
        return alike
    orders, changes = _orders_now(draft, facts, kept), _changes(draft, facts)
    return with_quotes(
        made, blocks, places, facts.original, question, alike=alike, first=orders, changes=changes, held=held
    )


def _changes(draft: Draft, facts: Facts) -> set[int]:
    """The places of the blocks with signs of a change."""
    changes = facts.claims.changes() if facts.claims is not None else frozenset()
    if not changes:
        return set()
    return {place for place, block in enumerate(draft.blocks) if any([m.index in changes for m in block.messages])}


def _news(draft: Draft, facts: Facts, scores: Sequence[float], room: float) -> dict[int, float]:
    """The places of the blocks that may change what the best blocks say, with their worth, in at most `room` tokens."""
    places = _changes(draft, facts)
    found: dict[int, float] = {}
    for worth, place in changing(places, lambda i: draft.blocks[i].messages[0].own_text(), scores, len(places)):
        if draft.blocks[place].tokens <= room:
            room -= draft.blocks[place].tokens
            found[place] = worth
    return found


def _orders_now(draft: Draft, facts: Facts, kept: Collection[int]) -> dict[int, tuple[tuple[int, int], ...]]:
    """The places of the orders that are not kept and that the question claims, with the lines that are enough."""
    claims = facts.claims
    if claims is None:
        return {}
    room = room_for_claims(draft, facts)
    standing = claims.standing(room).messages.values()
    places = places_of(draft.blocks) if standing else {}
    wanted = [claim for claim in standing if claim.index in places]
    left = ORDERS * room - sum(claim.tokens for claim in wanted if places[claim.index] in kept)
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for claim in wanted:
        if places[claim.index] not in kept and claim.tokens <= left:
            left -= claim.tokens
            found[places[claim.index]] = claim.spans
    return found


def _cost(draft: Draft, kept: Iterable[int]) -> int:
    return draft.fixed + sum(draft.blocks[i].tokens for i in kept)


def _target(draft: Draft, target: float) -> int:
    """The budget for the history in tokens, at most what fits."""
    fixed = draft.fixed + sum(b.tokens for b in draft.blocks if b.messages[0].kind is Kind.INSTRUCTION)
    return min(history_budget(draft.window.tokens, draft.held, fixed, target), draft.room - fixed)


def newest_messages(blocks: Sequence[Block], most: int, keep: int) -> set[int]:
    """Seed 004: with more than `most` messages, keeps the pinned and the newest `keep` messages, whole blocks only."""
    if sum(len(b.messages) for b in blocks) <= most:
        return set(range(len(blocks)))
    kept, left = {i for i, b in enumerate(blocks) if b.pinned}, keep
    for i in reversed(range(len(blocks))):
        left -= len(blocks[i].messages)
        if left >= 0:
            kept.add(i)
    return kept


def newest_within(blocks: Sequence[Block], kept: set[int], budget: int, least: int) -> set[int]:
    """Seed 000: keeps the newest blocks until the budget is used. Pinned blocks count first and always stay."""
    chosen = {i for i in kept if blocks[i].pinned}
    history = [i for i in kept if blocks[i].messages[0].kind is not Kind.INSTRUCTION]
    used = sum(blocks[i].tokens for i in history if i in chosen)
    count = sum(len(blocks[i].messages) for i in history if i in chosen)
    for i in sorted(set(history) - chosen, reverse=True):
        if used + blocks[i].tokens > budget and count >= least:
            break
        chosen.add(i)
        used += blocks[i].tokens
        count += len(blocks[i].messages)
    return chosen
