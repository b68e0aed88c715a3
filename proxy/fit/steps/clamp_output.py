"""Lowers the reply limit to what fits together with the prompt (seed 001), but not below the floor."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.fit.effective import fits_own
from proxy.model.plan import Draft, Facts
from proxy.model.structs import replace


@dataclass(frozen=True, slots=True)
class Params:
    """`floor`: the smallest useful reply, in tokens; None means the ladder's floor. `share`: the share of the window
    that the limit of a request that does not fit may take; None: lower it only to what the prompt leaves."""

    floor: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if self.floor is not None and self.floor < 1:
            raise ValueError("floor must be at least 1 token")
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError("share must be a share over 0 and at most 1")


def clamp(window: int, prompt: int, asked: int, margin: int, floor: int) -> int:
    """Seed 001's formula for the reply limit. All values are in tokens."""
    return max(floor, min(asked, window - prompt - margin))


def apply(draft: Draft, facts: Facts, params: Params) -> Draft:
    """The draft with a reply limit that fits, and that takes at most its share.

    Returns the draft with no more than its share if not even the floor fits: then the prompt must shrink first. The
    same draft where the reply does not count against the window, and where the draft only exceeds an effective window,
    which is none of the reply's.
    """
    if draft.reply is None or draft.window.separate or fits_own(draft):
        return draft
    asked = min(draft.reply, draft.window.max_output or draft.reply)
    floor = min(asked, max(draft.floor, draft.window.floor(params.floor or 0)))
    prompt = min(draft.prompt, draft.window.max_input or draft.prompt)  # a longer prompt must shrink to this anyway
    margin = draft.window.margin(draft.meter.margin).of(prompt)
    if params.share is not None and draft.excess > 0:
        asked = min(asked, max(floor, int(params.share * draft.window.tokens)))
        draft = _lowered(draft, asked)
    if draft.window.tokens - prompt - margin < floor:
        return draft
    return _lowered(draft, clamp(draft.window.tokens, prompt, asked, margin, floor))


def squeezed(draft: Draft) -> Draft:
    """The draft with the reply limit that is sent if no step can free more tokens.

    The limit first uses the margin, then falls below the floor (seed 001's third example). Returns the same draft if
    the prompt alone does not fit.
    """
    if draft.reply is None or draft.window.separate or not draft.possible or fits_own(draft):
        return draft
    asked = min(draft.reply, draft.window.max_output or draft.reply)
    reply = clamp(draft.window.tokens, draft.prompt, asked, draft.margin, min(asked, draft.floor))
    return _lowered(draft, min(reply, draft.window.tokens - draft.prompt))


def _lowered(draft: Draft, reply: int) -> Draft:
    return replace(draft, reply=reply) if draft.reply is not None and reply < draft.reply else draft
