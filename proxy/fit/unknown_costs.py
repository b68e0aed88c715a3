"""Parts whose cost a body does not show (an image by its URL, a file by its id): what is not known cuts nothing.

Theory of operation
===================

Such a part counts as what it usually costs, in every figure that is shown. But until the upstream has refused the
request, it is planned by what its body shows: without these parts, with a margin that is wider by their usual cost, up
to `MOST_ALLOWED`. So they alone neither refuse a request nor cut it. After a refusal they count: as much as the
upstream's own count of the prompt leaves for them, if it named one, else what they usually cost.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.fit.learn import named_prompt
from proxy.model.conversation import Block, Message
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts
from proxy.model.ports import Meter
from proxy.model.structs import replace

MOST_ALLOWED = 1_000  # tokens


def unknown_tokens(meter: Meter, messages: Iterable[Message]) -> int:
    """The tokens that parts of unknown cost count as."""
    return sum(medium.tokens for medium in meter.media(tuple(messages)) if not medium.known)


def on_what_is_shown(facts: Facts, tokens: int) -> Facts:
    """The facts with a meter that counts only what the body shows; parts of unknown cost, which usually cost so many
    tokens, widen its margin."""
    return replace(facts, meter=facts.meter.with_media(0.0, min(tokens, MOST_ALLOWED)))


def restated(draft: Draft, rate: float = 1.0) -> Draft:
    """The draft with parts of unknown cost at `rate` times their usual cost."""
    counted = replace(draft, meter=draft.meter.with_media(rate))
    return counted.with_blocks([_recounted(counted, block) for block in draft.blocks])


def _recounted(draft: Draft, block: Block) -> Block:
    return replace(block, messages=draft.recount(block.messages))


def after_refusal(facts: Facts, sent: Draft, refusal: Refusal) -> tuple[Facts, Draft]:
    """The facts after a refusal of `sent`, and that draft, with the cost of what was unknown: what the upstream's own
    count of the prompt leaves for it."""
    facts = replace(facts, assuming=True)
    usual, true = unknown_tokens(sent.meter, sent.messages), named_prompt(sent, refusal)
    if not usual or true is None or refusal.at_least:
        return facts, sent
    rate = max(0, true - sent.prompt + usual) / usual
    return replace(facts, meter=facts.meter.with_media(rate)), restated(sent, rate)
