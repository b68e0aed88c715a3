"""Parses the tables `[[budget]]` of callers.toml. It compares nothing with a request, and opens no file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec

from proxy.config.rows import converted, parse_rows
from proxy.config.window_rules import MAX_TOKENS
from proxy.model.budget import NANO, Budget, For, Over, Unit

TABLE = "budget"
SESSION = "session"  # a period: as long as the session
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,63}")
NAME_FORM = "must be a name of at most 64 letters, digits and ._@/-"
PERIOD = re.compile(r"([1-9][0-9]{0,3})([hd])")
HOUR_S, MAX_DAYS = 3_600, 366
MAX_BUDGETS = 100
MAX_LIMIT = 1 << 52  # sums stay exact in a script of Redis, whose numbers have 53 bits
LEAST_WINDOW = 1_000


class BudgetRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[budget]]`: `tokens` or `usd` in each period (`per`: hours, days, or `session`)."""

    name: str
    per: str
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] | None = None
    usd: float | None = None
    scope: For = msgspec.field(default=For.CALLER, name="for")
    count: str = "uncached"
    soft: float = 0.8
    window: Annotated[int, msgspec.Meta(ge=LEAST_WINDOW, le=MAX_TOKENS)] = 16_000
    over: Over = Over.OBSERVE

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"name {NAME_FORM}")
        if (self.tokens is None) is (self.usd is None):
            raise ValueError("must have tokens, or usd")
        if self.usd is not None and not (math.isfinite(self.usd) and 1 <= self.usd * NANO <= MAX_LIMIT):
            raise ValueError("usd must be a positive number of US dollars")
        if self.count not in ("uncached", "all"):
            raise ValueError('count must be "uncached" or "all"')
        if not 0 < self.soft <= 1:
            raise ValueError("soft must be over 0 and at most 1")
        if self.per == SESSION and self.scope is not For.SESSION:
            raise ValueError('per = "session" needs for = "session"')
        _ = self.seconds  # raises ValueError

    @property
    def seconds(self) -> int:
        """The period; 0: it is not renewed."""
        if self.per == SESSION:
            return 0
        found = PERIOD.fullmatch(self.per)
        seconds = 0 if found is None else int(found[1]) * HOUR_S * (24 if found[2] == "d" else 1)
        if not 0 < seconds <= MAX_DAYS * 24 * HOUR_S:
            raise ValueError(f'per must be hours or days, such as "5h" or "30d", or "{SESSION}"')
        return seconds

    @property
    def budget(self) -> Budget:
        """The budget."""
        limit, unit = (self.tokens, Unit.TOKENS) if self.tokens else (round((self.usd or 0) * NANO), Unit.USD)
        assert limit is not None
        return Budget(
            name=self.name,
            limit=limit,
            unit=unit,
            scope=self.scope,
            seconds=self.seconds,
            everything=self.count == "all",
            soft=self.soft,
            window=self.window,
            over=self.over,
        )


def parse_budgets(table: Mapping[str, Any]) -> tuple[dict[str, Budget], list[str]]:
    """The budgets of a parsed callers.toml by their names, and the problems of its rows."""
    rows, problems = parse_rows(table, TABLE, partial(converted, kind=BudgetRow))
    found: dict[str, Budget] = {}
    for row in rows:
        if row.name in found:
            problems.append(f"{TABLE} ({row.name}): another row has this name")
        found[row.name] = row.budget
    if len(found) > MAX_BUDGETS:
        problems.append(f"{TABLE}: there are {len(found)}, at most {MAX_BUDGETS} are kept")
    return found, problems


def said(budget: Budget) -> str:
    """A budget in a few words."""
    hours = budget.seconds // HOUR_S
    period = "session" if not hours else f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"
    what = {Over.OBSERVE: "told only", Over.REFUSE: "refused beyond", Over.FIT: f"fitted to {budget.window:,} tokens"}
    whose = {For.ALL: "for all", For.CALLER: "for each caller", For.SESSION: "for each session"}[budget.scope]
    return f"budget {budget.name}: {budget.text(budget.limit)} per {period} {whose}, {what[budget.over]}"
