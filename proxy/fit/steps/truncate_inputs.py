"""Cuts an end off texts that are embedded, and off prompts of token ids, that are too long. Nothing else may be done to
them: a vector of a text without its end is silent damage, so that this step is in no ladder unless a rule asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.fit.ends import cut_at_ends
from proxy.model.conversation import HEAD, RULED, TAIL
from proxy.model.plan import Draft, Facts


@dataclass(frozen=True, slots=True)
class Params:
    """`keep`: the end that stays, `head` or `tail`; empty: the beginning of what is embedded, the end of what is
    continued."""

    keep: str = ""

    def __post_init__(self) -> None:
        if self.keep not in ("", HEAD, TAIL):
            raise ValueError("keep must be head or tail")


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with its inputs cut so that it fits. A text that is embedded is not cut for the margin alone."""
    if draft.excess <= 0 or not draft.texts or (draft.reply == 0 and draft.possible):
        return draft
    end = params.keep or (TAIL if draft.reply else HEAD)
    return cut_at_ends(draft, lambda message: end if message.keep == RULED else "")
