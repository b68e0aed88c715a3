"""rules/windows.toml as values: rows that override litellm's table, and rows that fill its gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from proxy.config.model_table import WORDS
from proxy.tokens.encodings import encoding, own

MOST = 10**9  # tokens: a figure over it is a slip of the hand
LIMITS = ("max_completion_tokens", "max_tokens")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[window]]`: what the user knows of the models whose name `model` is or matches. Figures in tokens.

    What a row does not say, the table says. `tokenizer` is the path of a tokenizer.json, relative to the file's folder.
    """

    model: str
    tokens: int | None = None
    max_input: int | None = None
    max_output: int | None = None
    tokenizer: str | None = None
    can: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check(self)
        if (self.tokens, self.max_input, self.max_output, self.tokenizer, self.can) == (None,) * 5:
            raise ValueError("the row says nothing of the model")


class Gap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[gap]]`: a model that the table has no row of its own for; a row there, or a refusal, knows better."""

    model: str
    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    can: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check(self)


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[limit]]`: models that take a reply limit in one field only, and refuse the other."""

    model: str
    field: str

    def __post_init__(self) -> None:
        named(self.model)
        if self.field not in LIMITS:
            raise ValueError(f"field must be one of {', '.join(LIMITS)}")


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[roles]]`: whether models take user and assistant in turn only."""

    model: str
    alternate: bool

    def __post_init__(self) -> None:
        named(self.model)


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[beside]]`: rows of the table with these two figures have a window that is their sum."""

    input: int
    output: int


def check(row: Row | Gap) -> None:
    """What holds for either kind of row. Raises ValueError."""
    named(row.model)
    if any(figure is not None and figure < 1 for figure in (row.tokens, row.max_input, row.max_output)):
        raise ValueError("tokens, max_input and max_output must be at least 1 token")
    if max(row.tokens or 0, row.max_input or 0, row.max_output or 0) > MOST:
        raise ValueError(f"tokens, max_input and max_output must be at most {MOST:,} tokens")
    if row.tokens is not None and max(row.max_input or 0, row.max_output or 0) > row.tokens:
        raise ValueError(f"max_input and max_output must not be over tokens ({row.tokens:,})")
    if unknown := set(row.can or ()) - WORDS:
        raise ValueError(f"can: {', '.join(sorted(unknown))} is not among {', '.join(sorted(WORDS))}")


def named(model: str) -> None:
    """Raises ValueError for a row without a model."""
    if not model.strip():
        raise ValueError("model must not be empty")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A windows.toml: its rows of each kind, in their order."""

    rows: tuple[Row, ...] = ()
    gaps: tuple[Gap, ...] = ()
    beside: tuple[Beside, ...] = ()
    limits: tuple[Limit, ...] = ()
    roles: tuple[Roles, ...] = ()

    def over(self, other: Sheet) -> Sheet:
        """This sheet's rows before another's: the first that matches wins."""
        return Sheet(
            self.rows + other.rows,
            self.gaps + other.gaps,
            self.beside + other.beside,
            self.limits + other.limits,
            self.roles + other.roles,
        )


KINDS: Mapping[str, Any] = {"window": Row, "gap": Gap, "beside": Beside, "limit": Limit, "roles": Roles}


def parse_sheet(table: Mapping[str, Any], folder: Path) -> tuple[Sheet, list[str]]:
    """A windows.toml as TOML has it, and all that is wrong with it: a line for each row, with its place from 1."""
    problems = [f"{key}: no such kind of row, there are {', '.join(KINDS)}" for key in table if key not in KINDS]
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for place, row in enumerate(listed(table.get(kind, [])), 1):
            try:
                found[kind].append(_placed(msgspec.convert(row, KINDS[kind]), folder))
            except ValueError as error:
                problems.append(f"{kind} {place}{_title(row)}: {reason(error)}")
    return Sheet(*(tuple(found[kind]) for kind in KINDS)), problems


def listed(rows: Any) -> list[Any]:
    """The rows of an array of tables; `[window]` where `[[window]]` was meant is one row."""
    return rows if isinstance(rows, list) else [rows]


def reason(error: ValueError) -> str:
    """What a conversion complains of, as people write it: `cap_tokens: expected int, got str`."""
    text, _, path = str(error).replace("`", "").partition(" - at ")
    text = text.replace("Object contains unknown", "unknown").replace("Object missing required", "missing")
    field = path.removeprefix("$").removeprefix(".")
    return (f"{field}: " if field else "") + text.replace("Expected ", "expected ")


def _title(row: Any) -> str:
    return f" ({row['model']})" if isinstance(row, dict) and isinstance(row.get("model"), str) else ""


def _placed(row: Any, folder: Path) -> Any:
    if not isinstance(row, Row) or row.tokenizer is None:
        return row
    path = folder / row.tokenizer
    if not path.is_file():
        raise ValueError(f"tokenizer: there is no file {path}")
    try:
        encoding(own(str(path)))  # once for all requests; what is wrong with it is told now
    except ValueError as error:
        raise ValueError(f"tokenizer: {error}") from None
    return msgspec.structs.replace(row, tokenizer=str(path))
