"""How much of the window a cut that stays reserves for the reply. It cuts nothing, and lowers no limit that is sent."""

from __future__ import annotations

from proxy.fit.relevance.history.replay import lasting
from proxy.model.limits import LARGE_RESERVE_SHARE, MAX_RESERVE_SHARE
from proxy.model.plan import Draft
from proxy.model.structs import replace

STARVED = 0.75  # of what the parts of every request leave of the window: a reply over it leaves the history too little


def with_less_reply(draft: Draft) -> Draft:
    """The draft to cut, the same if its reply leaves the history room.

    A reply limit over half the window is lowered in any case (`clamp_output`), and so is one that would leave the
    history hardly more than the parts of every request (tools, instructions, the first user message): every result
    that an agent reads would be cut to nothing. Then a quarter of what those parts leave of the window is reserved for
    the reply, but at least the floor.
    """
    free = draft.window.tokens - draft.fixed - sum(draft.blocks[place].tokens for place in lasting(draft.blocks))
    is_large = draft.reply is not None and draft.window.counted(draft.reply) > MAX_RESERVE_SHARE * draft.window.tokens
    reserve = max(draft.floor, int(LARGE_RESERVE_SHARE * free))
    if draft.held <= reserve or not (is_large or draft.held > STARVED * free):
        return draft
    return replace(draft, default_reserve=reserve) if draft.reply is None else replace(draft, reply=reserve)


def as_asked(made: Draft, draft: Draft) -> Draft:
    """What was made of a draft `with_less_reply`, with the reply of the draft itself."""
    return replace(made, reply=draft.reply, default_reserve=draft.default_reserve)
