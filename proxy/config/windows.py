"""Model to Window: rules/windows.toml and litellm's table, looked up by name, by the name's forms or by part of it.

First match wins: (1) a `[[window]]` for the name, for the name without its provider's path and maker, or for that
without its version; (2) for each of these forms in turn the table's row of that very name, a `[[gap]]`, the table's
rows that share it; (3) the longest part between `/ - : _ @` that any of them knows; else it is a guess of 8192.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from proxy.config import model_names
from proxy.config.model_table import Entry, Table, read_table, table_file
from proxy.config.models_answer import from_models_answer as from_models_answer
from proxy.config.window_rules import Gap, Limit, Roles, Row, Sheet
from proxy.model.limits import UNKNOWN_WINDOW, Window
from proxy.model.names import name_of

REMEMBERED = 4096  # names; clients choose them
# The `source` of what we find. What a refusal taught outranks all of them but a row that the user wrote.
RULES, GUESS, GAP, TABLE = "rules", "guess", "gap", "litellm"
WILD = re.compile(r"[*?\[]")
R = TypeVar("R", Row, Gap, Limit, Roles)


class Patterns(Generic[R]):
    """Rows in their order, by the names or patterns that stand in them."""

    def __init__(self, rows: tuple[R, ...]) -> None:
        named = [(place, row.model.strip().lower()) for place, row in enumerate(rows)]
        self._rows: tuple[R, ...] = rows
        self._plain = {name: place for place, name in reversed(named) if not WILD.search(name)}
        self._wild = [(re.compile(fnmatch.translate(name)), place) for place, name in named if WILD.search(name)]

    def match(self, form: str) -> R | None:
        """The first row whose name this is, or whose pattern it matches."""
        places = [place for pattern, place in self._wild if pattern.match(form)]
        if form in self._plain:
            places.append(self._plain[form])
        return self._rows[min(places)] if places else None

    def named(self, name: str) -> R | None:
        """The row of this very name."""
        return self._rows[self._plain[name]] if name in self._plain else None


@dataclass(frozen=True, slots=True)
class Found:
    """What a model was found under: a row of the user's, and what else is known; `part`, if only a part of its name
    is known."""

    row: Row | None = None
    known: Entry | Gap | None = None
    part: str = ""


class Windows:
    """What models can hold. Nothing in it changes; it only remembers what it was asked."""

    def __init__(self, sheet: Sheet, table: Table) -> None:
        self._rows = Patterns(sheet.rows)
        self._gaps = Patterns(sheet.gaps)
        self._limits = Patterns(sheet.limits)
        self._roles = Patterns(sheet.roles)
        self._table = table
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._search)
        self._windows = lru_cache(maxsize=REMEMBERED)(self._window)

    def find(self, model: str) -> Window:
        """The window of a model; for one that nobody knows a guess of 8192 tokens, marked as such."""
        return self._windows(name_of(model))

    def _window(self, model: str) -> Window:
        forms = model_names.forms(model)
        fields = (limit.field for form in forms if (limit := self._limits.match(form)))
        orders = (roles.alternate for form in forms if (roles := self._roles.match(form)))
        window = window_of(self._remembered(model))
        return replace(window, limit_field=next(fields, None), alternates=next(orders, None))

    def known(self, model: str) -> bool:
        """Whether its window is more than a guess."""
        return not self.find(model).guessed

    def tokenizer(self, model: str) -> str | None:
        """The path of the tokenizer.json that the user named for a model."""
        row = self.look(model).row
        return None if row is None else row.tokenizer

    def look(self, model: str) -> Found:
        """Under what a model was found, to show where we know something from. Takes about 60 us, then 0.1."""
        return self._remembered(name_of(model))

    def _search(self, model: str) -> Found:
        forms = model_names.forms(model)
        row = next((row for form in forms if (row := self._rows.match(form))), None)
        known = next((found for form in forms if (found := self._known(form))), None)
        if known or (row and row.tokens):
            return Found(row, known)
        return self._by_part(model_names.parts(model), row)

    def _known(self, form: str) -> Entry | Gap | None:
        return self._table.exact(form) or self._gaps.match(form) or self._table.shared(form)

    def _by_part(self, parts: Iterable[str], row: Row | None) -> Found:
        for part in parts:
            mine = row or self._rows.named(part)
            known = self._gaps.named(part) or self._table.shared(part)
            if known or (mine and mine.tokens):
                return Found(mine, known, part)
        return Found(row)


def window_of(found: Found) -> Window:
    """The window that was found: what the user's row does not say, the rest does."""
    row, known = found.row, found.known
    window = Window(UNKNOWN_WINDOW, source=GUESS, guessed=True)
    if known is not None:
        source = GAP if isinstance(known, Gap) else TABLE
        window = Window(known.tokens, known.max_input, known.max_output, source, can=_can(known.can))
    if row is None:
        return window
    if row.tokens is not None:
        # Who states the window means it, whatever bound on the prompt the table knows within its own.
        cap = window.max_output if (window.max_output or row.tokens) < row.tokens else None
        window = replace(window, tokens=row.tokens, max_input=None, max_output=cap, source=RULES, guessed=False)
    return replace(
        window,
        max_input=row.max_input or window.max_input,
        max_output=row.max_output or window.max_output,
        can=window.can if row.can is None else frozenset(row.can),
    )


def _can(words: Iterable[str] | None) -> frozenset[str] | None:
    return None if words is None else frozenset(words)


def load_windows(sheet: Sheet) -> Windows:
    """Windows over litellm's table as it is installed; takes about 30 ms. Raises ConfigError where it is not."""
    beside = {(pair.input, pair.output) for pair in sheet.beside}
    return Windows(sheet, read_table(table_file().read_bytes(), beside))


def capped(window: Window, limit: int | None, source: str = "cap") -> Window:
    """The window with at most `limit` tokens (`x-plimsoll-window`, `CONTEXT_TOTAL_TOKEN_LIMIT`), never more than the
    model's own; where that is a guess, the limit is what we know. None changes nothing."""
    if limit is None or (limit >= window.tokens and not window.guessed):
        return window
    return replace(window, tokens=limit, source=source, guessed=False)
