"""Groups messages into blocks that may go as one, and decides which of them are pinned; it counts nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.model.conversation import Block, Kind, Message


def runs(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The messages in runs that must stay together, as their API defines it."""
    return messages[0].format.runs(messages) if messages else []


def closings(groups: Sequence[Sequence[Message]]) -> dict[int, int]:
    """For each round of tools the run that closes it: the first after it that does not end on a result, by places.

    Strict providers take no user message straight after a result (Mistral: "Unexpected role 'user' after role 'tool'"),
    so a round may stay only where that run stays. A round that nothing closes yet, or that the client itself let a user
    message follow, has none."""
    found: dict[int, int] = {}
    closing: int | None = None
    for place in range(len(groups) - 1, -1, -1):
        if groups[place][-1].kind is not Kind.RESULT:
            closing = None if groups[place][0].kind is Kind.USER else place
        elif closing is not None:
            found[place] = closing
    return found


def pinned_indices(groups: Sequence[tuple[Message, ...]], pins: Collection[int] = ()) -> frozenset[int]:
    """Which runs are never dropped: instructions, the first and the last user message, the newest run, and what the
    client pinned, with what closes it.

    An agent's run follows one user message for hundreds of turns, so of what follows the last user message only the
    newest run (the one that the model must answer to) is pinned; a plain chat ends with its last user message anyway.
    """
    users = [i for i, run in enumerate(groups) if any([m.kind is Kind.USER for m in run])]
    pinned = {i for i, run in enumerate(groups) if run[0].kind is Kind.INSTRUCTION}
    theirs = {i for i, run in enumerate(groups) if any(m.index in pins for m in run)}
    closing = closings(groups) if theirs else {}
    pinned |= theirs | {closing[i] for i in theirs & closing.keys()}
    return frozenset(pinned | set(users[:1]) | set(users[-1:]) | set(range(len(groups))[-1:]))


def group(messages: Sequence[Message], pins: Collection[int] = ()) -> tuple[Block, ...]:
    """The blocks of a conversation, in order, with their pins."""
    groups = runs(messages)
    pinned = pinned_indices(groups, pins)
    return tuple(Block(run, i in pinned) for i, run in enumerate(groups))
