"""litellm's model table: the window, the capabilities and the list prices of each model.

The table is read as a file. litellm is never imported: that costs seconds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median_high, multimode
from typing import Any

import msgspec

from proxy.config import model_names
from proxy.errors import ConfigError
from proxy.fit.money import CACHES, DEFAULT_CACHE, Prices, PromptCache, Rates
from proxy.tokens import litellm_data

FILE = "model_prices_and_context_window_backup.json"
# Modes with text input and text output. `sample_spec`, the table's documentation row, has none of them.
MODES = frozenset({"chat", "completion", "responses"})
# The table's capability fields, and the names of the same capabilities in `Prompt.needs`.
CAPABILITIES = (
    ("supports_function_calling", "tools"),
    ("supports_vision", "vision"),
    ("supports_response_schema", "schema"),
    ("supports_audio_input", "audio"),
    ("supports_pdf_input", "files"),
    ("supports_video_input", "video"),
    ("supports_reasoning", "reasoning"),
    ("supports_web_search", "web_search"),
    ("supports_prompt_caching", "prompt_caching"),
)
CAPABILITY_NAMES = frozenset(name for _, name in CAPABILITIES)
MAX_PRICE = 1.0  # US dollars per token: no list price is near it
# Who caches prompts in a way of their own: how the name of a provider in the table begins, and the row of `CACHES`.
CACHE_OF = (
    ("anthropic", "anthropic"),
    ("bedrock", "anthropic"),
    ("gemini", "gemini"),
    ("vertex_ai-language", "gemini"),
    ("deepseek", "deepseek"),
)
# Path prefixes in the table that are the vendors' own endpoints; clients of these send the bare name. All others are
# hosts of other vendors' models.
VENDORS = frozenset(
    "anthropic cohere dashscope deepseek gemini minimax mistral moonshot openai perplexity xai zai".split()
)


# The dated names of models: gpt-4o-2024-08-06, claude-3-opus-20240229.
DATED = re.compile(r"(?<!\d)(20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)", re.ASCII)


class Row(msgspec.Struct, gc=False):
    """The fields that are read from a row, each of any type, so that one malformed row does not fail the table.

    `max_tokens` is not read: in most rows it is the maximum reply, in some the window.
    """

    mode: Any = None
    max_input_tokens: Any = None
    max_output_tokens: Any = None
    supports_function_calling: Any = None
    supports_vision: Any = None
    supports_response_schema: Any = None
    supports_audio_input: Any = None
    supports_pdf_input: Any = None
    supports_video_input: Any = None
    supports_reasoning: Any = None
    supports_web_search: Any = None
    supports_prompt_caching: Any = None
    litellm_provider: Any = None
    prompt_cache_min_tokens: Any = None


# The fields of a row's prices: of each of `PRICES`, one for all prompts and one for those over each of `THRESHOLDS`.
PRICES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
THRESHOLDS = (100, 128, 200, 256, 272, 512)  # thousand tokens
_SUFFIXES = ("", *(f"_above_{thousands}k_tokens" for thousands in THRESHOLDS))
PriceRow = msgspec.defstruct(
    "PriceRow", [(f"{price}{suffix}", Any, None) for suffix in _SUFFIXES for price in PRICES], bases=(Row,), gc=False
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A model's limits in tokens, and its capabilities (`can`); None if the table has none of them."""

    name: str
    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    can: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of text models by name, and the names of rows that share a short name (without vendor and version).

    `sums` are the (input, output) figures of rows whose window is the sum of both (`[[beside]]` in rules/windows.toml).
    `newest` is the newest date in a name (`2026-07-09`; empty: none). The table was published after it.
    """

    rows: Mapping[str, Row]
    by_short_name: Mapping[str, Sequence[str]]
    sums: Collection[tuple[int, int]] = ()
    newest: str = ""

    def exact(self, name: str) -> Entry | None:
        """The entry of the row with exactly this name."""
        return self._entry(name) if name in self.rows else None

    def shared(self, short_name: str) -> Entry | None:
        """The entry on which most rows with this short name agree. Rows without a version come before rows with one,
        and rows of the vendor before rows of hosts."""
        found = self.by_short_name.get(short_name)
        if not found:
            return None
        return _majority([self._entry(name) for name in _closest(found, short_name)])

    def prices(self, name: str) -> Prices | None:
        """The prices of the row with this name, else those on which all rows agree that share it as a short name."""
        if name in self.rows:
            return _prices(name, self.rows[name])
        found = self.by_short_name.get(name)
        if not found:
            return None
        prices = [_prices(row, self.rows[row]) for row in _closest(found, name)]
        return prices[0] if all(price == prices[0] for price in prices) else None

    def _entry(self, name: str) -> Entry:
        row = self.rows[name]
        max_input_tokens, output = row.max_input_tokens, row.max_output_tokens
        output = output if type(output) is int and output > 0 else None
        window, max_input = max_input_tokens, None
        if (max_input_tokens, output) in self.sums:
            window, max_input = max_input_tokens + output, max_input_tokens
        max_output = output if output and output < window else None  # as large as the window, it limits nothing
        return Entry(name, window, max_input, max_output, _capabilities(row))


def _closest(names: Sequence[str], short_name: str) -> list[str]:
    """The best of the rows that share a short name."""
    ranks = [(model_names.without_vendor(name) != short_name, _distance(name)) for name in names]
    return [name for name, rank in zip(names, ranks, strict=True) if rank == min(ranks)]


def _prices(name: str, row: Row) -> Prices | None:
    """The prices of a row; None if it does not have the two that every bill needs."""
    base = _rates(row, "")
    if base is None:
        return None
    over = [(1000 * thousands, _rates(row, f"_above_{thousands}k_tokens", base)) for thousands in THRESHOLDS]
    tiers = tuple((threshold, rates) for threshold, rates in over if rates is not None and rates != base)
    return Prices(base, _cache(name, row), tiers)


def _rates(row: Row, suffix: str, base: Rates | None = None) -> Rates | None:
    """The four prices with a suffix, each else as in `base`; None without a price for input and output."""
    found = [_price(getattr(row, price + suffix)) for price in PRICES]
    if base is not None:
        found = [other if price is None else price for price, other in zip(found, base, strict=True)]
    per_input, per_output, read, write = found
    return None if per_input is None or per_output is None else Rates(per_input, per_output, read, write)


def _price(value: Any) -> float | None:
    """A price in US dollars per token. A boolean, a negative number and anything else is none."""
    return float(value) if type(value) in (int, float) and 0 <= value < MAX_PRICE else None


def _cache(name: str, row: Row) -> PromptCache:
    """How the provider of a row caches. Claude models cache as Anthropic says, at all hosts."""
    provider = str(row.litellm_provider)
    named = "anthropic" if "claude" in name else next((c for start, c in CACHE_OF if provider.startswith(start)), "")
    cache = CACHES.get(named, DEFAULT_CACHE)
    least = row.prompt_cache_min_tokens
    return replace(cache, least=least) if _is_positive(least) else cache


def _distance(name: str) -> int:
    """0 for a row under the bare name, 1 for the vendor's own endpoint, 2 for a host."""
    prefix, _, _ = name.rpartition("/")
    return 0 if name == model_names.without_vendor(name) else 1 if prefix in VENDORS else 2


def _capabilities(row: Row) -> frozenset[str] | None:
    stated = [(name, value) for field, name in CAPABILITIES if (value := getattr(row, field)) is not None]
    return frozenset(name for name, value in stated if value is True) if stated else None


def table_file() -> Path:
    """The path of the newest table that is installed. Raises `ConfigError` if there is none."""
    path = litellm_data.path_of(FILE)
    if path is None:
        raise ConfigError(
            f"litellm's model table ({FILE}) was not found: install plimsoll[litellm], or a built package"
        )
    return path


def read_table(raw: bytes, sums: Collection[tuple[int, int]] = ()) -> Table:
    """The table, parsed; about 4,000 rows. Raises `ConfigError` for anything but a JSON object of rows."""
    try:
        rows: dict[str, Row] = msgspec.json.decode(raw, type=dict[str, PriceRow])  # type: ignore[valid-type]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{FILE}: {error}") from None
    kept = {name.lower(): row for name, row in rows.items() if row.mode in MODES and _is_positive(row.max_input_tokens)}
    by_short_name: dict[str, list[str]] = {}
    for name in kept:
        bare = model_names.without_vendor(name)
        by_short_name.setdefault(bare, []).append(name)
        if (stem := model_names.without_version(bare)) != bare and model_names.is_distinctive(stem):
            by_short_name.setdefault(stem, []).append(name)
    return Table(kept, by_short_name, frozenset(sums), _newest_date(rows))


def _newest_date(names: Iterable[str]) -> str:
    dates = {"-".join(match.groups()) for name in names for match in DATED.finditer(name)}
    return next((text for text in sorted(dates, reverse=True) if _is_date(text)), "")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_positive(figure: Any) -> bool:
    return type(figure) is int and figure > 0


def _majority(entries: list[Entry]) -> Entry:
    """The window that most hosts of a model state. The host of a request is unknown, so the other limits are the
    largest of all hosts, and the capabilities those of any: a needless cut is worse than a refusal."""
    tokens = median_high(multimode(entry.tokens for entry in entries))
    agreeing = [entry for entry in entries if entry.tokens == tokens]
    can = [entry.can for entry in agreeing if entry.can is not None]
    return Entry(
        name=agreeing[0].name,
        tokens=tokens,
        max_input=_largest([entry.max_input for entry in agreeing]),
        max_output=_largest([entry.max_output for entry in agreeing]),
        can=frozenset().union(*can) if can else None,
    )


def _largest(bounds: list[int | None]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None
