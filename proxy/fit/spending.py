"""What a request takes from a budget: by its usage once it has ended, and before, as much as it may be. It knows no
caller, and adds nothing up.

A model without a price takes from a budget of money what a large model costs: nothing is free because nobody knows what
it costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.fit.money import BROKEN_OFF, DEFAULT_CACHE, PricesOf, Rates, Unpriced, paid, prices_for, used
from proxy.model.budget import NANO, Budget, Unit
from proxy.model.outcome import Outcome, Repeated, Usage

UNPRICED = Rates(5e-6, 25e-6)  # of a model without a price: those of a large one, in US dollars per token
USUAL_REPLY = 1_024  # tokens of a reply without a limit, until there are replies to learn from
LEAST_REPLIES = 8
MOST = 1 << 52  # that one request takes: sums stay exact
SHARE = 0.95  # of the replies of a caller that are no longer


def usual_reply(lengths: Sequence[int]) -> int:
    """How long the reply of a request without a limit may be: the 95th percentile of these, in tokens."""
    if len(lengths) < LEAST_REPLIES:
        return USUAL_REPLY
    return sorted(lengths)[min(len(lengths) - 1, int(SHARE * len(lengths)))]


def expected(budget: Budget, prices: PricesOf, sent_as: tuple[str, str], most: Usage, repeated: Repeated | None) -> int:
    """The most that a request takes, which will be sent for a model to an upstream (`sent_as`), less what its prompt
    will be read from the provider's cache. `most`: its prompt and the longest reply. `repeated`: what of it was sent
    there before."""
    found = prices(*sent_as)
    cache = DEFAULT_CACHE if found is None else found.cache
    same = None if repeated is None or cache.marked else repeated
    cached = 0 if same is None else cache.expected(same, min(same.sent, most.prompt))
    return _dearer(budget, prices, sent_as, replace(most, cached=cached) if cached else most)


def _dearer(budget: Budget, prices: PricesOf, sent_as: tuple[str, str], usage: Usage) -> int:
    """What a usage takes whose tier only the client names: an upstream that does not know it serves at the usual
    price, and does not say so."""
    found = amount(budget, prices, sent_as, usage)
    return max(found, amount(budget, prices, sent_as, replace(usage, tier=""))) if usage.tier else found


def amount(budget: Budget, prices: PricesOf, sent_as: tuple[str, str], usage: Usage) -> int:
    """What a usage takes from a budget: tokens, or billionths of a dollar. Never less than nothing, nor more than a
    budget may have, whatever an upstream reports."""
    if usage.cached > usage.prompt:
        usage = replace(usage, cached=max(0, usage.prompt))
    return min(max(_amount(budget, prices, sent_as, usage), 0), MOST)


def _amount(budget: Budget, prices: PricesOf, sent_as: tuple[str, str], usage: Usage) -> int:
    cached = 0 if budget.everything else usage.cached
    if budget.unit is Unit.TOKENS:
        return usage.prompt - cached + usage.completion
    cost = paid(prices_for(prices, *sent_as, usage), usage)
    if cost is Unpriced.MODEL:
        return round(NANO * ((usage.prompt - cached) * UNPRICED.input + usage.completion * UNPRICED.output))
    if isinstance(cost, Unpriced):  # of searches: all but these
        cost = paid(prices_for(prices, *sent_as, usage), replace(usage, extra=None))
    assert not isinstance(cost, Unpriced)
    return round(NANO * (cost.gross if budget.everything else cost.net))


def of_outcome(budget: Budget, prices: PricesOf, outcome: Outcome) -> int:
    """What a request took that has ended: by the usage that was reported, else by our count and by what came of its
    reply. Nothing, if it was not sent, or if the upstream answered with an error. Calls of our own for it count."""
    model, upstream = outcome.model_sent or outcome.model, outcome.upstream
    found = prices(model, upstream) if outcome.usage is None else None  # by which a usage is estimated
    usage = used(outcome, DEFAULT_CACHE if found is None else found.cache) if is_billed(outcome) else None
    if outcome.extra_tokens:
        usage = replace(usage or Usage(0), prompt=(0 if usage is None else usage.prompt) + outcome.extra_tokens)
    if usage is None:
        return 0
    is_told = outcome.usage is not None and outcome.usage.tier != ""
    return (amount if is_told else _dearer)(budget, prices, (model, upstream), usage)


def is_billed(outcome: Outcome) -> bool:
    """Whether the upstream may have begun to answer. A client that left before is billed, too: the upstream works."""
    return outcome.attempts > 0 and (outcome.status < 400 or outcome.result in BROKEN_OFF)
