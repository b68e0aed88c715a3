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

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from proxy.fit.blocks import have_results
from proxy.fit.relevance.history.cut import NO_VALUE, NOTHING, Gone, Kept, Marks, Replayed, cut
from proxy.fit.relevance.history.rooms import (
    NONE_RAISED,
    Raised,
    Size,
    arrival,
    fresh_results,
    lower,
    lower_mark,
    raised,
    size_of,
)
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Kind

FILL = 0.85  # of the lower mark, up to which a cut gives older results what it leaves free (measured)
CUTS, CUTS_BYTES = 4096, 8 << 20  # cached
PLACE = 150  # bytes of a cut for each block in it


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
        ((i + 1, known) for i in range(len(blocks) - 1, -1, -1) if (known := CUT.get(numbers[i]))), (0, NOTHING)
    )
    seen = Replayed(blocks)
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
                kept = Kept(costs, kept.worth, frozenset(given), gone=kept.gone)
            else:
                made = cut(seen, costs, pins, marks, brief, kept, _ordered(claimed.at(place), given))
                gone = (*kept.gone, _gone(costs, made, place))
                kept = _raised(blocks, made, costs, marks, sizes) if shrinks else made
                kept = Kept(kept.costs, kept.worth, frozenset(given), gone=gone)
            lost = len(kept.gone[-1].lost) if kept.gone else 0  # that of earlier cuts is theirs
            CUT.put(numbers[place], kept, PLACE * (1 + len(kept.costs) + len(kept.worth) + lost + len(kept.gone)))
            live = dict(kept.costs)
            used = marks.fixed + sum(live.values())
    seen.close()
    return Kept(live, kept.worth, at=before, gone=kept.gone)


def _gone(before: Iterable[int], made: Kept, place: int) -> Gone:
    """What a cut at a place dropped."""
    found = made.gone[-1]
    lost = {p: found.lost.get(p, NO_VALUE) for p in before if p not in made.costs}
    return Gone(lost, found.least, place)


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
