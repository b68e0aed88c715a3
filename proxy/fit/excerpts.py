"""Builds one message that quotes omitted texts: older turns, lorebook entries. It does not choose them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from proxy.fit.relevance.text.reading import speaker_of
from proxy.model.conversation import Block
from proxy.model.plan import Draft

HEADING = "[Excerpts of what was said earlier in this conversation and is left out above, word for word:]"
GAP = "[…]"
WHY = "excerpts of what was left out"


def said(block: Block, speakers: Collection[str] = ()) -> str:
    """The text of a block; empty if no message has text. Each message has its role before it, unless it begins with the
    name of one of the `speakers`: a turn of a transcript says itself who speaks."""
    texts = [(m.role, m.text()) for m in block.messages]
    return "\n".join(
        text if speakers and speaker_of(text) in speakers else f"{role}: {text}" for role, text in texts if text
    )


class Excerpt(msgspec.Struct, frozen=True, gc=False):
    """A text to quote. `place`: its position among all. `source`: the file that it is from; empty for none."""

    place: int
    text: str
    worth: float
    source: str = ""


def excerpts(draft: Draft, chosen: Sequence[Excerpt], heading: str = HEADING) -> Block:
    """A counted block of one user message that quotes texts in the given order.

    `GAP` separates two texts whose places are not consecutive, and a line names the file of those that follow.
    """
    lines = [heading]
    before = None
    for each in chosen:
        moved = before is not None and each.source != before.source
        if before is not None and (each.place != before.place + 1 or (moved and not each.source)):
            lines.append(GAP)
        if each.source and (before is None or moved):
            lines.append(f"from {each.source}:")
        lines.append(each.text)
        before = each
    return Block(draft.recount((draft.write("\n".join(lines), WHY),)))


def fitting(
    draft: Draft, chosen: Sequence[Excerpt], room: int, heading: str = HEADING
) -> tuple[Block | None, list[int]]:
    """The excerpts in at most `room` tokens, and the indices of the chosen texts that they quote.

    Texts with the lowest worth are removed until the rest fits. The block is None if nothing is left.
    """
    kept = list(range(len(chosen)))
    while kept:
        block = excerpts(draft, [chosen[i] for i in kept], heading)
        if block.tokens <= room:
            return replace(block, pinned=True), kept
        over, gone = block.tokens - room, set[int]()
        for i in sorted(kept, key=lambda i: (chosen[i].worth, i)):
            gone.add(i)
            over -= draft.meter.text(chosen[i].text)
            if over <= 0:
                break
        kept = [i for i in kept if i not in gone]
    return None, []
