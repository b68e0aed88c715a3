"""Shortens descriptions of tools that the conversation never called, where tools would leave the history hardly any
room.

Theory of operation
===================

Tools stand at the very front of every provider's prompt cache: a list that changed with every request would lose all of
it. So how much must be freed follows from what is fixed (tools, instructions) and the room alone, rounded up to a grid.
And which tools were called is read from the messages up to the place where the list was chosen last: first where the
request no longer fitted, then where twice as many tokens of messages have come, but at the latest where the room would
hold no more of the new ones. All of it follows from what the client sent up to there, so the next turns find the same
list, and nothing has to be remembered.

Names, types and all that a call must agree with stay, and so do the descriptions of called tools.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate

import msgspec

from proxy.fit.first_sentence import first_sentence
from proxy.fit.less_reply import with_less_reply
from proxy.fit.relevance.text.memo import digest
from proxy.model.bounded import Bounded
from proxy.model.conversation import Block, Kind
from proxy.model.definitions import Definition, Definitions, Place
from proxy.model.plan import Draft, Facts

GRIDS = 32  # of the room: instructions and learned counts that differ a little from turn to turn change no list
LEAST = 0.1  # of the room: what a request needs for its first and newest messages; with less it is refused as a rule
SOON = 1 / 16  # of the room: messages after which the list is chosen a second time, at the earliest
WORTH = 24  # bytes that a description must save to be changed
FRAME = 60  # bytes of a tool besides its descriptions, about: only an order follows from it
KEY = 16  # bytes of a description besides its text
ROUNDS, SLACK = 6, 1 / 16  # counts of the whole list to find how many changes are enough; what may be too much
REMEMBERED, BYTES = 1_000, 32 << 20  # lists that were chosen, and their bytes
CHOSEN: Bounded[int, dict[str, bytes]] = Bounded(REMEMBERED, BYTES)


@dataclass(frozen=True, slots=True)
class Params:
    """`history`: the share of the room that tools and instructions must leave to the history before anything of it is
    dropped; a cut of `prune_history` then leaves it a fifth. `leave_out`: patterns of the names of tools that may be
    left out altogether, before any description is shortened; but never one that was called or is named in the tool
    choice, the instructions or a user's message."""

    history: float = 0.3
    leave_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.history < 1:
            raise ValueError("history must be a share of at least 0 and under 1")


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of the list: a new text at a place (None: none), or the tool there is left out (`whole`). `saved`: the
    bytes that it saves, about."""

    place: Place
    text: str | None
    saved: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """The tokens to free so that the history has its share (`share`), and so that the request is not refused (`send`);
    at most 0 if there is nothing to free."""

    share: int
    send: int


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with shorter descriptions of tools, as many as the history's share needs; the same draft where tools
    and instructions leave it that share. Descriptions of parameters go altogether only if the request would else be
    refused."""
    if not draft.definitions.fields:
        return draft
    goal = _goal(draft, params)
    if goal.share <= 0:
        return draft
    original = facts.original or draft
    called, spare = _called(original), _spare(original, params)
    key = digest(*draft.definitions.fields.values(), draft.meter.key, repr((draft.fixed, goal, called, spare)))
    fields = CHOSEN.get(key)
    if fields is None:
        fields = dict(_trimmed(draft, goal, called, spare).definitions.fields)
        CHOSEN.put(key, fields, sum(map(len, fields.values())))
    return draft if fields == draft.definitions.fields else _smaller(draft, draft.definitions.with_fields(fields))


def _smaller(draft: Draft, definitions: Definitions) -> Draft:
    """The draft with other tools; the same draft where these cost no less."""
    made = draft.with_definitions(definitions)
    return made if made.fixed < draft.fixed else draft


def _goal(draft: Draft, params: Params) -> Goal:
    room = with_less_reply(draft).room
    always = draft.fixed + sum([b.tokens for b in draft.blocks if _stays(b, draft.pins)])
    share = always - int((1 - params.history) * room)
    if share <= 0:
        return Goal(0, 0)
    grid = max(1, room // GRIDS)
    return Goal(-(-share // grid) * grid, -(-(always - int((1 - LEAST) * room)) // grid) * grid)


def _stays(block: Block, pins: Collection[int]) -> bool:
    """Whether a block is no history: instructions, and what the client pinned."""
    return block.messages[0].kind is Kind.INSTRUCTION or any([m.index in pins for m in block.messages])


def _called(original: Draft) -> tuple[str, ...]:
    """The names of the tools that were called when the list was chosen last."""
    room, used, chosen = original.room, 0, len(original.blocks) - 1
    limit = room - original.fixed
    for place, block in enumerate(original.blocks):
        used += block.tokens
        if used > limit:
            chosen, limit = place, used + min(room, max(used, int(SOON * room)))
    return tuple(sorted({c.name for block in original.blocks[: chosen + 1] for m in block.messages for c in m.calls}))


def _spare(original: Draft, params: Params) -> tuple[str, ...]:
    """The names of the tools that a rule lets go and nothing names."""
    if not params.leave_out:
        return ()
    names = {d.name for d in original.definitions.read() if d.name and not d.marked}
    named = {call.name for m in original.messages for call in m.calls} | set(original.definitions.chosen())
    loose = {n for n in names - named if any(fnmatchcase(n, pattern) for pattern in params.leave_out)}
    if not loose:
        return ()
    said = [m.own_text() for m in original.messages if m.kind in (Kind.INSTRUCTION, Kind.USER)]
    return tuple(sorted([name for name in loose if not any(name in text for text in said)]))


def _trimmed(draft: Draft, goal: Goal, called: Collection[str], spare: Collection[str]) -> Draft:
    """The draft with as few changes of its tools as free enough."""
    tools = draft.definitions.read()
    gone, kept = _left_out(tools, spare)
    loose = [tool for tool in kept if not tool.deferred and tool.name not in called]
    changes = [*gone, *_shorter(loose, own=True), *_shorter(loose, own=False), *_repeated(kept, called)]
    made = _freed(draft, (), changes, goal.share)
    if draft.fixed - made.fixed >= goal.send:
        return made
    return _freed(draft, changes, _without(loose), goal.send)


def _left_out(tools: Sequence[Definition], spare: Collection[str]) -> tuple[list[Change], list[Definition]]:
    """The changes that leave out tools of these names, the largest first, and the other tools. One tool stays."""
    gone = [tool for tool in tools if tool.name in spare]
    gone = gone[1:] if len(gone) == len(tools) else gone
    sizes = [FRAME + sum([_size(d.text) for d in tool.descriptions]) for tool in gone]
    changes = [Change(tool.place, None, size, whole=True) for tool, size in zip(gone, sizes, strict=True)]
    return _largest_first(changes), [tool for tool in tools if tool not in gone]


def _shorter(tools: Sequence[Definition], *, own: bool) -> list[Change]:
    """The changes to first sentences of the tools' own descriptions, or of those of their parameters, the largest
    first."""
    found: list[Change] = []
    for description in [d for tool in tools for d in tool.descriptions if d.own is own]:
        text = first_sentence(description.text)
        saved = _size(description.text) - _size(text)
        if text and saved >= WORTH:
            found.append(Change(description.place, text, saved))
    return _largest_first(found)


def _repeated(tools: Sequence[Definition], called: Collection[str]) -> list[Change]:
    """The changes that leave out what another tool before says of a parameter of the same name, the largest first."""
    found: list[Change] = []
    seen: set[tuple[str, str]] = set()
    for tool in tools:
        said = [(d, first_sentence(d.text)) for d in tool.descriptions if d.name and not tool.deferred]
        if tool.name not in called:
            found += [Change(d.place, None, KEY + _size(text)) for d, text in said if (d.name, text) in seen]
        seen.update([(d.name, text) for d, text in said])
    return _largest_first(found)


def _without(tools: Sequence[Definition]) -> list[Change]:
    """The changes that leave out descriptions of parameters, the largest first."""
    texts = [d for tool in tools for d in tool.descriptions if not d.own]
    return _largest_first([Change(d.place, None, KEY + _size(first_sentence(d.text))) for d in texts])


def _largest_first(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: -change.saved)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _freed(draft: Draft, before: Sequence[Change], changes: Sequence[Change], needed: int) -> Draft:
    """The draft after the changes `before` and as few of `changes`, in their order, as free `needed` tokens; after all
    of them where they are not enough.

    The tokens are those of the whole list, counted; the bytes only say which number of changes to try next.
    """
    base = _changed(draft, before) if before else draft
    sizes = list(accumulate([change.saved for change in changes]))
    if not sizes:
        return base
    goal = needed - (draft.fixed - base.fixed)
    rate = draft.fixed / max(1, sum(map(len, draft.definitions.fields.values())))
    low, high, best = 0, len(sizes), base  # enough are more than `low`, at most `high` changes: those of `best`
    for _ in range(ROUNDS):
        count = min(max(bisect_left(sizes, goal / rate) + 1, low + 1), high)
        made = _changed(draft, [*before, *changes[:count]])
        freed = base.fixed - made.fixed
        if freed >= goal or count == len(sizes):
            best, high = made, count
        else:
            low = count
        if low + 1 >= high or 0 <= freed - goal <= SLACK * goal:
            break
        rate = max(freed, 1) / sizes[count - 1]
    return best if high < len(sizes) or best is not base else _changed(draft, [*before, *changes])


def _changed(draft: Draft, changes: Sequence[Change]) -> Draft:
    texts = {change.place: change.text for change in changes if not change.whole}
    return draft.with_definitions(draft.definitions.edited(texts, [change.place for change in changes if change.whole]))
