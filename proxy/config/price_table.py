"""The list prices in litellm's model table: what a row says, and which row is that of a model at its provider.

A price is never that of another provider than the one that is asked: where it is known, only its own rows count; where
it is not (a gateway, a server of one's own), a model has the price of its vendor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.fit.money import BATCH, CACHES, DEFAULT_CACHE, NO_TIERS, Over, Prices, PromptCache, Rates
from proxy.model.outcome import FAST

# The modes of rows whose requests are measured, and of which one has no reply: all others pass through.
MODES = frozenset({"chat", "completion", "responses", "embedding"})
EMBEDDING = "embedding"
MAX_PRICE = 1.0  # US dollars per token: no list price is near it
PRICES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
)
INPUT, OUTPUT, READ, WRITE, HOUR = PRICES
AUDIO, SPOKEN, REASONING = (
    "input_cost_per_audio_token",
    "output_cost_per_audio_token",
    "output_cost_per_reasoning_token",
)
SEARCH, USUAL_SEARCH, SEARCH_UNIT = (
    "search_context_cost_per_query",
    "search_context_size_medium",
    "web_search_billing_unit",
)
THRESHOLD = re.compile(r"_above_(\d+)k_tokens(?:_([a-z]+))?\Z")
TIERS = ("flex", "priority", "balanced", "ultrafast")
BATCHES = "batches"
# Who caches prompts in a way of their own: how the name of a provider in the table begins, and the row of `CACHES`.
CACHE_OF = (
    ("anthropic", "anthropic"),
    ("bedrock", "anthropic"),
    ("gemini", "gemini"),
    ("vertex_ai-language", "gemini"),
    ("deepseek", "deepseek"),
)
INCLUSIVE = frozenset({"xai"})  # whose higher prices begin at a threshold, not over it
# What cached tokens cost where the table does not say it, as a share of input. Source: Fireworks, Pricing.
CACHED_SHARE = {"fireworks_ai": 0.5}
SEARCHED_ONCE = ("gemini", "vertex_ai")  # who bill all searches of a request as one, unless a row says otherwise
# Further names of providers in the table, beside those that begin with `<name>-`.
ALIASES: Mapping[str, frozenset[str]] = {
    "azure": frozenset({"azure_text"}),
    "bedrock": frozenset({"bedrock_converse"}),
    "codestral": frozenset({"text-completion-codestral"}),
    "cohere": frozenset({"cohere_chat"}),
    "inception": frozenset({"text-completion-inception"}),
    "openai": frozenset({"text-completion-openai"}),
}
RESELLERS = frozenset({"openrouter"})  # providers that the table has no rows of
# Path prefixes in the table that are the vendors' own endpoints; clients of these send the bare name. All others are
# hosts of other vendors' models.
VENDORS = frozenset(
    "anthropic cohere dashscope deepseek gemini minimax mistral moonshot openai perplexity xai zai".split()
)
Fields = Mapping[str, Any]


class PriceTable:
    """The prices of the rows of `MODES`. `raws`: the rows by their names in lower case, undecoded: few are ever used.
    `providers`: their providers. `by_short_name`: the names of rows that share one without vendor and version."""

    def __init__(
        self,
        raws: Mapping[str, msgspec.Raw],
        providers: Mapping[str, str],
        by_short_name: Mapping[str, Sequence[str]],
    ) -> None:
        self._raws, self._named, self._by_short_name = raws, providers, by_short_name
        firsts = {(name.partition("/")[0], provider) for name, provider in providers.items() if "/" in name}
        self._providers = RESELLERS | {first for first, provider in firsts if is_of(first, provider)}

    def find(self, names: Sequence[str], provider: str = "") -> Prices | None:
        """The prices of a model at a provider, by litellm's name of it; empty: it is not known. `names`: the variants
        of the model's name, the most specific first. None if there are none."""
        if not provider:
            provider = next((first for name in names if (first := self._first_of(name))), "")
        row = self._row_at(names, provider) if provider else self._vendors_row(names)
        return None if row is None else prices_in(row, self._fields(row))

    def name_of(self, names: Sequence[str]) -> str:
        """The name of a model without its host, as the table has it; empty if it is in no row."""
        found = next((name for name in names if name in self._raws or name in self._by_short_name), "")
        return model_names.without_vendor(found)

    def _first_of(self, name: str) -> str:
        first, slash, _ = name.partition("/")
        return first if slash and first in self._providers else ""

    def _row_at(self, names: Sequence[str], provider: str) -> str | None:
        keys = (key for name in names for key in (f"{provider}/{name}", name))
        return next((key for key in keys if key in self._raws and self._serves(provider, key)), None)

    def _vendors_row(self, names: Sequence[str]) -> str | None:
        """The row with exactly one of these names, else the one of the vendor's that has it as its short name."""
        for name in names:
            if name in self._raws:
                return name
            found = [row for row in self._by_short_name.get(name, ()) if distance(row) < HOST]
            nearest = [row for row in found if distance(row) == min(map(distance, found))]
            prices = [prices_in(row, self._fields(row)) for row in nearest]
            if prices and all(one == prices[0] for one in prices):
                return nearest[0]
        return None

    def _serves(self, provider: str, row: str) -> bool:
        return is_of(provider, self._named[row])

    def _fields(self, row: str) -> Fields:
        found = msgspec.json.decode(self._raws[row])
        return found if isinstance(found, dict) else {}


BARE, VENDOR, HOST = 0, 1, 2


def distance(name: str) -> int:
    """`BARE` for a row under the bare name, `VENDOR` for the vendor's own endpoint, `HOST` for another host."""
    prefix, _, _ = name.rpartition("/")
    return BARE if name == model_names.without_vendor(name) else VENDOR if prefix in VENDORS else HOST


def is_of(provider: str, named: str) -> bool:
    """Whether a row whose provider is `named` is one of a provider's."""
    return named == provider or named.startswith(f"{provider}-") or named in ALIASES.get(provider, ())


def prices_in(name: str, row: Fields) -> Prices | None:
    """The prices of a row; None if it does not have the two that every bill needs. One of embeddings has no reply."""
    if row.get("mode") == EMBEDDING and row.get(OUTPUT) is None:
        row = {**row, OUTPUT: 0.0}
    steps = row.get("tiered_pricing")
    found = _by_steps(row, steps) if isinstance(steps, list) and steps else _by_tiers(row)
    if found is None:
        return None
    once = row.get(SEARCH_UNIT) != "per_query" and str(row.get("litellm_provider")).startswith(SEARCHED_ONCE)
    searches = row.get(SEARCH)
    search = amount(searches.get(USUAL_SEARCH)) if isinstance(searches, dict) else None
    return replace(found, cache=cache_of(name, row), search=search, search_once=search is not None and once)


def amount(value: Any) -> float | None:
    """A price in US dollars. A boolean, a negative number and anything else is none."""
    return float(value) if type(value) in (int, float) and 0 <= value < MAX_PRICE else None


def _by_tiers(row: Fields) -> Prices | None:
    """The prices of a row that has one for each tier of service and threshold."""
    usual = _rates(row)
    if usual is None:
        return None
    found = [(tier, _tier(row, tier)) for tier in TIERS if any(f"{price}_{tier}" in row for price in PRICES)]
    found.append((BATCH, _batch(row, usual)))
    found.append((FAST, _fast(row, usual)))
    tiers = {tier: prices for tier, prices in found if prices is not None}
    return Prices(usual, over=_over(row, usual, ""), tiers=tiers or NO_TIERS)


def _tier(row: Fields, tier: str) -> tuple[Rates, Over] | None:
    rates = _rates(row, tier)
    return None if rates is None else (rates, _over(row, rates, tier))


def _rates(row: Fields, tier: str = "") -> Rates | None:
    """The prices of a tier below all thresholds: what it has no price of its own for costs as usual."""
    found = [_first(row, _keys(price, "", tier)) for price in PRICES]
    per_input, per_output, read, write, hour = found
    if per_input is None or per_output is None:
        return None
    share = CACHED_SHARE.get(str(row.get("litellm_provider")))
    if read is None and share is not None:
        read = share * (amount(row.get(INPUT)) or 0.0)
    return _with_modalities(Rates(per_input, per_output, read, write, hour), row, tier)


def _with_modalities(rates: Rates, row: Fields, tier: str) -> Rates:
    """With the prices of audio and thinking. Thinking that costs what other output does has none of its own."""
    keys = _keys(REASONING, "", tier)
    thought = _first(row, keys[:1] if tier and f"{OUTPUT}_{tier}" in row else keys)
    return rates._replace(
        audio=_first(row, _keys(AUDIO, "", tier)),
        audio_reply=amount(row.get(SPOKEN)),
        reasoning=None if thought == rates.output else thought,
    )


def _over(row: Fields, below: Rates, tier: str) -> Over:
    """The prices over each threshold; what has none there costs as below it."""
    marks = (THRESHOLD.search(key) for key, value in row.items() if value is not None and key.startswith(PRICES))
    thresholds = sorted({int(mark[1]) for mark in marks if mark and mark[2] in (None, tier)})
    one_less = 1 if row.get("litellm_provider") in INCLUSIVE else 0
    found: list[tuple[int, Rates]] = []
    for thousands in thresholds:
        above = [_first(row, _keys(price, f"_above_{thousands}k_tokens", tier)) for price in PRICES]
        kept = [other if price is None else price for price, other in zip(above, below, strict=False)]
        rates = Rates(kept[0] or 0.0, kept[1] or 0.0, *kept[2:], *below[len(PRICES) :])
        if rates != below:
            found.append((1000 * thousands - one_less, rates))
        below = rates
    return tuple(found)


def _fast(row: Fields, usual: Rates) -> tuple[Rates, Over] | None:
    """The prices of Claude's fast mode, which are a multiple of the usual ones; None if the table names none."""
    own = row.get("provider_specific_entry")
    times = own.get(FAST) if isinstance(own, dict) else None
    if not isinstance(times, (int, float)):
        return None
    return usual.times(times), tuple((over, rates.times(times)) for over, rates in _over(row, usual, ""))


def _batch(row: Fields, usual: Rates) -> tuple[Rates, Over] | None:
    """The prices of batches, which have thresholds of their own; None if the table has none."""
    row = {key: value for key, value in row.items() if key.endswith(BATCHES)}
    per_input, per_output, read, write = (amount(row.get(f"{price}_{BATCHES}")) for price in PRICES[:4])
    if per_input is None:
        return None
    base = Rates(per_input, usual.output / 2 if per_output is None else per_output, read, write)
    return base, _over(row, base, BATCHES)


def _by_steps(row: Fields, steps: Iterable[Any]) -> Prices | None:
    """The prices of a row that has a list of them, each for a range of prompts."""
    ranges = [step for step in steps if isinstance(step, dict) and len(step.get("range") or ()) == 2]
    ranges.sort(key=lambda step: step["range"][0])
    found = [(int(step["range"][0]), rates) for step in ranges if (rates := _of_step(row, step)) is not None]
    return Prices(found[0][1], over=tuple(found[1:])) if found else None


def _of_step(row: Fields, step: Fields) -> Rates | None:
    per_input, per_output = amount(step.get(INPUT)), amount(step.get(OUTPUT, row.get(OUTPUT)))
    if per_input is None or per_output is None:
        return None
    read, write, hour, thought = (amount(step.get(name)) for name in (READ, WRITE, HOUR, REASONING))
    return Rates(per_input, per_output, read, write, hour, reasoning=None if thought == per_output else thought)


def _keys(price: str, above: str, tier: str) -> tuple[str, ...]:
    return (f"{price}{above}_{tier}", price + above) if tier else (price + above,)


def _first(row: Fields, keys: Iterable[str]) -> float | None:
    return next((found for key in keys if (found := amount(row.get(key))) is not None), None)


def cache_of(name: str, row: Fields) -> PromptCache:
    """How the provider of a row caches. Claude models cache as Anthropic says, at all hosts."""
    provider = str(row.get("litellm_provider"))
    named = "anthropic" if "claude" in name else next((c for start, c in CACHE_OF if provider.startswith(start)), "")
    cache = CACHES.get(named, DEFAULT_CACHE)
    least = row.get("prompt_cache_min_tokens")
    return replace(cache, least=least) if type(least) is int and least > 0 else cache
