"""Parses callers.toml: the names of callers that metrics tell apart, and rules by caller.

It computes no hash: `proxy.request.callers` compares the rows with requests. It opens no file.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from proxy.config.budgets import NAME, NAME_FORM, parse_budgets, said
from proxy.config.budgets import TABLE as BUDGET
from proxy.config.rows import converted, parse_rows
from proxy.config.settings import Settings
from proxy.config.window_rules import MAX_TOKENS
from proxy.model.budget import Budget
from proxy.model.caller_rule import CallerRule, PinRule
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Reported
from proxy.wire.headers import CREDENTIALS

FILE = "callers.toml"
TABLE = "caller"
MAX_CALLERS = 50  # each has series of its own in nearly every metric
MAX_ROWS, MAX_MATCHES = 200, 1_000  # rows, and keys, values or globs of one row
KEY = re.compile(r"key:[0-9a-f]{4}:[0-9a-f]{32}")  # as `plimsoll caller` prints it: of the secret, of the key
EVERYBODY = "*"
MAX_PIN_TEXTS, MIN_PIN_TEXT, MAX_PIN_TEXT = 16, 3, 200  # texts are searched for in every message
OTHER = "other"  # what metrics call all callers without a name

Texts = tuple[str, ...]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class MatchTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The field `match`. Who: callers with one of these `keys` (keyed hashes), or with one of these `headers` (values
    of PLIMSOLL_CALLER_HEADER from a gateway that is trusted); everybody if there are none. And of their requests those
    to `models` and `paths` (globs); all if there are none."""

    keys: Texts = ()
    headers: Texts = ()
    models: Texts = ()
    paths: Texts = ()

    def __post_init__(self) -> None:
        for problem in _match_problems(self):
            raise ValueError(problem)


class PinTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The field `pin`."""

    roles: Texts = ()
    names: Texts = ()
    texts: Texts = ()

    def __post_init__(self) -> None:
        given = (*self.roles, *self.names, *self.texts)
        if not given or not all(text.strip() for text in given):
            raise ValueError("pin must have roles, names or texts, none of them empty")
        if len(self.texts) > MAX_PIN_TEXTS:
            raise ValueError(f"pin: there are {len(self.texts)} texts, at most {MAX_PIN_TEXTS} are searched for")
        if any(not MIN_PIN_TEXT <= len(text) <= MAX_PIN_TEXT for text in self.texts):
            raise ValueError(f"pin: texts must have {MIN_PIN_TEXT} to {MAX_PIN_TEXT} characters")

    @property
    def rule(self) -> PinRule:
        """The rule."""
        return PinRule(frozenset(self.roles), frozenset(self.names), tuple(text.casefold() for text in self.texts))


class CallerRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[caller]]`. `match` in short: `"*"`, or a key's hash, or several."""

    name: str
    match: str | Texts | MatchTable
    window: Tokens | None = None
    ladder: str | None = None
    mode: Mode | None = None
    upstream: str | None = None
    models: Texts | None = None
    pin: PinTable | None = None
    on_full: OnFull | None = None
    usage: Reported | None = None
    effective: Tokens | None = None
    budget: str | None = None

    def __post_init__(self) -> None:
        if not is_name(self.name) or self.name == OTHER:
            raise ValueError(f"name {NAME_FORM}, and not {OTHER}")
        if self.budget is not None and not is_name(self.budget):
            raise ValueError(f"budget {NAME_FORM}")
        if self.models is not None and (not self.models or not all(model.strip() for model in self.models)):
            raise ValueError("models must not be empty")
        _ = self.matched  # raises ValueError

    @property
    def matched(self) -> MatchTable:
        """What it matches, in full."""
        given = self.match
        if isinstance(given, MatchTable):
            return given
        if given == EVERYBODY:
            return MatchTable()
        keys = (given,) if isinstance(given, str) else given
        if not keys:
            raise ValueError('match is empty: it must be "*", hashes of keys, or a table')
        return MatchTable(keys=keys)

    @property
    def named(self) -> bool:
        """Whether it says who its callers are: all of them are then one."""
        return bool(self.matched.keys or self.matched.headers)

    @property
    def is_for_all(self) -> bool:
        """Whether it matches every request, so that no later row does."""
        return self.matched == MatchTable()

    def rule(self, number: int, budgets: Mapping[str, Budget]) -> CallerRule:
        """What it says, as the row of this number, with one of these budgets."""
        models = None if self.models is None else globs(self.models)
        pin = None if self.pin is None else self.pin.rule
        fields = (self.window, self.ladder, self.mode, self.upstream, models, pin, self.on_full, self.usage)
        budget = None if self.budget is None else budgets.get(self.budget)
        return CallerRule(number, self.name, *fields, self.effective, budget, not self.named)


class CallerRules(msgspec.Struct, frozen=True):
    """A parsed callers.toml. `listed`: values of PLIMSOLL_CALLER_HEADER that metrics tell apart without a rule.
    `budgets`: by name. `source`: the file, for problems."""

    listed: frozenset[str] = frozenset()
    rows: tuple[CallerRow, ...] = ()
    budgets: Mapping[str, Budget] = {}
    source: str = FILE

    @property
    def names(self) -> frozenset[str]:
        """All values of the label of metrics."""
        return self.listed | {row.name for row in self.rows}

    @property
    def tells_strangers_apart(self) -> bool:
        """Whether callers that no row names have a budget each, by the keys that an upstream accepted."""
        return any(row.budget is not None and not row.named for row in self.rows)


def _match_problems(match: MatchTable) -> list[str]:
    """What is wrong with the field `match`."""
    every = (match.keys, match.headers, match.models, match.paths)
    found = [f"match: at most {MAX_MATCHES:,} of a kind" for given in every if len(given) > MAX_MATCHES]
    if any(not KEY.fullmatch(key) for key in match.keys):  # whatever it is, it may be a key
        found.append('match must be "*", or hashes of keys as plimsoll caller prints them, and never a key')
    if any(not value.strip() or value != value.strip() or not value.isprintable() for value in match.headers):
        found.append("match: headers must be values of a header, without spaces around them")
    if any(not model.strip() for model in match.models):
        found.append("match: models must not be empty")
    if any(not path.startswith("/") for path in match.paths):
        found.append("match: paths must begin with /, such as /v1/messages*")
    return found


def parse_callers(table: Mapping[str, Any]) -> tuple[CallerRules, list[str]]:
    """The rules of a parsed callers.toml, and its problems."""
    known = ("callers", TABLE, BUDGET)
    problems = [f"{key}: unknown key, must be {' or '.join(known)}" for key in table if key not in known]
    listed, wrong = _listed(table.get("callers", []))
    rows, invalid = parse_rows(table, TABLE, partial(converted, kind=CallerRow))
    budgets, unclear = parse_budgets(table)
    rules = CallerRules(listed, rows, budgets)
    problems += [*wrong, *invalid, *unclear]
    if not unclear:
        problems += _unknown_budgets(rows, budgets)
    if len(rows) > MAX_ROWS:
        problems.append(f"{TABLE}: there are {len(rows)} rows, at most {MAX_ROWS} are compared")
    if len(rules.names) > MAX_CALLERS:
        problems.append(f"callers: there are {len(rules.names)}, at most {MAX_CALLERS} are told apart")
    if not invalid:
        problems += _unreached(rows)
    return (CallerRules() if problems else rules), problems


def _unknown_budgets(rows: Sequence[CallerRow], budgets: Collection[str]) -> list[str]:
    """A line for each row that names a budget which does not exist, and for each budget that no row names."""
    known = ", ".join(sorted(budgets)) or "none"
    found = [
        f"{TABLE} {number} ({row.name}): unknown budget {row.budget!r}, known are {known}"
        for number, row in enumerate(rows, 1)
        if row.budget is not None and row.budget not in budgets
    ]
    named = {row.budget for row in rows}
    return [*found, *(f"{BUDGET} ({name}): no {TABLE} names it" for name in budgets if name not in named)]


def _listed(names: Any) -> tuple[frozenset[str], list[str]]:
    if not isinstance(names, list):
        return frozenset(), ["callers must be a list of names"]
    wrong = [f"callers: {name!r} {NAME_FORM}" for name in names if not is_name(name)]
    return frozenset(() if wrong else names), wrong


def _unreached(rows: Sequence[CallerRow]) -> list[str]:
    """A line for the rows behind one that matches every request."""
    first = next((number for number, row in enumerate(rows, 1) if row.is_for_all), len(rows))
    return [
        f"{TABLE} {number} ({row.name}): is never reached: row {first} matches every request"
        for number, row in enumerate(rows[first:], first + 1)
    ]


def unknown_names(rules: CallerRules, ladders: Collection[str], upstreams: Collection[str]) -> list[str]:
    """A line for each row that names a ladder or an upstream that does not exist."""
    kinds = {"ladder": ladders, "upstream": upstreams}
    return [
        f"{TABLE} {number} ({row.name}): unknown {kind} {named!r}, known are {', '.join(sorted(known))}"
        for number, row in enumerate(rules.rows, 1)
        for kind, known in kinds.items()
        if (named := getattr(row, kind)) is not None and named not in known
    ]


def unusable(rules: CallerRules, settings: Settings, mark: str | None) -> list[str]:
    """A line for each row that cannot be compared with requests under these settings. `mark`: of their secret, as the
    hash of a key has it; None: there is no secret."""
    found = []
    for number, row in enumerate(rules.rows, 1):
        if row.budget is not None and (row.mode or settings.mode) is Mode.OFF:
            found.append(f"{rules.source}, {TABLE} {number} ({row.name}): a budget needs a mode that counts, not off")
        match, where = row.matched, f"{rules.source}, {TABLE} {number} ({row.name})"
        if match.keys and mark is None:
            found.append(f"{where}: hashes of keys need PLIMSOLL_SECRET, the same on all replicas")
        elif any(key.split(":")[1] != mark for key in match.keys):
            found.append(f"{where}: a hash was made with another PLIMSOLL_SECRET: make it anew with plimsoll caller")
        if match.headers and settings.caller_header is not None and settings.caller_header.encode() in CREDENTIALS:
            found.append(f"{where}: PLIMSOLL_CALLER_HEADER must not be a header that has a key")
        if match.headers and (settings.caller_header is None or not settings.trusted_proxies):
            found.append(
                f"{where}: headers need PLIMSOLL_CALLER_HEADER, and PLIMSOLL_TRUSTED_PROXIES: the addresses of the "
                f"gateway that sets it"
            )
    return found


def described(rules: CallerRules) -> list[str]:
    """A line for each row: whom it matches, and what it says; and one for each budget."""
    rows = enumerate(rules.rows, 1)
    lines = [f"{TABLE} {number} ({row.name}): {_whom(row.matched)}: {_said(row)}" for number, row in rows]
    return [*lines, *map(said, rules.budgets.values())]


def _whom(match: MatchTable) -> str:
    parts = [f"{len(match.keys)} key{'s' * (len(match.keys) != 1)}"] if match.keys else []
    parts += [f"header {', '.join(match.headers)}"] if match.headers else []
    who = " or ".join(parts) or "everybody else"
    which = [f"{kind} {', '.join(given)}" for kind in ("models", "paths") if (given := getattr(match, kind))]
    return " with ".join([who, *which])


def _said(row: CallerRow) -> str:
    fields = [name for name in row.__struct_fields__ if name not in ("name", "match", "pin")]
    said = [f"{name} {_text(value)}" for name in fields if (value := getattr(row, name)) is not None]
    return ", ".join([*said, *(["pins"] if row.pin else [])]) or "a name alone"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else " ".join(value) if isinstance(value, tuple) else str(value)


def globs(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for all of these globs, in lower case; None if there is none."""
    translated = [fnmatch.translate(pattern.strip().lower()) for pattern in patterns]
    return re.compile("|".join(translated)) if translated else None


def is_name(name: Any) -> bool:
    """Whether a value is the name of a caller or of a budget."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None
