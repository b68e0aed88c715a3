"""Builds one message that quotes omitted texts: older turns, lorebook entries. It does not choose them."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.model.conversation import Block
from proxy.model.plan import Draft
from proxy.model.structs import replace

HEADING = "[Excerpts of what was said earlier in this conversation and is left out above, word for word:]"
GAP = "[…]"
WHY = "excerpts of what was left out"


def said(block: Block) -> str:
    """The text of a block, each message with its role before it; empty if no message has text."""
    texts = [(m.role, m.text()) for m in block.messages]
    return "\n".join(f"{role}: {text}" for role, text in texts if text)


def excerpts(draft: Draft, chosen: Sequence[tuple[int, str]], heading: str = HEADING) -> Block:
    """A counted block of one user message that quotes `(place, text)` pairs in the given order.

    `GAP` separates two texts whose places are not consecutive.
    """
    lines = [heading]
    for i, (place, text) in enumerate(chosen):
        if i and place != chosen[i - 1][0] + 1:
            lines.append(GAP)
        lines.append(text)
    return Block(draft.recount((draft.write("\n".join(lines), WHY),)))


def fitting(
    draft: Draft, chosen: Sequence[tuple[int, str]], worth: Sequence[float], room: int, heading: str = HEADING
) -> tuple[Block | None, list[int]]:
    """The excerpts in at most `room` tokens, and the indices of the chosen texts that they quote.

    Texts with the lowest worth are removed until the rest fits. The block is None if nothing is left.
    """
    kept = list(range(len(chosen)))
    while kept:
        block = excerpts(draft, [chosen[i] for i in kept], heading)
        if block.tokens <= room:
            return replace(block, pinned=True), kept
        over = block.tokens - room
        for i in sorted(kept, key=lambda i: (worth[i], i)):
            kept.remove(i)
            over -= draft.meter.text(chosen[i][1])
            if over <= 0:
                break
    return None, []
