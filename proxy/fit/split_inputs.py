"""Splits a request whose inputs each fit, but are too many or too long together for one request. Nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from proxy.model.conversation import Block
from proxy.model.limits import Quality
from proxy.model.plan import Draft

NAME = "split_request"  # the name of the note


def pieces(draft: Draft) -> tuple[tuple[Block, ...], ...]:
    """The blocks of each piece, in order; none where one request can take them all."""
    window = draft.window
    if not draft.apart or (window.max_inputs is None and window.max_together is None):
        return ()
    exact = draft.meter.quality is Quality.EXACT
    most = window.max_together
    if most is not None and not exact:
        most = math.floor((most - draft.meter.margin.base) / (1 + draft.meter.margin.share))
    found = tuple(_filled(draft, window.max_inputs or len(draft.blocks), most or math.inf))
    return found if len(found) > 1 else ()


def _filled(draft: Draft, count: int, tokens: float) -> Iterator[tuple[Block, ...]]:
    """Pieces of at most `count` blocks and so many tokens; each has at least one block."""
    piece: list[Block] = []
    taken = draft.fixed
    for block in draft.blocks:
        if piece and (len(piece) >= count or taken + block.tokens > tokens):
            yield tuple(piece)
            piece, taken = [], draft.fixed
        piece.append(block)
        taken += block.tokens
    yield tuple(piece)
