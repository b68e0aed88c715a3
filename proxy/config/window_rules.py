"""Parses windows.toml: rows that override litellm's model table, and rows for models that it does not have.

The only other file it reads is a tokenizer that a row names. All figures are in tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from proxy.config.model_table import CAPABILITY_NAMES
from proxy.config.rows import converted, parse_rows
from proxy.fit.money import CACHES, Over, Prices, Rates
from proxy.model.structs import replace
from proxy.tokens.encodings import encoding, own

MAX_TOKENS = 10**9  # a larger figure is a typing error
MILLION = 1_000_000
MAX_SECONDS = 30 * 86_400  # a longer life of a prompt cache is a typing error
MAX_PRICE = 10_000.0  # US dollars per million tokens; more is a typing error
LOWER_CASE = re.compile(r"[a-z0-9-]+")
LIMITS = ("max_completion_tokens", "max_tokens")


class WindowRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[window]]`: limits of the models whose names match `model`, a name or a pattern.

    litellm's table is used for the fields that a row leaves out. `tokenizer` is the path of a tokenizer.json, relative
    to the folder of windows.toml. `effective`: that of `Window`.
    """

    model: str
    tokens: int | None = None
    max_input: int | None = None
    max_output: int | None = None
    tokenizer: str | None = None
    can: tuple[str, ...] | None = None
    effective: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] | None = None

    def __post_init__(self) -> None:
        check_row(self)
        if (self.tokens, self.max_input, self.max_output, self.tokenizer, self.can, self.effective) == (None,) * 6:
            raise ValueError("the row sets no field")


class FallbackRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[gap]]`: limits of a model that litellm's table does not have. A row of the table overrides it, unless the
    table's is wrong (`first`)."""

    model: str
    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    can: tuple[str, ...] | None = None
    first: bool = False

    def __post_init__(self) -> None:
        check_row(self)


class LimitFieldRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[limit]]`: models that accept a reply limit in one field only, and refuse the other."""

    model: str
    field: str

    def __post_init__(self) -> None:
        check_name(self.model)
        if self.field not in LIMITS:
            raise ValueError(f"field must be one of {', '.join(LIMITS)}")


class RolesRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[roles]]`: whether models require that user and assistant alternate."""

    model: str
    alternate: bool

    def __post_init__(self) -> None:
        check_name(self.model)


class ReplyRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[reply]]`: whether the reply of these models counts against the window (`shared`) or not (`separate`)."""

    model: str
    reply: Literal["separate", "shared"]

    def __post_init__(self) -> None:
        check_name(self.model)


class ReasoningRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[reasoning]]`: whether reasoning in a conversation with these models is bound to what stands before it
    (`bound`), and whether that of earlier turns is `optional`, or a request without it is refused (`required`)."""

    model: str
    bound: bool | None = None
    earlier: Literal["optional", "required"] | None = None

    def __post_init__(self) -> None:
        check_name(self.model)


class PriceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[price]]`: list prices in US dollars per million tokens. `cache` names how the provider caches prompts.

    A price for the cache that is left out is that of input.
    """

    model: str
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache: str = "openai"

    def __post_init__(self) -> None:
        check_name(self.model)
        for price in (self.input, self.output, self.cache_read, self.cache_write):
            if price is not None and not 0 <= price <= MAX_PRICE:
                raise ValueError(f"prices must be from 0 to {MAX_PRICE:,.0f} US dollars per million tokens")
        if self.cache not in CACHES:
            raise ValueError(f"cache must be one of {', '.join(CACHES)}")

    @property
    def prices(self) -> Prices:
        """The prices per token."""
        read = None if self.cache_read is None else self.cache_read / MILLION
        write = None if self.cache_write is None else self.cache_write / MILLION
        return Prices(Rates(self.input / MILLION, self.output / MILLION, read, write), CACHES[self.cache])


class CacheRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[cache]]`: how the provider of these models caches prompts, where that differs from what it does with its
    other models. `match`: what of an earlier prompt is read, the longest prefix or the longest that ends at a
    breakpoint. `seconds`: how long a prefix stays after its last use; `least`: tokens of the shortest; `step`: by how
    many it grows. `write`: the price of a written token as a multiple of that of input, where the table names none.
    """

    model: str
    match: Literal["prefix", "breakpoint"] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] | None = None
    least: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] | None = None
    step: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] | None = None
    write: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None

    def __post_init__(self) -> None:
        check_name(self.model)

    def over(self, prices: Prices) -> Prices:
        """The prices of a model of another row or of the table, with this row's cache."""
        figures = {"match": self.match, "seconds": self.seconds, "least": self.least, "step": self.step}
        cache = replace(prices.cache, **{name: value for name, value in figures.items() if value is not None})
        tiers = {tier: (self._with_writes(rates), self._all(over)) for tier, (rates, over) in prices.tiers.items()}
        rates, over = self._with_writes(prices.rates), self._all(prices.over)
        return replace(prices, cache=cache, rates=rates, over=over, tiers=tiers)

    def _all(self, over: Over) -> Over:
        return tuple((threshold, self._with_writes(rates)) for threshold, rates in over)

    def _with_writes(self, rates: Rates) -> Rates:
        if self.write is None or rates.cache_write is not None:
            return rates
        return rates._replace(cache_write=self.write * rates.input)


class InputsRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[inputs]]`: what models of embeddings take: the `tokens` of one input, the inputs of one request (`most`),
    and the tokens of all of them (`together`)."""

    model: str
    tokens: int
    most: int
    together: int | None = None

    def __post_init__(self) -> None:
        check_name(self.model)
        figures = (self.tokens, self.most, 1 if self.together is None else self.together)
        if not all(1 <= figure <= MAX_TOKENS for figure in figures):
            raise ValueError(f"tokens, most and together must be from 1 to {MAX_TOKENS:,}")


class DeploymentRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[deployment]]`: the model that deployments run whose names match `name`, a name or a pattern."""

    name: str
    runs: str

    @property
    def model(self) -> str:
        """The name or pattern, as rows of other tables call it."""
        return self.name

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.runs)
        if "*" in self.runs or "?" in self.runs:
            raise ValueError("runs must be the name of one model, not a pattern")


class BetaRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[beta]]`: the window that models have for a request with this value in this header, a list separated by
    commas. `value` is a value or a pattern."""

    model: str
    header: str
    value: str
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]

    def __post_init__(self) -> None:
        check_name(self.model)
        if not LOWER_CASE.fullmatch(self.header):
            raise ValueError("header must be the name of a header in lower case")
        if not self.value.strip():
            raise ValueError("value must not be empty")


class SumRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[beside]]`: rows of litellm's table with these two figures have a window that is their sum."""

    input: Annotated[int, msgspec.Meta(ge=1)]
    output: Annotated[int, msgspec.Meta(ge=1)]


def check_row(row: WindowRow | FallbackRow) -> None:
    """Raises `ValueError` if a figure, the name or a capability is invalid."""
    check_name(row.model)
    if any(figure is not None and figure < 1 for figure in (row.tokens, row.max_input, row.max_output)):
        raise ValueError("tokens, max_input and max_output must be at least 1 token")
    if max(row.tokens or 0, row.max_input or 0, row.max_output or 0) > MAX_TOKENS:
        raise ValueError(f"tokens, max_input and max_output must be at most {MAX_TOKENS:,} tokens")
    if row.tokens is not None and max(row.max_input or 0, row.max_output or 0) > row.tokens:
        raise ValueError(f"max_input and max_output must not be over tokens ({row.tokens:,})")
    if unknown := set(row.can or ()) - CAPABILITY_NAMES:
        raise ValueError(f"can: {', '.join(sorted(unknown))} is not one of {', '.join(sorted(CAPABILITY_NAMES))}")


def check_name(model: str) -> None:
    """Raises `ValueError` if a row names no model."""
    if not model.strip():
        raise ValueError("model must not be empty")


@dataclass(frozen=True, slots=True)
class WindowRules:
    """The rows of windows.toml, by table and in order: the first row that matches wins."""

    windows: tuple[WindowRow, ...] = ()
    fallbacks: tuple[FallbackRow, ...] = ()
    sums: tuple[SumRow, ...] = ()
    limit_fields: tuple[LimitFieldRow, ...] = ()
    roles: tuple[RolesRow, ...] = ()
    replies: tuple[ReplyRow, ...] = ()
    reasoning: tuple[ReasoningRow, ...] = ()
    prices: tuple[PriceRow, ...] = ()
    inputs: tuple[InputsRow, ...] = ()
    deployments: tuple[DeploymentRow, ...] = ()
    betas: tuple[BetaRow, ...] = ()
    caches: tuple[CacheRow, ...] = ()

    def before(self, other: WindowRules) -> WindowRules:
        """These rows, followed by those of another file."""
        return WindowRules(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


# The tables of windows.toml, in the order of the fields of `WindowRules`.
TABLES: Mapping[str, Any] = {
    "window": WindowRow,
    "gap": FallbackRow,
    "beside": SumRow,
    "limit": LimitFieldRow,
    "roles": RolesRow,
    "reply": ReplyRow,
    "reasoning": ReasoningRow,
    "price": PriceRow,
    "inputs": InputsRow,
    "deployment": DeploymentRow,
    "beta": BetaRow,
    "cache": CacheRow,
}


def parse_window_rules(table: Mapping[str, Any], folder: Path) -> tuple[WindowRules, list[str]]:
    """The rows of a parsed windows.toml, and its problems: one line per invalid row, with its number from 1.

    `folder` is where relative paths of tokenizers start.
    """
    problems = [f"{key}: unknown table, must be one of {', '.join(TABLES)}" for key in table if key not in TABLES]
    found: list[tuple[Any, ...]] = []
    for kind, row_type in TABLES.items():
        rows, wrong = parse_rows(table, kind, partial(_window_row, row_type, folder), title="model")
        found.append(rows)
        problems += wrong
    return WindowRules(*found), problems


def _window_row(row_type: type[Any], folder: Path, row: Any) -> Any:
    return _with_tokenizer(converted(row, row_type), folder)


def _with_tokenizer(row: Any, folder: Path) -> Any:
    if not isinstance(row, WindowRow) or row.tokenizer is None:
        return row
    path = folder / row.tokenizer
    if not path.is_file():
        raise ValueError(f"tokenizer: no such file: {path}")
    try:
        encoding(own(str(path)))  # loaded at start, so that an invalid file is reported at start
    except ValueError as error:
        raise ValueError(f"tokenizer: {error}") from None
    return msgspec.structs.replace(row, tokenizer=str(path))
