"""What a request costs at list price: as the client sent it, and as it was sent upstream; with the provider's prompt
cache, and without. It has no prices of its own, reads no clock and stores nothing.

Theory of operation
-------------------

A provider bills prompt tokens in three ways: as input, as read from its prompt cache (cheaper) and, for some models, as
written to it (dearer, and dearest where it is kept for an hour). Audio, thinking, the tier of service and searches of
the web may have prices of their own (`Rates`, `Prices`); a cost that the upstream reports itself outranks all of them.
A prompt is read from the cache as far as it repeats one that was sent before (`PromptCache`).
Therefore a cut changes the cost in two ways. It removes input tokens. Where it changes what stands early in the prompt,
it also turns cached tokens into input. A `Bill` has both: costs without the prompt cache, and net of it.

What was sent is billed by the upstream's own `Usage`, else by our count. What the client sent was billed by nobody: its
cached tokens are estimated as the part of it that repeats what the client sent before (`Repeated`), by the provider's
rule. If the upstream reports fewer cached tokens than expected of what was sent, fewer are expected of what was not
(`trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from proxy.model.outcome import DEFAULT_TIER, MOVED, Outcome, Repeated, Usage


class Rates(NamedTuple):
    """List prices in US dollars per token. None: such tokens are billed as input, or as output; those that are written
    to the cache for an hour as others that are written."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_hour: float | None = None
    audio: float | None = None
    audio_reply: float | None = None
    reasoning: float | None = None

    def times(self, factor: float) -> Rates:
        """So many times each price."""
        return Rates._make(None if price is None else price * factor for price in self)

    def prompt(self, tokens: int, cached: float = 0, written: float = 0, hour: float = 0, audio: float = 0) -> float:
        """The cost of a prompt, of which some tokens were read from the cache, others written to it, of these some for
        an hour, and others are audio."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        kept = write if self.cache_write_hour is None else self.cache_write_hour
        heard = self.input if self.audio is None else self.audio
        plain = tokens - cached - written - audio
        return plain * self.input + cached * read + (written - hour) * write + hour * kept + audio * heard

    def reply(self, usage: Usage) -> float:
        """The cost of a reply, with its thinking and audio."""
        thought = 0 if self.reasoning is None else min(usage.reasoning, usage.completion)
        spoken = 0 if usage.extra is None or self.audio_reply is None else usage.extra.audio_reply
        spoken = min(spoken, usage.completion - thought)
        cost = (usage.completion - thought - spoken) * self.output
        return cost + thought * (self.reasoning or 0.0) + spoken * (self.audio_reply or 0.0)


PREFIX, BREAKPOINT = "prefix", "breakpoint"


@dataclass(frozen=True, slots=True)
class PromptCache:
    """When a provider caches prompts.

    `least`: shorter prompts are not cached. `step`: cached prefixes grow by this number of tokens. `seconds`: how long
    a prefix stays after its last use. `marked`: only where the client marks it. `bills_writes`: what is written to the
    cache has a price of its own, where the table names one. `match`: what of an earlier prompt is read: the longest
    prefix (`PREFIX`), or the longest that ends at a breakpoint (`BREAKPOINT`): at a mark of the client, or behind the
    newest message of the user or a tool.
    """

    least: int
    step: int = 1
    seconds: float = 300.0
    marked: bool = False
    bills_writes: bool = True
    match: str = PREFIX

    def expected(self, repeated: Repeated | None, tokens: int, *, moved: bool = False) -> int:
        """The cached tokens of a prompt that repeats `tokens` of what was sent `repeated.idle` seconds ago.

        `moved`: it changes what was sent before its end. Then it is not known whether a breakpoint stands in what it
        repeats, and none is expected.
        """
        if repeated is None or repeated.idle > self.seconds or (moved and self.match == BREAKPOINT):
            return 0
        return self.cacheable(tokens)

    def cacheable(self, tokens: int) -> int:
        """How many of the first tokens of a prompt can be in the cache."""
        return 0 if tokens < self.least else self.least + (tokens - self.least) // self.step * self.step


# By provider; a model's own figure overrides `least`, and a `[[cache]]` row of rules/windows.toml the rest. Others are
# taken to cache as OpenAI does. Sources:
# OpenAI, Prompt caching: "1024 tokens or more", "increments of 128 tokens", "5 to 10 minutes of inactivity".
# Anthropic, Prompt caching: `cache_control`, 1,024 tokens for most models, 5 minutes, refreshed by use.
# Google, Gemini API, Context caching: implicit, at least 1,024 tokens, nothing for writing.
# DeepSeek, Context caching: units of 64 tokens, hours.
CACHES = {
    "openai": PromptCache(1024, 128, 600.0),
    "anthropic": PromptCache(1024, marked=True),
    "gemini": PromptCache(1024, bills_writes=False),
    "deepseek": PromptCache(64, 64, 3600.0),
}
DEFAULT_CACHE = CACHES["openai"]


Over = tuple[tuple[int, Rates], ...]  # thresholds in prompt tokens, ascending, with the rates of prompts over them
BATCH = "batch"  # the tier of what is sent in batches: half of the usual price, where the table does not say it
NO_TIERS: Mapping[str, tuple[Rates, Over]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model. `over`: the rates of whole requests whose prompts are over a threshold. `tiers`: the rates
    of tiers of service that have their own, with theirs over thresholds; all others are billed as the usual one.
    `search`: a search of the web, in US dollars; None: not known. `search_once`: all those of a request are one."""

    rates: Rates
    cache: PromptCache = DEFAULT_CACHE
    over: Over = ()
    tiers: Mapping[str, tuple[Rates, Over]] = field(default_factory=lambda: NO_TIERS)
    search: float | None = None
    search_once: bool = False

    def of(self, prompt: int, tier: str = "") -> Rates:
        """The rates of a request by the tokens of its prompt, and by its tier of service."""
        found, over = self.tiers.get(tier, (self.rates, self.over)) if tier else (self.rates, self.over)
        for threshold, rates in over:
            if prompt > threshold:
                found = rates
        return found.times(0.5) if tier == BATCH and BATCH not in self.tiers else found

    @property
    def bills_writes(self) -> bool:
        """Whether tokens that are written to the cache have a price of their own."""
        return self.cache.bills_writes and self.rates.cache_write is not None

    def is_linear(self, usages: Sequence[Usage]) -> bool:
        """Whether the cost of several requests is that of their sum. They are of the usual tier, without an `extra`."""
        if self.bills_writes or self.rates.reasoning is not None:
            return False
        return not self.over or max(usage.prompt for usage in usages) <= self.over[0][0]

    def bill(self, usage: Usage) -> Sum:
        """The cost of what was sent, by its usage. Written tokens that a provider does not report, although it bills
        them, are those that its cache can hold and did not."""
        rates = self.of(usage.prompt, usage.tier)
        cached = min(usage.cached, usage.prompt)
        unknown = 0.0 if self.cache.marked else self._written(usage.prompt, cached)
        written = unknown if usage.written is None else usage.written
        return self._sum(rates, usage.prompt, cached, written, usage)

    def bill_unsent(self, prompt: int, usage: Usage, repeated: Repeated | None, trust: float) -> Sum:
        """The estimated cost of a prompt that was not sent, with the reply that what was sent instead got.

        `usage` is that of what was sent. `trust`: the share of expected cached tokens that the upstream reports (0 to
        1). Without `repeated`, as large a part of the prompt is cached as of what was sent; no less where more of that
        was cached than expected: another worker has sent its prefix.
        """
        rates = self.of(prompt, usage.tier)
        share = prompt * min(1.0, usage.cached / usage.prompt) if usage.prompt else 0.0
        if repeated is None:
            cached = share
        elif self.cache.marked and not usage.cached and not usage.written:
            cached = 0.0  # the client does not mark what is to be cached
        else:
            cached = trust * self.cache.expected(repeated, min(prompt, repeated.asked))
            cached = max(cached, share) if self.was_sent_elsewhere(repeated, usage) else cached
        writes = not self.cache.marked or usage.cached or usage.written
        return self._sum(rates, prompt, cached, self._written(prompt, cached) if writes else 0.0, usage)

    def was_sent_elsewhere(self, repeated: Repeated, usage: Usage) -> bool:
        """Whether more was cached of a prompt than what this worker had sent of it: another one has."""
        moved = repeated.prefix == MOVED
        return usage.cached > self.cache.expected(repeated, min(repeated.sent, usage.prompt), moved=moved)

    def _written(self, prompt: int, cached: float) -> float:
        """The tokens of a prompt that its provider's cache can hold and did not."""
        return max(0.0, self.cache.cacheable(prompt) - cached)

    def _sum(self, rates: Rates, prompt: int, cached: float, written: float, usage: Usage) -> Sum:
        written = min(written, prompt - cached) if self.bills_writes else 0.0
        extra, more = usage.extra, rates.reply(usage)
        if extra is None:
            return Sum(rates.prompt(prompt) + more, rates.prompt(prompt, cached, written) + more)
        more += self._searches(extra.searches)
        hour = written * min(1.0, extra.written_hour / usage.written) if usage.written else 0.0
        audio = min(extra.audio, prompt)
        left = min(audio, prompt - cached - written)
        return Sum(
            rates.prompt(prompt, audio=audio) + more, rates.prompt(prompt, cached, written, hour, audio=left) + more
        )

    def _searches(self, count: int) -> float:
        return (self.search or 0.0) * (min(count, 1) if self.search_once else count)


class Sum(NamedTuple):
    """A cost in US dollars, without the prompt cache and net of it."""

    gross: float
    net: float

    def scaled(self, by: float) -> Sum:
        """So many times the cost."""
        return Sum(self.gross * by, self.net * by)


class Unpriced(StrEnum):
    """Why the cost of a request is not known: its model has no price at its upstream; nobody knows its tokens; it
    searched the web, which has no price; or what the client asked for has none."""

    MODEL = "no_price"
    TOKENS = "no_tokens"
    SEARCHES = "no_price_of_searches"


# The prices of a model at the upstream of this name (empty: the only one; None: the one that its requests go to).
PricesOf = Callable[[str, str | None], Prices | None]


def price(prices: PricesOf, model: str, upstream: str, usage: Usage | None, tier: str = "") -> Sum | Unpriced:
    """The cost of a request that was sent for `model` to `upstream`, by its usage. `tier`: the tier of service that was
    asked for; the one that the answer reports outranks it. A model that has no price under its own name (a deployment
    of Azure's) has that of the model that its answer names."""
    if usage is None:
        return Unpriced.TOKENS
    return paid(prices_for(prices, model, upstream, usage), in_tier(usage, tier))


def prices_for(prices: PricesOf, model: str, upstream: str, usage: Usage | None) -> Prices | None:
    """The prices of a model under its own name, else of the one that the answer names."""
    found = prices(model, upstream)
    return prices(usage.model, upstream) if found is None and usage is not None and usage.model else found


def in_tier(usage: Usage, asked: str) -> Usage:
    """The usage with the tier of service that was asked for, if it reports none."""
    return replace(usage, tier=asked) if asked and not usage.tier else usage


def paid(prices: Prices | None, usage: Usage) -> Sum | Unpriced:
    """The cost of what was sent: as the upstream reports it, else by the prices. The cost without the prompt cache is
    then larger by as much as by the prices."""
    reported = None if usage.extra is None else usage.extra.cost
    if prices is None:
        return Unpriced.MODEL if reported is None else Sum(reported, reported)
    if reported is None:
        searched = usage.extra is not None and usage.extra.searches and prices.search is None
        return Unpriced.SEARCHES if searched else prices.bill(usage)
    ours = prices.bill(usage)
    return ours.scaled(reported / ours.net) if ours.net else Sum(reported, reported)


class Bill(NamedTuple):
    """The costs of one request, or of several: as the client sent it (None: it would not have been accepted), and as it
    was sent."""

    asked: Sum | None
    sent: Sum


# The results of requests whose answers broke off.
BROKEN_OFF = frozenset(("broken_off", "cancelled", "stopped"))


def used(o: Outcome, cache: PromptCache, trust: float = 1.0) -> Usage | None:
    """The tokens that a request is billed for, as reported; else as counted, with an estimate of the cached ones and
    without the reply. None if unknown. Of an answer that broke off the reply is what came of it, by an estimate."""
    if o.usage is not None:
        usage = o.usage if o.result not in BROKEN_OFF else replace(o.usage, completion=max(o.usage.completion, o.came))
        return in_tier(usage, o.tier)
    if o.prompt_sent is None:
        return None
    repeated, came = None if cache.marked else o.repeated, o.came
    if repeated is None:
        return Usage(o.prompt_sent, came, tier=o.tier)
    expected = cache.expected(repeated, min(repeated.sent, o.prompt_sent), moved=repeated.prefix == MOVED)
    return Usage(o.prompt_sent, came, round(trust * expected), tier=o.tier)


def is_plain(o: Outcome) -> bool:
    """Whether the usage of an outcome is reported, whole, and of the usual tier, with nothing that has its own price
    besides thinking."""
    usage = o.usage
    return (
        usage is not None
        and usage.extra is None
        and (usage.tier or o.tier or DEFAULT_TIER) == DEFAULT_TIER
        and o.result not in BROKEN_OFF
    )


def is_unchanged(o: Outcome) -> bool:
    """Whether the prompt and the model are those that the client sent."""
    return o.prompt == o.prompt_sent and o.model_sent in ("", o.model) and not (o.too_long or o.healed)


def bill(o: Outcome, usage: Usage, asked: Prices | None, sent: Prices | None, trust: float = 1.0) -> Bill | None:
    """The costs of an answered request, by the prices of the model that the client named and of the one that was sent.
    None if what was sent, or what the client asked for, has no price."""
    found = paid(sent, usage)
    if isinstance(found, Unpriced):
        return None
    if o.too_long or o.healed:
        return Bill(None, found)
    if is_unchanged(o):
        return Bill(found, found)
    if asked is None or sent is None or o.prompt is None or not o.prompt_sent:
        return None
    scale = usage.prompt / o.prompt_sent if o.model_sent == o.model else 1.0  # by how much our count is off
    unsent, ours = asked.bill_unsent(round(o.prompt * scale), usage, o.repeated, trust), sent.bill(usage)
    return Bill(unsent.scaled(found.net / ours.net) if ours.net else unsent, found)
