"""When the upstream's own count of a prompt decides what happens to it, and what follows from the count.

A count that is not exact has a margin. Where the window lies within the margin around our count, the margin alone
decides that a request is changed: there the upstream is asked. A request that surely fits is never asked about, nor one
that surely does not.
"""

from __future__ import annotations

import dataclasses
import math

from msgspec.structs import replace

from proxy.model.limits import Margin, Quality
from proxy.model.plan import CountRequest, Draft, Facts

KIND = "count"  # of the want, and its key
# Anthropic calls its counts estimates: "the actual number of input tokens used may differ by a small amount".
WHOLE_MARGIN = Margin(100, 0.01)
BELIEVABLE = 0.3  # by which an upstream's count may differ from ours, as a share of ours
# A ratio is rounded up to a multiple of this. It differs a little at each turn of a conversation, and cuts that moved
# with it would lose the provider's prompt cache.
RATIO_STEP = 0.02


def is_near(draft: Draft) -> bool:
    """Whether a draft is nearer to its window than the margin of its count: `|window - prompt - reply| < margin`."""
    return draft.meter.quality is not Quality.EXACT and 0 < draft.excess < 2 * draft.margin


def is_believable(draft: Draft, tokens: int) -> bool:
    """Whether an upstream's count of a prompt may be true: ours, as far as it is calibrated, is near it."""
    return (1 - BELIEVABLE) * draft.prompt <= tokens <= (1 + BELIEVABLE) * draft.prompt


def with_count(facts: Facts, request: CountRequest, tokens: int) -> Facts:
    """The facts with the upstream's count of what the client sent; 0: there is none.

    What is left of a cut prompt may have another ratio than all of it, so it keeps the margin of our counts.
    """
    if tokens <= 0 or request.draft.prompt <= 0:
        return replace(facts, counter=False)
    ratio = tokens / request.draft.prompt
    stepped = math.ceil(ratio / RATIO_STEP - 1e-9) * RATIO_STEP
    whole = facts.meter.counted(ratio, WHOLE_MARGIN)
    return replace(
        facts, counter=False, provider_count=tokens, provider_meter=whole, meter=facts.meter.counted(stepped)
    )


def counted_by_provider(draft: Draft, tokens: int) -> Draft:
    """The draft of what the client sent with the upstream's count. Its parts are rounded, so their sum differs."""
    return dataclasses.replace(draft, prompt=tokens, rounding=tokens - draft.prompt)


def without_count(facts: Facts) -> Facts:
    """The facts for a request that the upstream has refused: its own count of the prompt was wrong, or is no bound."""
    return replace(facts, counter=False, provider_count=0, provider_meter=None)
