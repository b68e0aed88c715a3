"""Plans the room of each block of a run: who is shortened, and to how much. It shortens nothing itself.

Two marks, as for whole blocks (section 5): while a run fits, nothing is shortened. When it no longer fits, the oldest
results come first, each down to its least, until the run is at the lower mark. They stay so, and all newer results stay
as they came, until the room is passed again. The newest result comes before all others: it is whole where the room
holds it beside the least of the others. What a result gets depends only on the blocks up to it and on the cuts since,
and every cut is found again by replaying the run, so nothing has to be remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from dataclasses import dataclass, field

import msgspec

from proxy.model.conversation import Block
from proxy.model.plan import Draft

ARRIVING = 0.12  # of the room: results up to it come whole, though others were cut (measured)
DEPTH = 0.85  # of the lower mark, to which results are shortened: so cuts are fewer (measured)
AFTER = 2  # blocks that may follow the newest results: an answer and the next question


class Size(msgspec.Struct, frozen=True, gc=False):
    """The tokens of a block as it came (`whole`), and the least that it may be shortened to."""

    whole: int
    least: int


Raises = Mapping[int, Mapping[int, Size]]


def no_places(place: int, before: int) -> Set[int]:
    """No place."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class Raised:
    """The places of blocks with claimed results (DESIGN 5a). `raises`: by the block that claims, those that it claims,
    with their sizes from there on. `held`: whose claims hold at a cut that is made at a place, by that place and the
    place of the cut before it (-1: none). Both depend on the blocks up to there alone: what comes later changes no
    earlier cut."""

    raises: Raises = field(default_factory=dict)
    held: Callable[[int, int], Set[int]] = no_places


NONE_RAISED = Raised()


def newest_results(blocks: Sequence[Block]) -> int:
    """The place of the newest results, which the model reads in this request; -1 if there are none.

    At most `AFTER` blocks may follow them: an answer in words and the next question.
    """
    last = max((i for i, block in enumerate(blocks) if block.has_results), default=-1)
    return last if len(blocks) - 1 - last <= AFTER else -1


def low_of(draft: Draft, low: float) -> float:
    """The share of the room to which a cut goes.

    What a cut frees is how long it lasts. The margin of estimated counts makes the room smaller, but a cut frees as
    many tokens as it would without that margin: else a prompt that is counted less exactly would be cut more often.
    """
    return max(0.0, low - (1 - low) * draft.meter.margin.share)


def lower_mark(room: int, always: int, low: float) -> int:
    """The tokens to which results are shortened: what always stays, and a share of the rest of the room."""
    return always + int(DEPTH * low * max(0, room - always))


def raised(rooms: MutableMapping[int, int], sizes: MutableSequence[Size], claimed: Mapping[int, Size]) -> int:
    """Gives these blocks (place -> size from now on) at least what is claimed of them. Returns the tokens it takes."""
    more = 0
    for place, size in claimed.items():
        sizes[place] = size
        added = max(0, size.least - rooms.get(place, 0))
        if added:
            rooms[place] = size.least
            more += added
    return more


def lower(rooms: MutableMapping[int, int], places: Iterable[int], sizes: Sequence[Size], excess: int) -> int:
    """Lowers the rooms of the blocks at these places, in their order, each down to its least, until `excess` tokens
    are freed. Returns what is left of the excess."""
    for place in places:
        if excess <= 0:
            break
        freed = rooms[place] - sizes[place].least
        if freed > 0:
            freed = min(excess, freed)
            rooms[place] -= freed
            excess -= freed
    return excess


@dataclass(frozen=True, slots=True)
class Bounds:
    """The `room` of a run in tokens, of which `fixed` are taken by tools and the like; a cut goes to the share `low`
    of what is not pinned."""

    room: int
    fixed: int
    low: float


def size_of(block: Block) -> Size:
    """The size of a block that may be shortened later."""
    tokens = block.tokens
    return Size(tokens, tokens) if block.later is None else Size(block.whole, block.least)


def arrival(size: Size, used: int, bounds: Bounds) -> int:
    """The tokens of a block when it comes, once others were cut: whole up to `ARRIVING` of the room. Beyond that it
    takes what is free up to the lower mark: the rest is for the next blocks, so that it need not be cut at once.

    A claim on a result raises its room here. `used`: the tokens of all others.
    """
    if size.least >= size.whole:
        return size.whole
    free = int(bounds.low * bounds.room) - used
    return min(size.whole, max(size.least, int(ARRIVING * bounds.room), free))


def fresh_results(blocks: Sequence[Block], places: Sequence[int]) -> int:
    """The place of the newest results among these places, which end with the newest block; after it if there are
    none that the model reads next."""
    last = places[-1]
    return next((p for p in reversed(places[-1 - AFTER :]) if blocks[p].has_results), last + 1)


def plan_rooms(
    blocks: Sequence[Block],
    first: Sequence[Size],
    always: Set[int],
    bounds: Bounds,
    claimed: Raised = NONE_RAISED,
) -> list[int] | None:
    """The room of each block, in tokens; None where so much must go that the newest results did not find room beside
    the least of the others: then blocks must go.

    `first`: the size of each where nothing is claimed. `always`: the places of the blocks that every request has, and
    at its length.
    """
    rooms: dict[int, int] = {}
    sizes, given = list(first), set[int]()
    used, pinned, oldest, user, before = bounds.fixed, bounds.fixed, 0, 0, -1
    for place, block in enumerate(blocks):
        size = sizes[place]
        rooms[place] = arrival(size, used, bounds) if before >= 0 else size.whole
        claims = claimed.raises.get(place, {})
        used += rooms[place] + raised(rooms, sizes, claims)
        given |= claims.keys()
        pinned += rooms[place] if place in always else 0
        user = place if block.user is not None else user
        if used <= bounds.room:
            continue
        held = claimed.held(place, before)
        before = place
        for released in given - held:
            sizes[released] = first[released]
            oldest = min(oldest, released)
        given &= held
        fresh = fresh_results(blocks, range(place + 1))
        stays = pinned + sum(rooms[p] for p in {place, min(fresh, place), user} - always)
        excess = used - lower_mark(bounds.room, stays, bounds.low)
        used -= excess - lower(rooms, range(oldest, fresh), sizes, excess)
        while oldest < fresh and rooms[oldest] <= sizes[oldest].least:
            oldest += 1
        if used > bounds.room and fresh <= place:
            least = arrival(sizes[fresh], bounds.room, bounds)
            freed = min(used - bounds.room, rooms[fresh] - least)
            rooms[fresh] -= freed
            used -= freed
        if used > bounds.room:
            return None
    return [rooms[place] for place in range(len(blocks))]
