"""What a request costs at list price: as the client sent it, and as it was sent upstream; with the provider's prompt
cache, and without. It has no prices of its own, reads no clock and stores nothing.

Theory of operation
-------------------

A provider bills prompt tokens in three ways: as input, as read from its prompt cache (cheaper) and, for some models, as
written to it (dearer). A prompt is read from the cache as far as it repeats one that was sent before (`PromptCache`).
Therefore a cut changes the cost in two ways. It removes input tokens. Where it changes what stands early in the prompt,
it also turns cached tokens into input. A `Bill` has both: costs without the prompt cache, and net of it.

What was sent is billed by the upstream's own `Usage`, else by our count. What the client sent was billed by nobody: its
cached tokens are estimated as the part of it that repeats what the client sent before (`Repeated`), by the provider's
rule. If the upstream reports fewer cached tokens than expected of what was sent, fewer are expected of what was not
(`trust`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.model.outcome import MOVED, Outcome, Repeated, Usage


class Rates(NamedTuple):
    """List prices in US dollars per token. None: such tokens are billed as input."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def prompt(self, tokens: int, cached: float = 0, written: float = 0) -> float:
        """The cost of a prompt, of which some tokens were read from the cache and others written to it."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return (tokens - cached - written) * self.input + cached * read + written * write


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


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model. `over`: thresholds in prompt tokens, ascending, with the rates of whole requests whose
    prompts are over them."""

    rates: Rates
    cache: PromptCache = DEFAULT_CACHE
    over: tuple[tuple[int, Rates], ...] = ()

    def of(self, prompt: int) -> Rates:
        """The rates of a request by the tokens of its prompt."""
        found = self.rates
        for threshold, rates in self.over:
            if prompt > threshold:
                found = rates
        return found

    @property
    def bills_writes(self) -> bool:
        """Whether tokens that are written to the cache have a price of their own."""
        return self.cache.bills_writes and self.rates.cache_write is not None

    def is_linear(self, usages: Sequence[Usage]) -> bool:
        """Whether the cost of several requests is that of their sum."""
        if self.bills_writes:
            return False
        return not self.over or max(usage.prompt for usage in usages) <= self.over[0][0]

    def bill(self, usage: Usage) -> Sum:
        """The cost of what was sent, by its usage. Written tokens that a provider does not report, although it bills
        them, are those that its cache can hold and did not."""
        rates = self.of(usage.prompt)
        cached = min(usage.cached, usage.prompt)
        unknown = 0.0 if self.cache.marked else self._written(usage.prompt, cached)
        written = unknown if usage.written is None else usage.written
        return self._sum(rates, usage.prompt, cached, written, usage)

    def bill_unsent(self, prompt: int, usage: Usage, repeated: Repeated | None, trust: float) -> Sum:
        """The estimated cost of a prompt that was not sent, with the reply that what was sent instead got.

        `usage` is that of what was sent. `trust`: the share of expected cached tokens that the upstream reports (0 to
        1). Without `repeated`, as large a part of the prompt is cached as of what was sent.
        """
        rates = self.of(prompt)
        if repeated is None:
            cached = prompt * min(1.0, usage.cached / usage.prompt) if usage.prompt else 0.0
        elif self.cache.marked and not usage.cached and not usage.written:
            cached = 0.0  # the client does not mark what is to be cached
        else:
            cached = trust * self.cache.expected(repeated, min(prompt, repeated.asked))
        writes = not self.cache.marked or usage.cached or usage.written
        return self._sum(rates, prompt, cached, self._written(prompt, cached) if writes else 0.0, usage)

    def _written(self, prompt: int, cached: float) -> float:
        """The tokens of a prompt that its provider's cache can hold and did not."""
        return max(0.0, self.cache.cacheable(prompt) - cached)

    def _sum(self, rates: Rates, prompt: int, cached: float, written: float, usage: Usage) -> Sum:
        written = min(written, prompt - cached) if self.bills_writes else 0.0
        reply = usage.completion * rates.output
        return Sum(rates.prompt(prompt) + reply, rates.prompt(prompt, cached, written) + reply)


class Sum(NamedTuple):
    """A cost in US dollars, without the prompt cache and net of it."""

    gross: float
    net: float


class Bill(NamedTuple):
    """The costs of one request, or of several: as the client sent it (None: it would not have been accepted), and as it
    was sent."""

    asked: Sum | None
    sent: Sum


def used(o: Outcome, cache: PromptCache, trust: float = 1.0) -> Usage | None:
    """The tokens that a request is billed for, as reported; else as counted, with an estimate of the cached ones and
    without the reply. None if unknown."""
    if o.usage is not None or o.prompt_sent is None:
        return o.usage
    repeated = None if cache.marked else o.repeated
    if repeated is None:
        return Usage(o.prompt_sent)
    expected = cache.expected(repeated, min(repeated.sent, o.prompt_sent), moved=repeated.prefix == MOVED)
    return Usage(o.prompt_sent, 0, round(trust * expected))


def is_unchanged(o: Outcome) -> bool:
    """Whether the prompt and the model are those that the client sent."""
    return o.prompt == o.prompt_sent and o.model_sent in ("", o.model) and not (o.too_long or o.healed)


def bill(o: Outcome, usage: Usage, asked: Prices | None, sent: Prices, trust: float = 1.0) -> Bill | None:
    """The costs of an answered request, by the prices of the model that the client named and of the one that was sent.
    None if what the client asked for has no price."""
    paid = sent.bill(usage)
    if o.too_long or o.healed:
        return Bill(None, paid)
    if is_unchanged(o):
        return Bill(paid, paid)
    if asked is None or o.prompt is None or not o.prompt_sent:
        return None
    scale = usage.prompt / o.prompt_sent if o.model_sent == o.model else 1.0  # by how much our count is off
    return Bill(asked.bill_unsent(round(o.prompt * scale), usage, o.repeated, trust), paid)
