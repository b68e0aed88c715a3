"""Looks up a model's `Window` in windows.toml and litellm's table, by its name, a variant or a part of the name.

First match wins: (1) a `[[window]]` for the name or a variant of it (`model_names.served`); (2) for each variant in
turn the table's row with exactly that name, a `[[gap]]`, the table's rows that share it as a short name; (3) the same
for the longest part of the name that has an entry; (4) the smallest window of the names that begin as this one does;
else 8192. (3), but for a `[[window]]`, and what follows are marked as guesses.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

from msgspec.structs import replace

from proxy.config import model_names
from proxy.config.model_table import Entry, Table, read_table, table_file
from proxy.config.window_rules import (
    BetaRow,
    CacheRow,
    DeploymentRow,
    FallbackRow,
    InputsRow,
    LimitFieldRow,
    PriceRow,
    ReasoningRow,
    ReplyRow,
    RolesRow,
    WindowRow,
    WindowRules,
)
from proxy.fit.money import Prices
from proxy.model.limits import GUESS, UNKNOWN_WINDOW, Window
from proxy.model.names import name_of

CACHED_NAMES = 4096  # clients choose them
# The sources of a window. A limit learned from a refusal overrides all of them but the user's own row.
RULES, GAP, TABLE = "rules", "gap", "litellm"  # and GUESS
WILDCARD = re.compile(r"[*?\[]")
Row = TypeVar(
    "Row",
    WindowRow,
    FallbackRow,
    LimitFieldRow,
    RolesRow,
    ReplyRow,
    ReasoningRow,
    PriceRow,
    InputsRow,
    DeploymentRow,
    BetaRow,
    CacheRow,
)


class RowIndex(Generic[Row]):
    """Rows in order, indexed by their names and patterns."""

    def __init__(self, rows: tuple[Row, ...]) -> None:
        names = [(i, row.model.strip().lower()) for i, row in enumerate(rows)]
        self._rows: tuple[Row, ...] = rows
        self._exact = {name: i for i, name in reversed(names) if not WILDCARD.search(name)}
        self._patterns = [(re.compile(fnmatch.translate(name)), i) for i, name in names if WILDCARD.search(name)]

    def match(self, name: str) -> Row | None:
        """The first row with this name or a pattern that matches it."""
        matches = [i for pattern, i in self._patterns if pattern.match(name)]
        if name in self._exact:
            matches.append(self._exact[name])
        return self._rows[min(matches)] if matches else None

    def exact(self, name: str) -> Row | None:
        """The row with exactly this name; patterns are ignored."""
        return self._rows[self._exact[name]] if name in self._exact else None


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows that were found for a model: `row` of windows.toml, `entry` of the table or a `[[gap]]`. `part` is the
    part of the name that matched, if the whole name did not; then `guess` are the tokens to guess, unless the row has
    some."""

    row: WindowRow | None = None
    entry: Entry | FallbackRow | None = None
    part: str = ""
    guess: int | None = None


class Windows:
    """The windows of all models. Immutable, apart from caches by model name."""

    def __init__(self, rules: WindowRules, table: Table) -> None:
        self._rows = RowIndex(rules.windows)
        self._gaps = rules.fallbacks
        self._fallbacks = RowIndex(rules.fallbacks)
        self._limit_fields = RowIndex(rules.limit_fields)
        self._roles = RowIndex(rules.roles)
        self._replies = RowIndex(rules.replies)
        self._reasoning = RowIndex(rules.reasoning)
        self._price_rows = RowIndex(rules.prices)
        self._inputs = RowIndex(rules.inputs)
        self._deployments = RowIndex(rules.deployments)
        self._betas = RowIndex(rules.betas)
        self._caches = RowIndex(rules.caches)
        self._table = table
        self._lookups = lru_cache(maxsize=CACHED_NAMES)(self._search)
        self._windows = lru_cache(maxsize=CACHED_NAMES)(self._window)
        self._prices = lru_cache(maxsize=CACHED_NAMES)(self._find_prices)
        self._beta = lru_cache(maxsize=CACHED_NAMES)(self._find_beta)

    def find(self, model: str) -> Window:
        """The window of a model; of an unknown one that of models with such names, else 8192 tokens, marked as a guess.
        A cached lookup."""
        return self._windows(name_of(model))

    def _window(self, model: str) -> Window:
        names = model_names.variants(model)
        fields = (limit.field for name in names if (limit := self._limit_fields.match(name)))
        alternates = (roles.alternate for name in names if (roles := self._roles.match(name)))
        replies = (row.reply for name in names if (row := self._replies.match(name)))
        reasons = [found for name in names if (found := self._reasoning.match(name))]
        inputs = next((taken for name in names if (taken := self._inputs.match(name))), None)
        return replace(
            _for_inputs(window_of(self._lookups(model)), inputs),
            limit_field=next(fields, None),
            alternates=next(alternates, None),
            separate=next(replies, None) == "separate",
            binds=next((row.bound for row in reasons if row.bound is not None), None),
            requires_reasoning=next((row.earlier for row in reasons if row.earlier), "") == "required",
        )

    def requested(self, model: str, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
        """The window in tokens that a request asks for by one of its headers (a `[[beta]]`); None if it does not."""
        row = self._beta(name_of(model))
        if row is None:
            return None
        name = row.header.encode()
        values = (one for key, value in headers if key == name for one in value.decode("latin-1").split(","))
        return row.tokens if any(fnmatch.fnmatchcase(value.strip(), row.value) for value in values) else None

    def has_requests(self, model: str) -> bool:
        """Whether requests of a model may ask for a window by a header."""
        return self._beta(name_of(model)) is not None

    def _find_beta(self, model: str) -> BetaRow | None:
        return next((row for name in model_names.variants(model) if (row := self._betas.match(name))), None)

    def of_embeddings(self, model: str) -> str:
        """The name in the row of a model of embeddings, which may be a pattern; empty without one."""
        found = (row for name in model_names.variants(model) if (row := self._inputs.match(name)))
        return next((row.model for row in found), "")

    def prices(self, model: str, provider: str = "") -> Prices | None:
        """The list prices of a model at a provider (litellm's name of it; empty: not known): of a `[[price]]`, else of
        the table; None without either. A name that only holds the name of another model has no price. A cached
        lookup."""
        return self._prices(name_of(model), provider)

    def _find_prices(self, model: str, provider: str) -> Prices | None:
        names = model_names.variants(model)
        row = next((row for name in names if (row := self._price_rows.match(name))), None)
        found = row.prices if row is not None else self._table.prices.find(names, provider)
        caches = next((rule for name in names if (rule := self._caches.match(name))), None)
        return found if found is None or caches is None else caches.over(found)

    def priced_name(self, model: str) -> str:
        """The name of a model in the table, of embeddings too; empty if it is in no row."""
        return self._table.prices.name_of(model_names.variants(name_of(model)))

    @property
    def newest(self) -> str:
        """The newest date in the table (`2026-07-09`), empty if it has none."""
        return self._table.newest

    @property
    def newest_at(self) -> float:
        """The newest date in the table, in seconds since 1970; 0 if it has none."""
        found = self._table.newest
        return datetime.fromisoformat(found).replace(tzinfo=UTC).timestamp() if found else 0.0

    def deployed(self, name: str) -> str:
        """The model that a deployment of this name runs: of its `[[deployment]]`, else the name itself."""
        row = self._deployments.match(name.strip().lower())
        return name if row is None else row.runs

    def is_known(self, model: str) -> bool:
        """Whether the model's window is not a guess."""
        return not self.find(model).guessed

    def tokenizer(self, model: str) -> str | None:
        """The path of the tokenizer.json that a `[[window]]` sets for a model, or None."""
        row = self.lookup(model).row
        return None if row is None else row.tokenizer

    def lookup(self, model: str) -> Lookup:
        """The rows that were found for a model. Takes about 60 us, and 0.1 us once cached."""
        return self._lookups(name_of(model))

    def _search(self, model: str) -> Lookup:
        names = model_names.served(model)
        row = next((row for name in names if (row := self._rows.match(name))), None)
        entry = next((entry for name in names if (entry := self._entry(name))), None)
        if entry or (row and row.tokens):
            return Lookup(row, entry)
        if not names:  # too long for a name
            return Lookup(row)
        return self._by_part(model_names.parts(model), row) or self._by_beginning(model_names.stems(model), row)

    def _entry(self, name: str) -> Entry | FallbackRow | None:
        gap = self._fallbacks.match(name)
        if gap is not None and gap.first:
            return gap
        return self._table.exact(name) or gap or self._table.shared(name)

    def _by_part(self, parts: Iterable[str], row: WindowRow | None) -> Lookup | None:
        """What is known of the longest part of a name; a guess, unless a `[[window]]` has that part."""
        for part in parts:
            part_row = row or self._rows.exact(part)
            entry = self._fallbacks.exact(part) or self._table.shared(part)
            if entry or (part_row and part_row.tokens):
                return Lookup(part_row, entry, part, None if entry is None else entry.tokens)
        return None

    def _by_beginning(self, stems: Iterable[str], row: WindowRow | None) -> Lookup:
        """A guess: the smallest window of the names that begin with the longest stem of a name."""
        found = next((stem for stem in stems if stem in self._smallest), "")
        return Lookup(row, None, found, self._smallest.get(found))

    @cached_property
    def _smallest(self) -> dict[str, int]:
        """The smallest window of the known names that begin with a stem. Takes about 30 ms, for the first name that
        nobody knows."""
        known = [(name, entry.tokens) for name in self._table.by_short_name if (entry := self._table.shared(name))]
        gaps = ((WILDCARD.split(gap.model.lower(), maxsplit=1)[0], gap.tokens) for gap in self._gaps)
        found: dict[str, int] = {}
        for name, tokens in (*known, *gaps):
            for stem in model_names.stems(name):
                found[stem] = min(tokens, found.get(stem, tokens))
        return found


def _for_inputs(window: Window, row: InputsRow | None) -> Window:
    """The window of a model of embeddings; a `[[window]]` of the user outranks that of its row."""
    if row is None:
        return window
    if window.source != RULES:
        window = Window(row.tokens, source=GAP, can=window.can)
    return replace(window, max_inputs=row.most, max_together=row.together)


def window_of(lookup: Lookup) -> Window:
    """The window of a lookup. The entry is used for fields that the row does not set."""
    row, entry = lookup.row, lookup.entry
    can = None if entry is None or entry.can is None else frozenset(entry.can)
    if entry is None or lookup.guess is not None:  # what is guessed bounds neither prompt nor reply
        window = Window(lookup.guess or UNKNOWN_WINDOW, source=GUESS, guessed=True, can=can)
    else:
        source = GAP if isinstance(entry, FallbackRow) else TABLE
        window = Window(entry.tokens, entry.max_input, entry.max_output, source, can=can)
    if row is None:
        return window
    if row.tokens is not None:
        # A stated window replaces the table's bound on the prompt, which was part of the table's own window.
        max_output = window.max_output if (window.max_output or row.tokens) < row.tokens else None
        window = replace(window, tokens=row.tokens, max_input=None, max_output=max_output, source=RULES, guessed=False)
    return replace(
        window,
        max_input=row.max_input or window.max_input,
        max_output=row.max_output or window.max_output,
        can=window.can if row.can is None else frozenset(row.can),
        effective=row.effective,
    )


def load_windows(rules: WindowRules) -> Windows:
    """The windows and prices of the rules and of the installed litellm's table. Takes about 50 ms.

    Raises `ConfigError` if litellm is not installed or its table cannot be parsed.
    """
    sums = {(row.input, row.output) for row in rules.sums}
    return Windows(rules, read_table(table_file().read_bytes(), sums))


def capped(window: Window, limit: int | None, source: str = "cap") -> Window:
    """The window, reduced to `limit` tokens (`x-plimsoll-window`, `CONTEXT_TOTAL_TOKEN_LIMIT`).

    A limit never enlarges a known window; it replaces a guessed one. None changes nothing.
    """
    if limit is None or (limit >= window.tokens and not window.guessed):
        return window
    held = None if window.guessed else window.held  # a cap of an unknown window states it
    return replace(window, tokens=limit, source=source, guessed=False, uncapped=held, refused=None)
