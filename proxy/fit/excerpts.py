"""One message that quotes what was left out: older turns, entries of lorebooks; it chooses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.model.conversation import Block
from proxy.model.plan import Draft
from proxy.model.structs import replace

HEADING = "[Excerpts of what was said earlier in this conversation and is left out above, word for word:]"
GAP = "[…]"
WHY = "excerpts of what was left out"


def said(block: Block) -> str:
    """What was said in a block, each message with who said it; nothing where it is all images."""
    texts = [(m.role, m.text()) for m in block.messages]
    return "\n".join(f"{role}: {text}" for role, text in texts if text)


def excerpts(draft: Draft, chosen: Sequence[tuple[int, str]], heading: str = HEADING) -> Block:
    """A block of one user message that quotes texts, each with its place, in their order; a sign stands where something
    is missing between two. Counted."""
    lines = [heading]
    for i, (place, text) in enumerate(chosen):
        if i and place != chosen[i - 1][0] + 1:
            lines.append(GAP)
        lines.append(text)
    return Block(draft.recount((draft.write("\n".join(lines), WHY),)))


def fitting(
    draft: Draft, chosen: Sequence[tuple[int, str]], worth: Sequence[float], room: int, heading: str = HEADING
) -> tuple[Block | None, list[int]]:
    """The excerpts that cost at most `room` tokens, and which of the chosen they hold: the least worthy go until it
    fits. None where nothing is left."""
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
