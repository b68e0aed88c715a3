"""Puts a short text in place of old images and documents. It drops no message, and changes no text.

Theory of operation
===================

As in `prune_history` there are two marks: while a run fits, nothing is left out. When it no longer fits, the oldest
images go, down to the lower mark, and those that are left out stay so until the room is passed again. The run is
replayed from its start, so nothing has to be remembered, and a cut depends only on the blocks up to it. An image of
which there is a later copy goes first: the text in its place says where the copy is.

Where images are not enough, other steps shorten the run, and they do not tell this one how far. The replay assumes that
they cut to the same lower mark: else a run whose texts alone are longer than the room would keep no old image at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from proxy.fit.left_out import Medium, media_of, without, written
from proxy.fit.less_reply import as_asked, with_less_reply
from proxy.fit.relevance.history.replay import lasting
from proxy.fit.relevance.history.rooms import low_of
from proxy.model.conversation import Block, Kind
from proxy.model.plan import Draft, Facts

GONE = -1  # instead of a copy: there is none
MOST_REPLAYS = 50  # of what other steps cut; after that it is assumed: each takes the time of the whole run


@dataclass(frozen=True, slots=True)
class Params:
    """`low`: the depth of a cut, as a share of the room that is not pinned. `keep`: how many of the newest images and
    documents stay in any case, besides those of the last user turn and of what is pinned."""

    low: float = 0.7
    keep: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1:
            raise ValueError("low must be a share over 0 and at most 1")
        if self.keep < 0:
            raise ValueError("keep must not be negative")


class Shown(msgspec.Struct, frozen=True, gc=False):
    """An image or a document that may go: the places of its block, of its message in that and of itself in this, and
    the tokens that it costs more than the text in its place."""

    place: int
    at: int
    number: int
    medium: Medium
    cost: float


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its oldest images and documents left out, down to the lower mark."""
    if not draft.opaque:
        return draft
    draft = draft.made()
    lowered = with_less_reply(draft)
    made = _without_old(lowered, params)
    return draft if made is lowered else as_asked(made, draft)


def _without_old(draft: Draft, params: Params) -> Draft:
    always = lasting(draft.blocks)
    shown = [one for place in range(len(draft.blocks)) if place not in always for one in _shown(draft, place)]
    if not shown:
        return draft
    gone = replayed(draft, shown, always, params)
    return without(draft, _texts(draft, shown, gone)) if gone else draft


def _shown(draft: Draft, place: int) -> list[Shown]:
    """The images and documents of a block that cost more than their texts. Those of one block cost the same each: what
    the block costs more than without them is counted, for all together."""
    block = draft.blocks[place]
    media = [media_of(message) for message in block.messages]
    count = sum(map(len, media))
    if not count:
        return []
    short = [
        written(m, [one.left_out for one in found]) if found else m
        for m, found in zip(block.messages, media, strict=True)
    ]
    cost = (block.tokens - sum(draft.meter.costs(short))) / count
    if cost <= 0:
        return []
    return [Shown(place, at, i, one, cost) for at, found in enumerate(media) for i, one in enumerate(found)]


def replayed(draft: Draft, shown: Sequence[Shown], always: set[int], params: Params) -> dict[int, int]:
    """The images that are left out, as places in `shown`, each with that of its copy, or `GONE`."""
    run, ends = Run(shown, params.keep), _ends(shown, len(draft.blocks))
    room, low = draft.room, low_of(draft, params.low)
    pinned = draft.fixed + sum(draft.blocks[place].tokens for place in always)
    texts, turn, replays = float(draft.fixed), 0.0, 0
    sizes, marks = list[float](), list[float]()  # of the texts of each block; of a cut at it
    for place, block in enumerate(draft.blocks):
        media = sum(one.cost for one in shown[run.seen : ends[place]])
        own, speaks, goes_on = block.tokens - media, block.user is not None, _goes_on(draft.blocks, place)
        texts += own
        run.add(ends[place], media, speaks=speaks, goes_on=goes_on)
        if speaks:
            turn = (0 if place in always else own) + (turn if goes_on else 0)
        said = pinned + turn + (0 if speaks else own)
        stays = said + run.turn_cost + (0 if speaks else media)
        sizes.append(own)
        marks.append(stays + low * max(0, room - stays))
        if texts + run.cost <= room:
            continue
        run.leave_out_copies()
        if texts + run.cost > room:
            run.leave_out(marks[place] - texts)
        if texts + run.cost > room:  # other steps are due
            run.release()
            used, at = min(texts + run.cost, max(marks[place], said + run.cost)), place
            if marks[place] < room and replays < MOST_REPLAYS:
                used, at = _cut_by_others(draft, sizes, marks, ends, run)
                replays += 1
            texts = used - run.cost
            run.hold(ends[at] if at >= 0 else 0)
    return run.gone


def _cut_by_others(
    draft: Draft, sizes: Sequence[float], marks: Sequence[float], ends: Sequence[int], run: Run
) -> tuple[float, int]:
    """The tokens of a run after other steps have cut it to its marks, and the block at which they did so the last time;
    -1 if they need not."""
    used, at, seen, room = float(draft.fixed), -1, 0, draft.room
    for place, size in enumerate(sizes):
        used += size + sum(run.shown[i].cost for i in range(seen, ends[place]) if i not in run.gone)
        seen = ends[place]
        if used > room:
            used, at = min(used, marks[place]), place
    return used, at


def _ends(shown: Sequence[Shown], blocks: int) -> list[int]:
    """For each block the place in `shown` behind its own."""
    counts = [0] * blocks
    for one in shown:
        counts[one.place] += 1
    ends, end = [], 0
    for count in counts:
        end += count
        ends.append(end)
    return ends


def _goes_on(blocks: Sequence[Block], place: int) -> bool:
    """Whether a block and the one before it are messages of the user alone: they are one turn."""
    return place > 0 and all(_is_user(block) for block in blocks[place - 1 : place + 1])


def _is_user(block: Block) -> bool:
    return all(m.kind is Kind.USER and not m.answers for m in block.messages)


@dataclass(slots=True)
class Run:
    """The images of a run up to a block, as places in `shown`: those that are still there `before` the last user turn
    and `after` it, and those that are `gone`. `copies`: of each content in that turn the last place. `held`: those that
    were there where other steps cut the last time, all of which stand before `holds`."""

    shown: Sequence[Shown]
    keep: int
    seen: int = 0
    newest: int = 0  # where those of the newest block begin
    cost: float = 0.0
    turn: range = range(0)
    turn_cost: float = 0.0
    copies: dict[int, int] = field(default_factory=dict)
    before: deque[int] = field(default_factory=deque)
    after: deque[int] = field(default_factory=deque)
    held: deque[int] = field(default_factory=deque)
    holds: int = 0
    gone: dict[int, int] = field(default_factory=dict)

    def add(self, end: int, cost: float, *, speaks: bool, goes_on: bool) -> None:
        """Adds those of the next block, which end before `end` and `cost` so many tokens. `speaks`: the user speaks in
        it; `goes_on`: in one turn with the block before it."""
        new = range(self.seen, end)
        self.newest, self.seen = self.seen, end
        self.cost += cost
        if not speaks:
            self.after += new
            return
        if not goes_on:
            self.held += range(self.turn.start, min(self.turn.stop, self.holds))
            self.before += range(max(self.turn.start, self.holds), self.turn.stop)
            self.before += self.after
            self.turn, self.turn_cost = range(new.start, new.start), 0.0
            self.after.clear()
            self.copies.clear()
        self.turn = range(self.turn.start, end)
        self.turn_cost += cost
        self.copies |= {self.shown[i].medium.key: i for i in new}

    def leave_out_copies(self) -> None:
        """Leaves out each that has a later copy."""
        if self._oldest() is None:
            return
        copies = dict[int, int]()
        for i in chain(reversed(self.after), reversed(self.before)):
            key = self.shown[i].medium.key
            copy = copies.get(key, self.copies.get(key, GONE))
            if key and copy > i and i < self._bound():
                self._go(i, copy)
            else:
                copies.setdefault(key, i)
        self.before = deque(i for i in self.before if i not in self.gone)
        self.after = deque(i for i in self.after if i not in self.gone)

    def leave_out(self, most: float) -> None:
        """Leaves out the oldest, until those that are left cost at most so many tokens."""
        while self.cost > most and (oldest := self._oldest()):
            self._go(oldest.popleft(), GONE)

    def release(self) -> None:
        """Leaves out what was held, but for those that stay in any case."""
        for i in self.held:
            if i < self._bound():
                self._go(i, GONE)
        self.before = deque(sorted([*(i for i in self.held if i not in self.gone), *self.before]))
        self.held.clear()

    def hold(self, end: int) -> None:
        """Holds those that end before `end` until other steps are due again. These cut where the run passed the room,
        with these images in it: if they went later, that place would move, and with it the whole cut."""
        self.holds = end
        for images in (self.before, self.after):
            while images and images[0] < end:
                self.held.append(images.popleft())

    def _bound(self) -> int:
        """Those from here on stay in any case."""
        return min(self.newest, self.seen - self.keep)

    def _oldest(self) -> deque[int] | None:
        """The list whose first is the oldest that may go; None if none may."""
        found = self.before or self.after
        return found if found and found[0] < self._bound() else None

    def _go(self, i: int, copy: int) -> None:
        self.gone[i] = copy
        self.cost -= self.shown[i].cost


def _texts(draft: Draft, shown: Sequence[Shown], gone: Mapping[int, int]) -> dict[tuple[int, int], list[str]]:
    """The texts in place of the media of each message, by the places of its block and of itself; empty for those that
    stay."""
    found: dict[tuple[int, int], list[str]] = {}
    copies: dict[int, int] = {}
    for i in sorted(gone, reverse=True):  # a copy may itself be gone since, and have a copy
        copy = gone[i]
        copies[i] = copies.get(copy, GONE) if copy in gone else copy
        one = shown[i]
        text = one.medium.left_out if copies[i] == GONE else one.medium.same_as(shown[copies[i]].medium)
        if (one.place, one.at) not in found:
            media = media_of(draft.blocks[one.place].messages[one.at])
            found[one.place, one.at] = [""] * len(media)
        found[one.place, one.at][one.number] = text
    return found
