"""One cut of an agent's run: which blocks stay, in which form. It depends only on the blocks up to the cut.

What must stay comes first, then what is claimed, the newest blocks, and older ones by their value for the current task.
Of those, the ones that the cut before chose stay as they are while they leave room for others: the prompt then begins
as before. Else all are chosen anew, but for the first of them, and room is left for the next cut.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

import msgspec

from proxy.fit.blocks import closings
from proxy.fit.relevance.history.blocks import ACTIONS, COST_EXPONENT, NEW, News, Reuse, asked_now, rank_blocks
from proxy.fit.relevance.history.rooms import Bounds, size_of
from proxy.fit.relevance.text.bm25 import Document, Index, acquire_index, release_index
from proxy.fit.relevance.text.reading import Reading, read_message
from proxy.model.conversation import Block, Kind

BRIEF = 150  # tokens of a result in its short form (measured)
WHOLE = 4  # the newest blocks, whose results stay whole; older ones are kept in their short form (measured)
FILLED = 0.8  # share of their room that a new choice of older blocks fills; the cuts after it add to them (measured)
FIRST = 0.3  # share of a new choice of older blocks for the first ones of the choice before it (measured)
STAYS = 3.0  # times the value of older blocks that were chosen before, so that fewer of them change (measured)
NO_VALUE = -1.0
LATER = 1000  # characters used of a result that is not shortened yet (measured: 6,000 gain hardly more)


@dataclass(frozen=True, slots=True)
class Marks:
    """The parameters of a cut. `room`: tokens over which a cut is made, of which `fixed` are taken by tools and the
    like. `low`: the share of what is not pinned to which it is cut. `recalled`: the share of that for older blocks by
    value; 0 keeps the newest only. `brief`: tokens of a result in its short form; `exact`: whether the short forms'
    tokens were counted instead of estimated. `counting`: how texts are counted (`Meter.key`), on which they depend."""

    room: int
    fixed: int
    low: float = 0.65
    recalled: float = 0.5
    brief: int = BRIEF
    exact: bool = False
    counting: str = ""

    @property
    def bounds(self) -> Bounds:
        """Those of the rooms of results."""
        return Bounds(self.room, self.fixed, self.low)


class Gone(msgspec.Struct, frozen=True, gc=False):
    """What one cut dropped. `lost`: index -> the block's value for the task then, `NO_VALUE` where none counted.
    `least`: the least value of the older blocks that stayed; None if none did. `at`: the block at which it was made."""

    lost: Mapping[int, float]
    least: float | None
    at: int = -1


@dataclass(frozen=True, slots=True)
class Kept:
    """The blocks that stay. `costs`: index -> tokens in the form in which the block stays, in order. `worth`: index of
    an older block -> the value for which it was chosen (1 for the best match without reuse). `held`: those whose
    results are claimed. `at`: the block with which the run passed the room the last time; -1 if it never did. `gone`:
    what each cut dropped, in order."""

    costs: Mapping[int, int]
    worth: Mapping[int, float]
    held: frozenset[int] = frozenset()
    at: int = -1
    gone: tuple[Gone, ...] = field(default=(), compare=False)

    def brief(self, blocks: Sequence[Block]) -> frozenset[int]:
        """The indices of the blocks that stay in their short form."""
        return frozenset(place for place, cost in self.costs.items() if cost < size_of(blocks[place]).least)


NOTHING = Kept({}, {})


class Replayed:
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


@dataclass(frozen=True, slots=True)
class _Forms:
    """The tokens of the forms in which blocks may stay. `live`: index -> tokens as they are now, in order. `brief`: the
    tokens of a block's short form."""

    seen: Replayed
    live: Mapping[int, int]
    brief: Callable[[int], int]

    def short(self, place: int) -> int:
        """Those of the short form, if it is shorter."""
        return min(self.live[place], self.brief(place))

    def own(self, place: int) -> int:
        """Those of a block that is chosen itself: an answer is shortened only if it stays just to close its round."""
        return self.short(place) if self.seen.blocks[place].has_results else self.live[place]

    def closer(self, place: int, among: Container[int]) -> dict[int, int]:
        """The block that closes the round of this one, index -> tokens, if it is among those."""
        after = self.seen.closing.get(place)
        return {after: self.short(after)} if after is not None and after in among else {}


def cut(
    seen: Replayed,
    live: Mapping[int, int],
    pins: Set[int],
    marks: Marks,
    brief: Callable[[int], int],
    before: Kept,
    claimed: Mapping[int, int],
) -> Kept:
    """The blocks that stay of `live` (index -> tokens). Those that are `claimed` come first, in that order, as far as
    they fit, some in a form that is enough (place -> its tokens, 0: whole) unless they are among the newest."""
    forms = _Forms(seen, live, brief)
    users = [place for place in live if seen.blocks[place].user is not None]
    last = max(live)
    kept = {p: cost for p, cost in live.items() if p in pins or p == last or p in users[-1:]}
    room = int(marks.low * max(0, marks.room - marks.fixed - sum(kept.values())))
    kept, enough, room = _claimed(forms, kept, claimed, room)
    newest = _newest(forms, kept, int(room * (1 - marks.recalled)))
    kept |= newest
    kept |= {place: cost for place, cost in enough.items() if place not in kept}
    older = [place for place in live if place not in kept]
    worth = _worth(seen, live, users, older) if marks.recalled and older else {}
    return _with_older(forms, kept, worth, before, room - sum(newest.values()))


def _claimed(
    forms: _Forms, kept: Mapping[int, int], claimed: Mapping[int, int], room: int
) -> tuple[dict[int, int], dict[int, int], int]:
    """`kept` with what is claimed and fits, each block with the one that closes its round, index -> tokens; the blocks
    of which a form is enough, likewise; and the room that is left."""
    whole = dict(kept)
    late: dict[int, int] = {}
    for place, enough in claimed.items():
        if place not in forms.live or place in whole:
            continue
        wanted = {place: min(forms.live[place], enough or forms.live[place])}
        if not enough:
            wanted |= {p: cost for p, cost in forms.closer(place, forms.live).items() if p not in whole}
        if sum(wanted.values()) <= room:
            (late if enough else whole).update(wanted)
            room -= sum(wanted.values())
    return whole, late, room


def _newest(forms: _Forms, kept: Container[int], room: int) -> dict[int, int]:
    """The newest blocks that fit, index -> tokens: the first `WHOLE` as they are, then rounds in their short form."""
    found: dict[int, int] = {}
    for place in (p for p in reversed(forms.live) if p not in kept):
        cost = forms.live[place] if len(found) < WHOLE else forms.own(place)
        if cost > room:
            break
        found[place] = cost
        room -= cost
    return found


def _with_older(forms: _Forms, kept: Mapping[int, int], worth: Mapping[int, float], before: Kept, room: int) -> Kept:
    """`kept` with the older blocks that fit in `room`, of those of `worth`: what the cut before chose, while it leaves
    room for others, else a new choice."""
    held = {place: forms.live[place] for place in before.worth if place in worth}
    for place in tuple(held):
        held = forms.closer(place, worth) | held
    value = dict(worth)
    if sum(held.values()) > FILLED * room:
        room = int(FILLED * room)
        value |= {place: STAYS * worth[place] for place in held}
        held = _first(forms, before.worth.keys() & held.keys(), held, int(FIRST * room))
    costs = {**kept, **held}
    loose = {place: worthy for place, worthy in value.items() if place not in held}
    if loose:
        costs |= _recalled(forms, loose, forms.seen.news(costs, loose), room - sum(held.values()))
    chosen = {place: worth[place] for place in costs if place in loose}
    values = chosen | {place: before.worth.get(place, worth[place]) for place in held}
    gone = Gone({p: worthy for p, worthy in worth.items() if p not in costs}, _least(forms, costs, worth))
    return Kept({p: costs[p] for p in sorted(costs)}, {p: values[p] for p in sorted(values)}, gone=(gone,))


def _least(forms: _Forms, costs: Container[int], worth: Mapping[int, float]) -> float | None:
    """The least value of an older block that stays for its own sake, and not to close a round."""
    stay = [place for place in worth if place in costs]
    closers = {forms.seen.closing.get(place) for place in stay}
    return min([worth[place] for place in stay if place not in closers], default=None)


def _first(forms: _Forms, places: Iterable[int], held: Mapping[int, int], room: int) -> dict[int, int]:
    """The first of these blocks, each with the block that closes its round, index -> tokens: as many as fit."""
    found: dict[int, int] = {}
    for place in sorted(places):
        more = {one: held[one] for one in (place, *forms.closer(place, held)) if one not in found}
        room -= sum(more.values())
        if room < 0:
            break
        found |= more
    return found


def _recalled(forms: _Forms, worth: Mapping[int, float], news: News, room: int) -> dict[int, int]:
    """The older blocks of some value that fit, index -> tokens, the best for their cost first, rounds in their short
    form. With a round the block that closes it is kept, in its short form unless it is chosen itself."""
    found: dict[int, int] = {}
    for place in _best_first(worth, forms.live, news):
        wanted = {place: forms.own(place)}
        if wanted[place] - found.get(place, 0) > room:
            continue
        wanted |= {after: cost for after, cost in forms.closer(place, worth).items() if after not in found}
        cost = sum(wanted.values()) - found.get(place, 0)
        if cost <= room:
            found |= wanted
            room -= cost
            news.keep(place)
    return found


def _worth(seen: Replayed, live: Mapping[int, int], users: Sequence[int], older: Sequence[int]) -> dict[int, float]:
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
