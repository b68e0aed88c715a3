"""Joins adjacent messages of one role after a cut, for models that require alternating roles.

It shortens no text, and drops none but that of results that no answer follows any more: such models take no user after
a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, groupby, pairwise

from msgspec.structs import replace

from proxy.model.conversation import Block, Kind, Message
from proxy.model.plan import Draft, Drop

NAME = "join_turns"  # its name in notes; it is not a step of a ladder, because it must run after all steps
UNANSWERED = "its answer is left out"
GONE = "joined to the message behind it"
WHY = "joined with what stands before it"
TURNS = (Kind.USER, Kind.ASSISTANT)


def alternates(messages: Iterable[Message]) -> bool:
    """Whether user and assistant messages alternate after the instructions, beginning with a user message.

    Calls and results are ignored, as in the chat templates that support tools.
    """
    said = list(dropwhile(lambda m: m.kind is Kind.INSTRUCTION, messages))
    turns = [m.kind for m in said if _speaks(m)]
    return all(m.kind is not Kind.INSTRUCTION for m in said) and turns == [TURNS[i % 2] for i in range(len(turns))]


def in_turn(before: Draft, after: Draft) -> Draft:
    """The draft `after` with adjacent messages of one role joined.

    Returns `after` itself if its model accepts any order, if no block changed, or if what the client sent (`before`)
    did not alternate either.
    """
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
        # Calls of a dropped question may be between two answers: the joined message comes after them.
        made[run[-1]] = Block(after.recount((one,)), any(after.blocks[place].pinned for place in run))
        drops += [Drop(m.index, GONE) for m in messages if m.index >= 0 and m.index != one.index]
    blocks = [block for block in made if block is not None]
    found = _with_answers(before, after if len(blocks) == len(made) else after.with_blocks(blocks, drops))
    # A joined message may cost a few tokens more than its parts. The margin covers them; a wrong order always fails.
    return found if found.possible or found.excess <= max(0, after.excess) else after


def _with_answers(before: Draft, after: Draft) -> Draft:
    """The draft without blocks of results that the user follows at once, if the client sent none that is so."""
    if _user_after_results(tuple(before.messages)):
        return after
    kept: list[Block] = []  # the newest first
    drops: list[Drop] = []
    for block in reversed(after.blocks):
        if kept and not block.pinned and _user_after_results((block.messages[-1], kept[-1].messages[0])):
            drops += [Drop(m.index, UNANSWERED) for m in block.messages if m.index >= 0]
        else:
            kept.append(block)
    return after.with_blocks(kept[::-1], drops) if drops else after


def _user_after_results(messages: Sequence[Message]) -> bool:
    return any(m.answers and n.kind is Kind.USER and not n.answers for m, n in pairwise(messages))


def _speaks(message: Message) -> bool:
    return message.kind in TURNS and not message.calls and not message.answers


def _runs(blocks: Sequence[Block]) -> Iterator[list[int]]:
    """The places of each run of two or more messages of one role. Calls and results between them are ignored."""
    places = [place for place, block in enumerate(blocks) if _speaks(block.messages[0])]
    runs = (list(run) for _, run in groupby(places, lambda place: blocks[place].messages[0].kind))
    return (run for run in runs if len(run) > 1)


def _joined(messages: Sequence[Message]) -> Message | None:
    """One message with the content of all of them, based on the last that the client sent.

    None if one of them cannot be joined.
    """
    mine = next((m for m in reversed(messages) if m.index >= 0), messages[-1])
    raw = mine.format.join(mine, messages)
    return None if raw is None else replace(mine, raw=raw, tokens=0, why=WHY)
