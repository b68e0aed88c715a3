"""Groups messages into blocks that can be removed as a whole, and pins some of them. It counts no tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.model.conversation import Block, Kind, Message


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The messages in runs that must stay together. The format of their API defines the runs."""
    return messages[0].format.runs(messages) if messages else []


def closings(groups: Sequence[Sequence[Message]]) -> dict[int, int]:
    """Maps the place of each tool round to the place of the run that closes it.

    The closing run is the first later one that does not end with a tool result. Strict providers reject a user message
    directly after a result (Mistral: "Unexpected role 'user' after role 'tool'"), so a round is kept only together with
    its closing run. A round has no entry if no run closes it yet, or if the client sent a user message directly after
    it.
    """
    found: dict[int, int] = {}
    closing: int | None = None
    for place in range(len(groups) - 1, -1, -1):
        if groups[place][-1].kind is not Kind.RESULT:
            closing = None if groups[place][0].kind is Kind.USER else place
        elif closing is not None:
            found[place] = closing
    return found


def pinned_indices(groups: Sequence[tuple[Message, ...]], pins: Collection[int] = ()) -> frozenset[int]:
    """The places of the runs that are never dropped.

    These are the instructions, the first and the last user message, the newest run, what the API requires, the newest
    message that stands for all before it, and the runs that the client pinned, each with its closing run. An agent may
    work for hundreds of turns after one user message. Therefore only the newest run after the last user message, the
    one that the model must answer, is pinned. A plain chat ends with its last user message.
    """
    users, pinned, compacted = list[int](), set[int](), list[int]()
    for i, run in enumerate(groups):
        if run[0].kind is Kind.INSTRUCTION:
            pinned.add(i)
        for m in run:
            if m.kind is Kind.USER:
                users.append(i)
            if m.pinned:
                pinned.add(i)
            if m.compacts:
                compacted.append(i)
    pinned |= set(compacted[-1:])
    theirs = {i for i, run in enumerate(groups) if pins and any(m.index in pins for m in run)}
    closing = closings(groups) if theirs else {}
    pinned |= theirs | {closing[i] for i in theirs & closing.keys()}
    return frozenset(pinned | set(users[:1]) | set(users[-1:]) | set(range(len(groups))[-1:]))


def have_results(blocks: Sequence[Block]) -> bool:
    """Whether any of these blocks contains tool results."""
    return any([m.answers for block in blocks for m in block.messages])


def group(messages: Sequence[Message], pins: Collection[int] = ()) -> tuple[Block, ...]:
    """The blocks of a conversation, in order; pinned blocks are marked."""
    groups = runs(messages)
    pinned = pinned_indices(groups, pins)
    return tuple(Block(run, i in pinned) for i, run in enumerate(groups))
