"""Cuts an agent's run with two marks, so that the cut stays in the same place over many turns. It drops nothing itself.

Theory of operation
===================

Providers bill a repeated prefix of a prompt at a fraction of its price, so a cut must not move at every turn. The upper
mark is the room: as long as the run fits, nothing is cut. When it no longer fits, it is cut to the lower mark, a share
`low` of the room that is not pinned: part of that for the newest blocks, the rest for older blocks that are relevant to
the current task. The cut then stays until the room is exceeded again. The next cut keeps the older blocks of this one
and adds to them while there is room, so that the prompt still begins as before; then they are chosen anew, but for the
first of them, and those that stayed before are preferred.

No state is needed for that: the run is replayed from its start with the token counts of its blocks, and every cut is
made again as it was made then. A cut depends only on the blocks up to it, so every replica and every later turn cuts in
the same place. Cuts are cached, which only saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heapreplace

from proxy.fit.blocks import closings, have_results
from proxy.fit.relevance.history.blocks import ACTIONS, COST_EXPONENT, NEW, News, Reuse, asked_now, rank_blocks
from proxy.fit.relevance.history.rooms import (
    NONE_RAISED,
    Bounds,
    Raised,
    Size,
    arrival,
    fresh_results,
    lower,
    lower_mark,
    raised,
    size_of,
)
from proxy.fit.relevance.text.bm25 import Document, Index, acquire_index, release_index
from proxy.fit.relevance.text.reading import Reading, read_message
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Kind

BRIEF = 150  # tokens of a result in its short form (measured)
FILL = 0.85  # of the lower mark, up to which a cut gives older results what it leaves free (measured)
WHOLE = 4  # the newest blocks, whose results stay whole; older ones are kept in their short form (measured)
FILLED = 0.8  # share of their room that a new choice of older blocks fills; the cuts after it add to them (measured)
FIRST = 0.3  # share of a new choice of older blocks for the first ones of the choice before it (measured)
STAYS = 3.0  # times the value of older blocks that were chosen before, so that fewer of them change (measured)
LATER = 1000  # characters used of a result that is not shortened yet (measured: 6,000 gain hardly more)
CUTS, CUTS_BYTES = 4096, 8 << 20  # cached
PLACE = 150  # bytes of a cut for each block in it


@dataclass(frozen=True, slots=True)
class Marks:
    """The parameters of a cut. `room`: tokens over which a cut is made, of which `fixed` are taken by tools and the
    like. `low`: the share of what is not pinned to which it is cut. `recalled`: the share of that for older blocks by
    value; 0 keeps the newest only. `brief`: tokens of a result in its short form; `exact`: whether the short forms'
    tokens were counted instead of estimated."""

    room: int
    fixed: int
    low: float = 0.65
    recalled: float = 0.5
    brief: int = BRIEF
    exact: bool = False

    @property
    def bounds(self) -> Bounds:
        """Those of the rooms of results."""
        return Bounds(self.room, self.fixed, self.low)


@dataclass(frozen=True, slots=True)
class Kept:
    """The blocks that stay. `costs`: index -> tokens in the form in which the block stays, in order. `worth`: index of
    an older block -> the value for which it was chosen (1 for the best match without reuse). `held`: those whose
    results are claimed. `at`: the block with which the run passed the room the last time; -1 if it never did."""

    costs: Mapping[int, int]
    worth: Mapping[int, float]
    held: frozenset[int] = frozenset()
    at: int = -1

    def brief(self, blocks: Sequence[Block]) -> frozenset[int]:
        """The indices of the blocks that stay in their short form."""
        return frozenset(place for place, cost in self.costs.items() if cost < size_of(blocks[place]).least)


NOTHING = Kept({}, {})


def never(place: int) -> Mapping[int, int]:
    """No place."""
    return {}


@dataclass(frozen=True, slots=True)
class Claimed:
    """The places of blocks that cuts keep because they are claimed (DESIGN 5a). `results`: those with claimed results.
    `at`: others, by a cut that is made at a place, with the tokens of the form that is enough of each, 0 if only all of
    it is; it may depend on the blocks up to there alone."""

    results: Raised = NONE_RAISED
    at: Callable[[int], Mapping[int, int]] = never


NO_CLAIMS = Claimed()
NOTHING_CLAIMED: Mapping[int, int] = {}
CUT: Bounded[int, Kept] = Bounded(CUTS, CUTS_BYTES)


def replay(blocks: Sequence[Block], marks: Marks, brief: Callable[[int], int], claimed: Claimed | None = None) -> Kept:
    """The blocks that are left after the last cut. `brief` returns the tokens of a block's short form; it must depend
    only on the blocks up to that one. `claimed`: what cuts keep besides the lasting blocks. Linear time; cached cuts
    are not made again."""
    claimed = claimed or NO_CLAIMS
    raises, bounds = claimed.results.raises, marks.bounds
    pins, shrinks = lasting(blocks), have_results(blocks)
    first = [size_of(block) for block in blocks]
    sizes = list(first)
    numbers = _numbers(blocks, marks, pins, sizes, claimed)
    start, kept = next(
        ((i + 1, cut) for i in range(len(blocks) - 1, -1, -1) if (cut := CUT.get(numbers[i]))), (0, NOTHING)
    )
    seen = _Replayed(blocks)
    before = start - 1
    live = dict(kept.costs)
    given = set(kept.held)  # what is claimed of results
    for place in sorted(place for place in raises if place < start):
        raised({}, sizes, {target: size for target, size in raises[place].items() if target in given})
    used = marks.fixed + sum(live.values())
    for place in range(start, len(blocks)):
        live[place] = arrival(sizes[place], used, bounds) if before >= 0 else sizes[place].whole
        used += live[place]
        if place in raises:
            used += raised(live, sizes, raises[place])
            given |= raises[place].keys()
            live = {p: live[p] for p in sorted(live)}
        if used > marks.room:
            held = claimed.results.held(place, before)
            before = place
            for released in given - held:
                sizes[released] = first[released]
            given &= held
            costs = _lowered(blocks, live, pins | given, marks, sizes) if shrinks else live
            if marks.fixed + sum(costs.values()) <= marks.room:
                kept = Kept(costs, kept.worth, frozenset(given))
            else:
                kept = _cut(seen, costs, pins, marks, brief, kept, _ordered(claimed.at(place), given))
                kept = _raised(blocks, kept, costs, marks, sizes) if shrinks else kept
                kept = Kept(kept.costs, kept.worth, frozenset(given))
            CUT.put(numbers[place], kept, PLACE * (1 + len(kept.costs) + len(kept.worth)))
            live = dict(kept.costs)
            used = marks.fixed + sum(live.values())
    seen.close()
    return Kept(live, kept.worth, at=before)


def _lowered(
    blocks: Sequence[Block], live: Mapping[int, int], pins: Set[int], marks: Marks, sizes: Sequence[Size]
) -> dict[int, int]:
    """The blocks with their results shortened, the oldest first, down to the lower mark or to their least. If that is
    not enough, the newest results get no more than they would beside others."""
    rooms = dict(live)
    order = sorted(rooms)
    place, fresh = order[-1], fresh_results(blocks, order)
    user = next((p for p in reversed(order) if blocks[p].user is not None), place)
    stays = marks.fixed + sum(cost for p, cost in rooms.items() if p in pins or p in (place, fresh, user))
    excess = marks.fixed + sum(rooms.values()) - lower_mark(marks.room, stays, marks.low)
    lower(rooms, [p for p in rooms if p < fresh], sizes, excess)
    if marks.fixed + sum(rooms.values()) > marks.room and fresh in rooms:
        rooms[fresh] = min(rooms[fresh], arrival(sizes[fresh], marks.room, marks.bounds))
    return rooms


def _raised(blocks: Sequence[Block], kept: Kept, live: Mapping[int, int], marks: Marks, sizes: Sequence[Size]) -> Kept:
    """The same with what a cut leaves free up to the lower mark: for the newest results, then for those before them."""
    costs = dict(kept.costs)
    used = marks.fixed + sum(costs.values())
    fresh = fresh_results(blocks, sorted(costs))
    if fresh in costs:
        used -= costs[fresh]
        costs[fresh] = max(costs[fresh], arrival(sizes[fresh], used, marks.bounds))
        used += costs[fresh]
    for place in reversed(costs):
        more = live[place] - costs[place]
        if 0 < more <= FILL * marks.low * marks.room - used and blocks[place].has_results:
            costs[place] += more
            used += more
    return Kept(costs, kept.worth)


def lasting(blocks: Sequence[Block]) -> set[int]:
    """The indices of the blocks that every cut keeps: instructions, the first user message, and what the client pinned.
    Blocks that are pinned only because they are the last are excluded: they were not the last for earlier cuts."""
    first = next((i for i, block in enumerate(blocks) if block.user is not None), -1)
    last = next((i for i in range(len(blocks) - 1, first, -1) if blocks[i].user is not None), first)
    found = [i for i, b in enumerate(blocks) if b.pinned or b.messages[0].kind is Kind.INSTRUCTION]
    newest = (last, len(blocks) - 1)
    lasting = {i for i in found if i not in newest or blocks[i].messages[0].kind is Kind.INSTRUCTION}
    return lasting | {first} if first >= 0 else lasting


def _ordered(typed: Mapping[int, int], results: Iterable[int]) -> dict[int, int]:
    """What is claimed, with the tokens that are enough: what users typed first, for it is short; the newest first."""
    return {place: typed.get(place, 0) for place in [*sorted(typed, reverse=True), *sorted(results, reverse=True)]}


def _numbers(
    blocks: Sequence[Block], marks: Marks, pins: Set[int], sizes: Sequence[Size], claimed: Claimed
) -> list[int]:
    """A cache key for each beginning of the run: a hash of its blocks, its pins, its claims and the marks."""
    number, found = hash(marks), []
    for place, block in enumerate(blocks):
        claims = tuple(claimed.results.raises[place].items()) if place in claimed.results.raises else ()
        number = hash((number, sizes[place], place in pins, claims, *[message.raw for message in block.messages]))
        found.append(number)
    return found


class _Replayed:
    """The readings, index and reuse of the blocks up to the current one. Computed when a cut needs them."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.closing = closings([block.messages for block in blocks])
        self._documents: list[Document] = []
        self._reuse = Reuse()
        self._index: Index | None = None

    def upto(self, count: int) -> tuple[Index, Reuse]:
        """Index and reuse of the first `count` blocks."""
        new = [_read(block) for block in self.blocks[len(self._documents) : count]]
        for place, document in enumerate(new, len(self._documents)):
            self._reuse.add(document, _spoken(self.blocks[place], document))
        self._documents += new
        if self._index is None:
            self._index = acquire_index(self._documents)
        else:
            for document in new:
                self._index.add(document)
        return self._index, self._reuse

    def spoken(self, place: int) -> list[Reading]:
        """The readings of the assistant's messages in a block."""
        return _spoken(self.blocks[place], self._documents[place])

    def news(self, kept: Mapping[int, int], places: Iterable[int]) -> News:
        """What these blocks would tell besides the kept ones (index -> tokens). A short form surely has no more than
        what the assistant said."""
        _, reuse = self.upto(max(kept) + 1)
        known = set[str]()
        for place, cost in kept.items():
            known |= reuse.named[place]
            if cost >= size_of(self.blocks[place]).least:
                known.update([name for reading in self._documents[place] for name in reading.names])
        return News(reuse, known, places)

    def user(self, place: int) -> Reading:
        """The reading of the first user message in a block."""
        kinds = [message.kind for message in self.blocks[place].messages]
        return self._documents[place][kinds.index(Kind.USER)]

    def close(self) -> None:
        """Releases the index for the next replay."""
        if self._index is not None:
            release_index(self._index)


def _read(block: Block) -> Document:
    """The readings of a block; of results that are not shortened yet only the beginning."""
    if block.later is None:
        return tuple(map(read_message, block.messages))
    return tuple(read_message(m, LATER) if m.answers else read_message(m) for m in block.messages)


def _spoken(block: Block, document: Document) -> list[Reading]:
    return [
        reading for message, reading in zip(block.messages, document, strict=True) if message.kind is Kind.ASSISTANT
    ]


def _cut(
    seen: _Replayed,
    live: Mapping[int, int],
    pins: Set[int],
    marks: Marks,
    brief: Callable[[int], int],
    before: Kept,
    claimed: Mapping[int, int] = NOTHING_CLAIMED,
) -> Kept:
    """The blocks that stay. Those that are `claimed` come first, in that order, as far as they fit, some in a form that
    is enough (place -> its tokens, 0: whole) unless they are among the newest. The older ones that
    the cut `before` chose stay as they are while they leave room for others: the prompt then begins as before. Else all
    are chosen anew, and room is left for the next cut."""
    users = [place for place in live if seen.blocks[place].user is not None]
    last = max(live)
    kept = {p: cost for p, cost in live.items() if p in pins or p == last or p in users[-1:]}
    room = int(marks.low * max(0, marks.room - marks.fixed - sum(kept.values())))

    def short(place: int) -> int:
        return min(live[place], brief(place))

    def own(place: int) -> int:  # an answer is shortened only if it stays just to close its round
        return short(place) if seen.blocks[place].has_results else live[place]

    late: dict[int, int] = {}
    for place, enough in claimed.items():
        if enough and place in live and place not in kept:
            cost = min(live[place], enough)
            late |= {place: cost} if cost <= room else {}
            room -= late.get(place, 0)
            continue
        wanted = {place: live[place]} if place in live and place not in kept else {}
        after = seen.closing.get(place) if wanted else None
        if after is not None and after in live and after not in kept:
            wanted[after] = short(after)
        if sum(wanted.values()) <= room:
            kept |= wanted
            room -= sum(wanted.values())
    newest = _newest(live, kept, int(room * (1 - marks.recalled)), own)
    kept |= newest
    kept |= {place: cost for place, cost in late.items() if place not in kept}
    older = [place for place in live if place not in kept]
    worth = _worth(seen, live, users, older) if marks.recalled and older else {}
    left = room - sum(newest.values())

    def closer(place: int, blocks: Mapping[int, float]) -> dict[int, int]:
        after = seen.closing.get(place)
        return {after: short(after)} if after is not None and after in blocks else {}

    held = {place: live[place] for place in before.worth if place in worth}
    for place in tuple(held):
        held = closer(place, worth) | held
    value = dict(worth)
    if sum(held.values()) > FILLED * left:
        left = int(FILLED * left)
        value |= {place: STAYS * worth[place] for place in held}
        held = _first(before.worth.keys() & held.keys(), held, partial(closer, blocks=worth), int(FIRST * left))
    kept |= held
    loose = {place: worthy for place, worthy in value.items() if place not in held}
    if loose:
        news = seen.news(kept, loose)
        order = _best_first(loose, live, news)
        kept |= _recalled(order, left - sum(held.values()), own, partial(closer, blocks=loose), news.keep)
    chosen = {place: worth[place] for place in kept if place in loose}
    worth = chosen | {place: before.worth.get(place, worth[place]) for place in held}
    return Kept({p: kept[p] for p in sorted(kept)}, {p: worth[p] for p in sorted(worth)})


def _newest(live: Mapping[int, int], kept: Mapping[int, int], room: int, own: Callable[[int], int]) -> dict[int, int]:
    """The newest blocks that fit, index -> tokens: the first `WHOLE` as they are, then rounds in their short form."""
    found: dict[int, int] = {}
    for place in (p for p in reversed(live) if p not in kept):
        cost = live[place] if len(found) < WHOLE else own(place)
        if cost > room:
            break
        found[place] = cost
        room -= cost
    return found


def _first(
    places: Iterable[int], held: Mapping[int, int], closer: Callable[[int], Mapping[int, int]], room: int
) -> dict[int, int]:
    """The first of these blocks, each with the block that closes its round, index -> tokens: as many as fit."""
    found: dict[int, int] = {}
    for place in sorted(places):
        more = {one: held[one] for one in (place, *closer(place)) if one not in found}
        room -= sum(more.values())
        if room < 0:
            break
        found |= more
    return found


def _worth(seen: _Replayed, live: Mapping[int, int], users: Sequence[int], older: Sequence[int]) -> dict[int, float]:
    """The values of the older blocks for the current task."""
    index, reuse = seen.upto(max(live) + 1)
    user = seen.user(users[-1]) if users else None
    asked = asked_now(user, [seen.spoken(place) for place in list(live)[-ACTIONS:]], index)
    return rank_blocks(index, asked, reuse, older)


def _best_first(worth: Mapping[int, float], live: Mapping[int, int], news: News) -> Iterator[int]:
    """The older blocks of some value, the best for its cost first. The value of the others falls with `news`."""

    def key(place: int) -> tuple[float, int]:
        return -(worth[place] + NEW * news[place]) / max(1, live[place]) ** COST_EXPONENT, place

    waiting = [key(place) for place in worth]
    heapify(waiting)
    while waiting and waiting[0][0] < 0:
        now = key(waiting[0][1])
        if now > waiting[0]:
            heapreplace(waiting, now)
        else:
            yield heappop(waiting)[1]


def _recalled(
    order: Iterable[int],
    room: int,
    own: Callable[[int], int],
    closer: Callable[[int], Mapping[int, int]],
    keep: Callable[[int], None],
) -> dict[int, int]:
    """The older blocks that fit, index -> tokens, in that order of preference, rounds in their short form. With a round
    the block that closes it is kept (`closer`: its index and tokens), in its short form unless it is chosen itself.
    `keep` is called with each that is chosen."""
    found: dict[int, int] = {}
    for place in order:
        wanted = {place: own(place)}
        if wanted[place] - found.get(place, 0) > room:
            continue
        wanted |= {after: cost for after, cost in closer(place).items() if after not in found}
        cost = sum(wanted.values()) - found.get(place, 0)
        if cost <= room:
            found |= wanted
            room -= cost
            keep(place)
    return found
