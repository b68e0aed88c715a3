"""Adds up what answered requests cost at list price, and how much of their prompts providers' caches hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.fit.money import (
    BROKEN_OFF,
    DEFAULT_CACHE,
    Bill,
    Prices,
    PricesOf,
    PromptCache,
    bill,
    is_plain,
    is_unchanged,
    prices_for,
    used,
)
from proxy.model.outcome import FIRST, MOVED, UNFITTED, Outcome, Usage
from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.groups import OTHER, Group
from proxy.observe.metrics.outcome_metrics import Metric
from proxy.observe.metrics.series import Series

CACHE_ERRORS = (-0.5, -0.25, -0.1, -0.05, -0.01, 0.01, 0.05, 0.1, 0.25, 0.5)
ACCEPTED, TOO_LONG = "accepted", "too_long"
FEW = 3  # messages of a conversation without an earlier turn: instructions, a question, a retry
KINDS = ("input", "output", "cache_read", "cache_write")
REPORTED, USAGE, COUNT, PARTIAL, UNPRICED = BASES = ("reported", "usage", "count", "partial", "unpriced")


def no_prices(model: str, upstream: str | None) -> Prices | None:
    """No model has a price."""
    return None


CUTS = Metric(
    "plimsoll_cuts_total",
    "Cut requests by what became of the prefix that was sent before: first (nothing was), kept, or moved.",
    ("prefix",),
)
REPEATED = Metric(
    "plimsoll_repeated_prefix_tokens_total",
    "Prompt tokens that repeat a prefix that was sent before, so that the upstream's prompt cache may hold them.",
    base="sent",
)
CACHE_ERROR = Metric(
    "plimsoll_cached_error_ratio",
    "Error of the expected cached tokens against the upstream's usage: (expected - reported) / prompt.",
    buckets=CACHE_ERRORS,
    base="sent",
)
UNSURE = Metric(
    "plimsoll_net_unsure_requests_total",
    "Cut requests whose earlier turns this worker did not see, or of which the upstream had cached more than it saw: "
    "the cost of the original, net of the prompt cache, may be lower than estimated.",
)
ASKED = Metric(
    "plimsoll_cost_asked_usd_total",
    "Cost of answered requests if the originals had been sent, without the prompt cache; only originals that fit.",
    keeps="caller",
)
ASKED_NET = Metric(
    "plimsoll_cost_asked_net_usd_total",
    "Cost of answered requests if the originals had been sent, net of the prompt cache; only originals that fit.",
    keeps="caller",
)
SENT = Metric(
    "plimsoll_cost_sent_usd_total",
    "Cost of answered requests as they were sent, without the prompt cache.",
    ("original",),
    keeps="caller",
)
SENT_NET = Metric(
    "plimsoll_cost_sent_net_usd_total",
    "Cost of answered requests as they were sent, net of the prompt cache.",
    ("original",),
    keeps="caller",
)
PRICED = Metric(
    "plimsoll_priced_requests_total",
    "Requests by the basis of their cost: reported by the upstream, its usage, our count (without the reply), partial "
    "(the answer broke off: the prompt, and an estimate of what came of the reply), or unpriced.",
    ("basis",),
    keeps="caller",
)
PRICE = Metric(
    "plimsoll_token_price_usd",
    "List price of one token, of the models that were used.",
    ("model", "kind"),
    base="",
    newest=True,
)
COST_METRICS = (CUTS, REPEATED, CACHE_ERROR, UNSURE, ASKED, ASKED_NET, SENT, SENT_NET, PRICED, PRICE)


@dataclass(slots=True)
class Trust:
    """How many cached tokens were expected of a model, and how many of these were reported."""

    expected: int = 0
    reported: int = 0

    @property
    def share(self) -> float:
        """The share of expected tokens that is reported; 1 before the first."""
        return self.reported / self.expected if self.expected else 1.0


@dataclass(slots=True)
class Costs:
    """The values of `COST_METRICS`."""

    prices: PricesOf = no_prices
    series: dict[str, Series] = field(default_factory=lambda: {m.name: Series.of(m) for m in COST_METRICS})
    _trust: dict[Labels, Trust] = field(default_factory=dict)

    def add(self, group: Group, outcomes: Sequence[Outcome]) -> None:
        """Adds outcomes of one group."""
        if group.key.endpoint in UNFITTED:
            return
        if not 200 <= group.key.status < 300:
            if group.key.result not in BROKEN_OFF:
                return
            outcomes = [outcome for outcome in outcomes if outcome.attempts]
        sent = self.prices(group.key.model_sent or group.key.model, group.key.upstream)
        trust = self._trust.setdefault(group.sent.pair, Trust())
        cache = DEFAULT_CACHE if sent is None else sent.cache
        repeated = [outcome for outcome in outcomes if outcome.repeated is not None]
        if repeated:
            self._add_repeated(group, repeated, cache, trust)
        if sent is not None:
            self._add_prices(group, sent)
        self._add_bills(group, outcomes, sent, trust.share)

    def _add_repeated(self, group: Group, outcomes: Sequence[Outcome], cache: PromptCache, trust: Trust) -> None:
        all_expected, errors = 0, []
        for outcome in outcomes:
            repeated, usage = outcome.repeated, outcome.usage
            assert repeated is not None
            expected = cache.expected(repeated, repeated.sent, moved=repeated.prefix == MOVED)
            all_expected += expected
            if repeated.prefix:
                self._count(CUTS, group, (repeated.prefix,), 1)
                unseen = repeated.prefix == FIRST and outcome.messages_in > FEW
                if unseen or (usage is not None and usage.cached > expected):
                    self._count(UNSURE, group, (), 1)
            if usage is not None and usage.prompt:
                trust.expected += expected
                trust.reported += min(usage.cached, expected)
                errors.append((expected - usage.cached) / usage.prompt)
        self._count(REPEATED, group, (), all_expected)
        self.series[CACHE_ERROR.name].buffer.add(group.sent.pair, errors)

    def _add_prices(self, group: Group, prices: Prices) -> None:
        for kind, price in zip(KINDS, prices.rates, strict=False):
            if price is not None and group.model_sent != OTHER:  # which are many models
                self._count(PRICE, group, (group.model_sent, kind), price)

    def _add_bills(self, group: Group, outcomes: Sequence[Outcome], sent: Prices | None, trust: float) -> None:
        """Adds costs. Those of unchanged requests are computed from the sum of their tokens, where prices permit it."""
        rest: Iterable[Outcome] = outcomes
        usages = [] if sent is None else [o.usage for o in outcomes if o.usage and is_plain(o) and is_unchanged(o)]
        if sent is not None and usages and sent.is_linear(usages):
            total = sent.bill(_total(usages))
            self._add_bill(group, Bill(total, total), USAGE, len(usages))
            if len(usages) == len(outcomes):  # as nearly always
                return
            rest = [o for o in outcomes if not (is_plain(o) and is_unchanged(o))]
        for outcome in rest:
            found = self._bill(group, outcome, trust)
            self._add_bill(group, found, UNPRICED if found is None else basis_of(outcome), 1)

    def _bill(self, group: Group, o: Outcome, trust: float) -> Bill | None:
        """The costs of one request. None if they are not known."""
        model, sent_model, upstream = group.key.model, group.key.model_sent or group.key.model, group.key.upstream
        sent = prices_for(self.prices, sent_model, upstream, o.usage)
        asked = sent if model == sent_model else self.prices(model, None)
        usage = used(o, DEFAULT_CACHE if sent is None else sent.cache, trust)
        return None if usage is None else bill(o, usage, asked, sent, trust)

    def _add_bill(self, group: Group, found: Bill | None, basis: str, count: int) -> None:
        self._count(PRICED, group, (basis,), count)
        if found is None:
            return
        original = TOO_LONG if found.asked is None else ACCEPTED
        self._count(SENT, group, (original,), found.sent.gross)
        self._count(SENT_NET, group, (original,), found.sent.net)
        if found.asked is not None:
            self._count(ASKED, group, (), found.asked.gross)
            self._count(ASKED_NET, group, (), found.asked.net)

    def _count(self, metric: Metric, group: Group, labels: Labels, value: float) -> None:
        self.series[metric.name].buffer.add((*metric.base_of(group), *labels), (value,))


def basis_of(o: Outcome) -> str:
    """What the cost of a request rests on: a value of `BASES`."""
    if o.usage is not None and o.usage.extra is not None and o.usage.extra.cost is not None:
        return REPORTED
    if o.result in BROKEN_OFF:
        return PARTIAL
    return COUNT if o.usage is None else USAGE


def _total(usages: Sequence[Usage]) -> Usage:
    """The sum. Each prompt's cached tokens are at most the prompt."""
    return Usage(
        sum([usage.prompt for usage in usages]),
        sum([usage.completion for usage in usages]),
        sum([min(usage.cached, usage.prompt) for usage in usages]),
    )
