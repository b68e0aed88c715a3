"""Lets user and assistant speak in turn where a model takes nothing else: what a cut made neighbours is joined to one
message; it drops and shortens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, groupby

from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Drop
from proxy.model.structs import replace

NAME = "join_turns"  # under which it is noted: it is no step of a ladder, for it must come after all of them
GONE = "joined to the message behind it"
WHY = "joined with what stands before it"
TURNS = (Kind.USER, Kind.ASSISTANT)


def alternates(messages: Iterable[Message]) -> bool:
    """Whether users and answers take turns from a user on, behind instructions. Calls and results do not count: the
    templates that take tools do not count them either."""
    said = list(dropwhile(lambda m: m.kind is Kind.INSTRUCTION, messages))
    turns = [m.kind for m in said if _speaks(m)]
    return all(m.kind is not Kind.INSTRUCTION for m in said) and turns == [TURNS[i % 2] for i in range(len(turns))]


def in_turn(before: Draft, after: Draft) -> Draft:
    """What became of a draft, with neighbours of one role joined. The same draft where its model takes any order, where
    no message changed, and where what the client sent did not alternate either."""
    if not after.window.alternates or after.blocks is before.blocks or not alternates(before.messages):
        return after
    made: list[Block | None] = list(after.blocks)
    drops: list[Drop] = []
    for run in _runs(after.blocks):
        messages = [after.blocks[place].messages[0] for place in run]
        one = _joined(messages)
        if one is None:
            continue
        for place in run:
            made[place] = None
        # A question's calls may stand between two answers where the question is gone: they come before both.
        made[run[-1]] = Block(after.recount((one,)), any(after.blocks[place].pinned for place in run))
        drops += [Drop(m.index, GONE) for m in messages if m.index >= 0 and m.index != one.index]
    blocks = [block for block in made if block is not None]
    found = after if len(blocks) == len(made) else after.with_blocks(blocks, drops)
    # A blank line may cost more than a message's frame: the margin has room for that, and no order that is refused has.
    return found if found.possible or found.excess <= max(0, after.excess) else after


def _speaks(message: Message) -> bool:
    return message.kind in TURNS and not message.calls and not message.answers


def _runs(blocks: Sequence[Block]) -> Iterator[list[int]]:
    """The places of two and more of one role that follow each other, but for calls and results."""
    places = [place for place, block in enumerate(blocks) if _speaks(block.messages[0])]
    runs = (list(run) for _, run in groupby(places, lambda place: blocks[place].messages[0].kind))
    return (run for run in runs if len(run) > 1)


def _joined(messages: Sequence[Message]) -> Message | None:
    """One message that says what all of them say: the last of the client's own, with what the others said before and
    behind it. None where one of them cannot be joined."""
    mine = next((m for m in reversed(messages) if m.index >= 0), messages[-1])
    raw = mine.format.join(mine, messages)
    return None if raw is None else replace(mine, raw=raw, tokens=0, why=WHY)
