"""Adds up the results of a replay under one column: requests, tokens, money, steps, agreement with recorded usage.

Money is at list price, or in proportion to a cost that the upstream reported, and net of the provider's prompt cache,
of which as large a share is trusted as the provider reported so far. What the cache holds is modelled twice, by what
the clients sent and by what would have been sent (`proxy.fit.prompt_cache`), so that a cut which moves the prefix costs
what it costs. A request that would have been refused as it was sent has no cost as it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.apis import apis
from proxy.fit.money import CACHES, DEFAULT_CACHE, Prices, PromptCache, Sum, Unpriced, in_tier, paid, price, prices_for
from proxy.fit.prompt_cache import Hit, PrefixStore
from proxy.fit.spending import amount
from proxy.model.budget import STAGES
from proxy.model.outcome import Usage
from proxy.model.structs import replace
from proxy.observe.metrics.costs import Trust
from proxy.replay.agreement import Errors
from proxy.replay.budgets import Booking, Ledger
from proxy.replay.engine import Result, is_among
from proxy.replay.evidence import Kept, Replies
from proxy.replay.plan_worker import Cut, Planned
from proxy.replay.prices import PricesAt, no_prices
from proxy.replay.recorded import Figures, Recorded
from proxy.replay.series import Loads, OverTime, Span
from proxy.replay.values import MAX_NAME
from proxy.wire.usage import extra_of

NEAR = 0.8  # the load from which a request is near its window
MAX_GROUPS = 200  # models, or apps, that are told apart
OTHERS, UNNAMED = "(others)", "(unnamed)"
NOTABLE = 1_024  # tokens of a prompt from which providers cache
CACHES_BY_API = {api.name: CACHES[api.server.prompt_cache] for api in apis() if api.server.prompt_cache}


@dataclass(slots=True)
class Sums:
    """Figures of some requests. Tokens are of prompts; money is in US dollars.

    `guessed`: requests for models whose window is not known; they are taken to fit. `near`, `over`: requests by load as
    they were sent. `too_long`: what their upstreams would have refused; of these `answered` would have been made to
    fit. `unfit`: those that could not; `held`: those whose caller's rule lets nothing be changed; `denied`: those whose
    budget is used up. `refused`: of those that are too long, the ones that were refused when they were recorded.
    `cached_*`: tokens that the provider's cache holds, of what clients sent and of what would have been sent; `cut_*`:
    the same of requests that were cut. `asked_*`, `sent_*`: costs of requests that fit as they were sent;
    `rescued_net`: of those that did not, and were made to fit. `evidence`: what replies took from those that were cut
    or not sent.
    """

    requests: int = 0
    planned: int = 0
    guessed: int = 0
    near: int = 0
    over: int = 0
    too_long: int = 0
    answered: int = 0
    unfit: int = 0
    held: int = 0
    denied: int = 0
    cut: int = 0
    prompt: int = 0
    prompt_sent: int = 0
    removed: int = 0
    cached_asked: int = 0
    cached_sent: int = 0
    cut_prompt: int = 0
    cut_cached_asked: int = 0
    cut_cached_sent: int = 0
    priced: int = 0
    unpriced: int = 0
    asked_gross: float = 0.0
    asked_net: float = 0.0
    sent_gross: float = 0.0
    sent_net: float = 0.0
    rescued_net: float = 0.0
    refused: int = 0
    refused_answered: int = 0
    evidence: Kept = field(default_factory=Kept)

    def add(self, p: Planned, recorded: Recorded) -> None:
        """Adds a planned request."""
        self.requests += 1
        if p.unplanned:
            return
        self.planned += 1
        self.guessed += p.guessed
        self.over += p.over
        self.near += not p.over and p.load >= NEAR and not p.guessed
        self.too_long += p.too_long
        self.answered += p.too_long and p.possible
        self.unfit += not p.possible and p.changes and not p.denied
        self.denied += p.denied
        self.held += not p.changes
        self.cut += p.prompt_sent != p.prompt
        self.prompt += p.prompt
        self.prompt_sent += p.prompt_sent if p.possible else 0
        self.removed += p.prompt - p.prompt_sent if p.possible else 0
        refused = recorded.status in (400, 413, 422) and p.too_long
        self.refused += refused
        self.refused_answered += refused and p.possible

    def add_cached(self, p: Planned, asked: Hit, sent: Hit) -> None:
        """Adds what the provider's cache holds of a request."""
        self.cached_asked += asked.read
        self.cached_sent += sent.read
        if p.changed:
            self.cut_prompt += p.prompt_sent
            self.cut_cached_asked += asked.read
            self.cut_cached_sent += sent.read

    def add_cost(self, p: Planned, asked: Sum | Unpriced, sent: Sum | Unpriced) -> None:
        """Adds what a request costs as it was sent and as it would have been sent."""
        if isinstance(asked, Unpriced) or isinstance(sent, Unpriced):
            self.unpriced += 1
            return
        self.priced += 1
        if p.too_long:
            self.rescued_net += sent.net
            return
        self.asked_gross += asked.gross
        self.asked_net += asked.net
        self.sent_gross += sent.gross
        self.sent_net += sent.net


class WithoutPrice(NamedTuple):
    """Which requests have no price: for this model, at this upstream or provider (empty: not known), and why."""

    model: str
    where: str
    why: Unpriced


@dataclass(slots=True)
class StepSums:
    """What one step did: to how many requests, and how many tokens it removed."""

    requests: int = 0
    tokens: int = 0


@dataclass(slots=True)
class FiguresOnly:
    """The sums of requests of which only the figures are recorded: they are those of the proxy that recorded them."""

    total: Sums = field(default_factory=Sums)
    models: dict[str, Sums] = field(default_factory=dict)
    callers: dict[str, Sums] = field(default_factory=dict)
    steps: dict[str, StepSums] = field(default_factory=dict)
    prices: PricesAt = no_prices

    def add(self, recorded: Recorded) -> None:
        """Adds a request."""
        figures, model = recorded.figures or Figures(), recorded.model_sent or recorded.model
        prices = self.prices(recorded)
        cost = price(prices, model, recorded.upstream or "", recorded.usage) if recorded.usage else None
        caller = recorded.name or recorded.app or recorded.caller
        for sums in (self.total, _group(self.models, recorded.model), _group(self.callers, caller)):
            sums.requests += 1
            sums.unpriced += isinstance(cost, Unpriced)
            if isinstance(cost, Sum):
                sums.priced += 1
                sums.sent_net += cost.net
            if figures.prompt is None:
                continue
            load = figures.load or 0.0
            sums.planned += 1
            sums.over += load > 1
            sums.near += NEAR <= load <= 1
            sums.prompt += figures.prompt
            sums.prompt_sent += figures.prompt_sent or 0
            sums.removed += figures.prompt - (figures.prompt_sent or 0)
            sums.cut += figures.prompt_sent != figures.prompt
        for name, before, after in figures.steps:
            _count(self.steps, name, before, after)


@dataclass(slots=True)
class Tally:
    """The sums under one column, of all requests and by model and app. `moved`: the column has a model in place of the
    recorded ones, which is not served where they were. `unpriced`: requests by their model, upstream, and why they have
    no price. `rules`: those under each rule by caller."""

    prices: PricesAt
    moved: bool = False
    total: Sums = field(default_factory=Sums)
    models: dict[str, Sums] = field(default_factory=dict)
    apps: dict[str, Sums] = field(default_factory=dict)
    callers: dict[str, Sums] = field(default_factory=dict)
    steps: dict[str, StepSums] = field(default_factory=dict)
    counts: dict[str, Errors] = field(default_factory=dict)
    caches: dict[str, Errors] = field(default_factory=dict)
    unplanned: Counter[str] = field(default_factory=Counter)
    unpriced: Counter[WithoutPrice] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    loads: Loads = field(default_factory=Loads)
    over_time: OverTime = field(default_factory=OverTime)
    ledger: Ledger = field(default_factory=Ledger)
    _shares: dict[int, float] = field(default_factory=dict)
    _cuts: dict[int, tuple[Result, Cut]] = field(default_factory=dict)
    _trust: dict[str, Trust] = field(default_factory=dict)
    _asked: PrefixStore = field(default_factory=PrefixStore)
    _sent: PrefixStore = field(default_factory=PrefixStore)
    _replies: Replies = field(default_factory=Replies)

    def add(self, result: Result, place: int) -> None:
        """Adds the result of one request under the column at this place."""
        recorded = result.placed.recorded
        p, booking = self._booked(result.planned[place], recorded)
        groups = self._groups(p, recorded)
        for sums in groups:
            sums.add(p, recorded)
        if p.unplanned:
            self.unplanned[_name(self.unplanned, p.unplanned)] += 1
            return
        if p.caller:
            self.rules[p.caller] += 1
        for step in p.steps:
            _count(self.steps, step.name, step.before, step.after)
        self._add_evidence(p, recorded, groups, booking)
        usage = self._add_money(p, recorded, groups)
        if booking is not None and p.possible:
            booking.settle(self._amount(p, recorded, usage))
        if place < len(result.cuts) and (cut := result.cuts[place]) is not None and not p.denied:
            self._keep(result, cut)

    def _add_evidence(self, p: Planned, recorded: Recorded, groups: tuple[Sums, ...], booking: Booking | None) -> None:
        """Pairs a request with the one before; redacted ones have other names."""
        if recorded.redacted:
            return
        sums = [one.evidence for one in groups]
        if booking is not None:
            sums.append(booking.sums.evidence)
        whole = p.possible and p.prompt_sent == p.prompt
        self._replies.add((recorded.caller, p.talk), p.evidence, sums, whole=whole, sent=p.possible)

    def _booked(self, p: Planned, recorded: Recorded) -> tuple[Planned, Booking | None]:
        """A request as it is planned in the stage of its budget, or in a later one that has room; refused where none
        has."""
        booking = None if p.unplanned else self.ledger.open(p, recorded)
        if booking is None or p.budget is None:
            return p, None
        for stage in range(booking.stage, STAGES + 1):
            booking.planned = stage
            found = p.staged[stage - 1] if stage and p.staged else p
            usage = _billed(found.prompt_sent, Hit(), 1.0, recorded.usage)
            if not found.possible or booking.admits(self._amount(replace(found, budget=p.budget), recorded, usage)):
                return replace(found, budget=p.budget), booking
            if not p.staged:
                break
        booking.refuse()
        return replace(p, possible=False, denied=True, steps=(), prompt_sent=p.prompt, sent=None), booking

    def _amount(self, p: Planned, recorded: Recorded, usage: Usage) -> int:
        """What a request takes from its budget."""
        assert p.budget is not None
        prices = self.prices(recorded)
        upstream = "" if recorded.upstream is None or self.moved else recorded.upstream
        return amount(p.budget, prices, (p.model_sent, upstream), in_tier(usage, p.tier))

    def _keep(self, result: Result, cut: Cut) -> None:
        """Keeps a cut if it is among the worst, of which each conversation has one."""
        if is_among(self._shares, cut.planned.talk, cut.planned.share_cut):
            self._cuts[cut.planned.talk] = (result, cut)
            self._cuts = {talk: self._cuts[talk] for talk in self._shares}

    @property
    def worst(self) -> list[tuple[Result, Cut]]:
        """The worst cuts, the worst first."""
        return sorted(self._cuts.values(), key=lambda one: -one[1].planned.share_cut)

    def _groups(self, p: Planned, recorded: Recorded) -> tuple[Sums, ...]:
        caller = p.caller or recorded.name or recorded.app or recorded.caller
        return self.total, _group(self.models, p.model), _group(self.apps, recorded.app), _group(self.callers, caller)

    def _add_money(self, p: Planned, recorded: Recorded, groups: tuple[Sums, ...]) -> Usage:
        """Adds what a request costs. Returns the usage of what would be sent."""
        prices = self._prices(p, recorded)
        at, usage = recorded.at or 0.0, recorded.usage
        asked = self._hit(self._asked, recorded.caller, p, at, cache_of(prices[0], p.api), sent=False)
        sent = self._hit(self._sent, recorded.caller, p, at, cache_of(prices[1], p.api), sent=True)
        trust = self._trust.setdefault(_name(self._trust, p.model), Trust())
        usages = tuple(
            in_tier(_billed(prompt, hit, trust.share, usage), p.tier)
            for prompt, hit in ((p.prompt, asked), (p.prompt_sent, sent))
        )
        costs = _costs(p, usage, prices, (usages[0], usages[1]))
        for sums in groups:
            sums.add_cached(p, asked, sent)
            if p.possible:
                sums.add_cost(p, *costs)
        cost = costs[1]
        if p.possible:
            self._note_unpriced(p, recorded, costs)
            paid_net = 0.0 if isinstance(cost, Unpriced) else cost.net
            self.over_time.add(recorded.at, Span(1, p.prompt, p.prompt_sent, p.prompt != p.prompt_sent, paid_net))
        if not p.guessed:
            self.loads.add(p.load, p.load_sent)
        self._compare(p, recorded, asked, trust)
        return usages[1]

    def _prices(self, p: Planned, recorded: Recorded) -> tuple[Prices | None, Prices | None]:
        """The prices of the model that was asked for, and of the one that would be sent."""
        prices, upstream = self.prices(recorded), recorded.upstream or ""
        asked = prices(p.model, None) if self.moved else prices_for(prices, p.model, upstream, recorded.usage)
        return asked, asked if p.model_sent == p.model else prices(p.model_sent, None)

    def _note_unpriced(self, p: Planned, recorded: Recorded, costs: tuple[Sum | Unpriced, Sum | Unpriced]) -> None:
        for model, cost in zip((p.model, p.model_sent), costs, strict=True):
            if isinstance(cost, Unpriced):
                where = "" if self.moved else recorded.provider or recorded.upstream or ""
                key = WithoutPrice(model[:MAX_NAME] or UNNAMED, where, cost)
                known = key in self.unpriced or len(self.unpriced) < MAX_GROUPS
                self.unpriced[key if known else WithoutPrice(OTHERS, "", cost)] += 1
                return

    def _hit(self, store: PrefixStore, caller: str, p: Planned, at: float, cache: PromptCache, *, sent: bool) -> Hit:
        """What the cache does for a prompt that reaches its upstream; one that is refused leaves nothing there."""
        pieces = p.asked if not sent or p.sent is None else p.sent
        if pieces is None or not (p.possible if sent else not p.too_long):
            return Hit()
        return store.add((caller, p.model_sent if sent else p.model), pieces, at, cache)

    def _compare(self, p: Planned, recorded: Recorded, asked: Hit, trust: Trust) -> None:
        """Compares the count and the model of the cache with what was reported of a request that was sent as it is
        recorded. Without its tools no count can agree, but the same share of it is cached."""
        usage, figures = recorded.usage, recorded.figures
        if usage is None or not usage.prompt or (figures is not None and figures.prompt_sent != figures.prompt):
            return
        if not recorded.missing:
            counts = self.counts.setdefault(_name(self.counts, p.model), Errors())
            counts.add(p.prompt, usage.prompt, usage.prompt)
        if usage.prompt >= NOTABLE:
            expected = min(usage.prompt, round(asked.read * usage.prompt / p.prompt) if p.prompt else 0)
            caches = self.caches.setdefault(_name(self.caches, p.model), Errors())
            caches.add(expected, usage.cached, usage.prompt)
            trust.expected += expected
            trust.reported += min(expected, usage.cached)


def _billed(prompt: int, hit: Hit, trust: float, reported: Usage | None) -> Usage:
    """The usage that a prompt would have, if a provider reports this share of what its cache is expected to hold. Its
    reply, its tier, and what is billed otherwise, are those of what was sent."""
    read = round(trust * min(hit.read, prompt))
    written = hit.written + min(hit.read, prompt) - read
    found = Usage(prompt, cached=read, written=written)
    if reported is None:
        return found
    extra = reported.extra
    if extra is not None:
        hour = written * min(1.0, extra.written_hour / reported.written) if reported.written else 0
        extra = extra_of(replace(extra, written_hour=round(hour), cost=None))
    more, tier = reported.completion, reported.tier
    return replace(found, completion=more, reasoning=reported.reasoning, tier=tier, extra=extra)


def _costs(
    p: Planned, reported: Usage | None, prices: tuple[Prices | None, Prices | None], usages: tuple[Usage, Usage]
) -> tuple[Sum | Unpriced, Sum | Unpriced]:
    """What a request costs as it was sent, and as it would have been sent. What the upstream says that it cost outranks
    the prices: costs are larger by as much as that is larger than by the prices."""
    asked, sent = paid(prices[0], usages[0]), paid(prices[1], usages[1])
    cost = None if reported is None or reported.extra is None else reported.extra.cost
    if cost is None or reported is None or prices[1] != prices[0]:
        return asked, sent
    if prices[0] is None:  # known is what was sent alone
        whole = Sum(cost, cost)
        return whole, whole if not p.changed else Unpriced.MODEL
    ours = prices[0].bill(in_tier(reported, p.tier)).net
    if not ours:
        return asked, sent
    scale = cost / ours
    return prices[0].bill(usages[0]).scaled(scale), prices[0].bill(usages[1]).scaled(scale)


def cache_of(prices: Prices | None, api: str) -> PromptCache:
    """How the provider of a model caches: as the table says; of a model that is not in it, as most do with this API."""
    return CACHES_BY_API.get(api, DEFAULT_CACHE) if prices is None else prices.cache


def _count(steps: dict[str, StepSums], name: str, before: int, after: int) -> None:
    made = steps.setdefault(_name(steps, name), StepSums())
    made.requests += 1
    made.tokens += before - after


def _group(groups: dict[str, Sums], name: str) -> Sums:
    return groups.setdefault(_name(groups, name), Sums())


def _name(groups: Collection[str], name: str) -> str:
    """The name under which something is counted: short, and the common one once there are too many others."""
    name = name[:MAX_NAME] or UNNAMED
    return name if name in groups or len(groups) < MAX_GROUPS else OTHERS
