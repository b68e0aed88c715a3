"""Says once in a request that a proxy has left something out: in the first note of its oldest shortened result.

That result stays the oldest until a cut removes it, so the note stays where it is, word for word, from turn to turn.
The result keeps to the limit that it was shortened to; where the request does not fit so, to the tokens that it has.
"""

from __future__ import annotations

from msgspec.structs import replace

from proxy.model.conversation import Message
from proxy.model.plan import Draft


def attributed(draft: Draft) -> Draft:
    """The draft whose oldest shortened result says who shortened it; the same draft where there is none, or where it
    would not fit with that."""
    for place, block in enumerate(draft.blocks):
        if any(message.again for message in block.messages):
            for tight in (False, True):
                messages = draft.recount(_first_said(block.messages, tight))
                blocks = (*draft.blocks[:place], replace(block, messages=messages), *draft.blocks[place + 1 :])
                made = draft.with_blocks(blocks)
                if made.prompt <= draft.prompt or made.excess <= 0:
                    return made
            return draft
    return draft


def _first_said(messages: tuple[Message, ...], tight: bool) -> tuple[Message, ...]:
    """The messages of a block, of which the first with shortened results says so."""
    place = next(i for i, message in enumerate(messages) if message.again)
    first = messages[place]
    return (*messages[:place], first if first.again is None else first.again(first, tight), *messages[place + 1 :])
