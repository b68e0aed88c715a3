"""The rows of rules/refusals.toml as validated, compiled values. It reads no file and contains no wording."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
FIGURES = ("limit", "prompt", "completion", "total", "excess")
BOUNDS = ("window", "input", "inputs", "together", "body", "request", "roles", "reasoning")

# 4096, 128,000, 1_048_576 or 16.384, but neither the 128 of "128k" nor a part of a longer number.
NUMBER = r"(?<![\d.,])(?:\d{1,3}(?:[.,_]\d{3})+|\d{1,12})(?!\d|[.,_]\d|[km]\b)"
SLOT = re.compile(r"\{([a-z_]+)\}")
CODE_KEYS = "code|type|error|error_type|error_code|reason|status|status_code|__type"


@dataclass(frozen=True, slots=True)
class Row:
    """One [[refusal]] or [[veto]]. It applies if its statuses, its codes and one of its patterns match.

    `figures` are patterns that only extract figures. `bounds` and `at_least` are those of `Refusal`. `limit`: what the
    wording means where it names no figure, in tokens. `first`: it applies although a veto does.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...] = ()
    figures: tuple[re.Pattern[str], ...] = ()
    status: frozenset[int] = frozenset()
    code: re.Pattern[str] | None = None
    bounds: str = "window"
    at_least: bool = False
    limit: int | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The table: a veto excludes a refusal; else the first refusal that applies counts.

    `figures` extract figures for every row, after its own patterns. `never` are the statuses that are no refusals
    unless a row names them.
    """

    refusals: tuple[Row, ...] = ()
    vetoes: tuple[Row, ...] = ()
    figures: tuple[re.Pattern[str], ...] = ()
    never: frozenset[int] = frozenset()


def compile_rules(table: Mapping[str, Any]) -> Rules:
    """The rules in a parsed rules/refusals.toml. Raises `ValueError` with one line per problem: row and reason."""
    problems = [f"unknown key {key!r}" for key in sorted(set(table) - {"never", "figures", "refusal", "veto"})]
    rules = Rules(
        _rows(table, "refusal", ROW_KEYS, problems),
        _rows(table, "veto", VETO_KEYS, problems),
        _read(_patterns, table.get("figures", []), (), problems),
        _read(_statuses, table.get("never", []), frozenset(), problems),
    )
    if problems:
        raise ValueError("\n".join(problems))
    return rules


def _read(read: Callable[[Any], T], value: Any, nothing: T, problems: list[str]) -> T:
    try:
        return read(value)
    except ValueError as wrong:
        problems.append(str(wrong))
        return nothing


def _rows(
    table: Mapping[str, Any], kind: str, keys: Mapping[str, Callable[[Any], Any]], problems: list[str]
) -> tuple[Row, ...]:
    rows = table.get(kind, [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        problems.append(f"{kind}: must be an array of tables")
        return ()
    made: dict[str, Row] = {}
    for number, values in enumerate(rows, 1):
        try:
            row = _row(values, keys)
            if row.name in made:
                raise ValueError("the name is taken")
            made[row.name] = row
        except ValueError as wrong:
            problems.append(f"{kind} row {number} ({values.get('name', 'no name')}): {wrong}")
    return tuple(made.values())


def _row(values: Mapping[str, Any], keys: Mapping[str, Callable[[Any], Any]]) -> Row:
    unknown = sorted(set(values) - set(keys))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    if not values.get("name"):
        raise ValueError("a row needs a name")
    if not values.get("patterns") and not values.get("code"):
        raise ValueError("a row needs patterns or a code")
    return Row(**{key: keys[key](value) for key, value in values.items()})


def _pattern(source: Any) -> re.Pattern[str]:
    if not isinstance(source, str) or not source:
        raise ValueError(f"a pattern must be a text, not {source!r}")
    plain = re.sub(r"\\.|\(\?P", "", source)
    if plain != plain.lower():
        raise ValueError(f"pattern {source!r}: texts are matched in lower case")
    if re.search(r"\{[a-z_]", SLOT.sub("", plain)):
        raise ValueError(f"pattern {source!r}: a figure is a word in braces, such as {{limit}}")
    try:
        made = re.compile(SLOT.sub(_slot, source), re.ASCII)
    except re.error as wrong:
        raise ValueError(f"pattern {source!r}: {wrong}") from None
    unknown = sorted(set(made.groupindex) - set(FIGURES))
    if unknown:
        raise ValueError(f"pattern {source!r}: unknown group {unknown[0]!r}, known are {', '.join(FIGURES)}")
    return made


def _slot(slot: re.Match[str]) -> str:
    """The pattern of a slot: `{limit}` and the other figures are captured by name, `{n}` is any other number."""
    return NUMBER if slot[1] == "n" else f"(?P<{slot[1]}>{NUMBER})"


def _patterns(sources: Any) -> tuple[re.Pattern[str], ...]:
    if not isinstance(sources, list):
        raise ValueError("patterns and figures must be lists of texts")
    return tuple(_pattern(source) for source in sources)


def _codes(codes: Any) -> re.Pattern[str]:
    if not isinstance(codes, list) or not all(isinstance(code, str | int) for code in codes):
        raise ValueError("code must be a list of texts or numbers")
    either = "|".join(re.escape(str(code).lower()) for code in codes)
    return re.compile(rf"\b(?:{CODE_KEYS}) ?[:=] ?(?:{either})\b")


def _statuses(statuses: Any) -> frozenset[int]:
    if not isinstance(statuses, list) or not all(type(s) is int and 100 <= s < 600 for s in statuses):
        raise ValueError("status and never must be lists of HTTP statuses")
    return frozenset(statuses)


def _bounds(bounds: Any) -> str:
    if bounds not in BOUNDS:
        raise ValueError(f"bounds must be one of {', '.join(BOUNDS)}")
    return str(bounds)


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError("the name must be a text")
    return text


def _tokens(limit: Any) -> int:
    if type(limit) is not int or not 0 < limit < 10**12:
        raise ValueError("limit must be a number of tokens")
    return limit


def _flag(flag: Any) -> bool:
    if not isinstance(flag, bool):
        raise ValueError("at_least and first must be true or false")
    return flag


VETO_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "name": _text,
    "patterns": _patterns,
    "status": _statuses,
    "code": _codes,
}
ROW_KEYS: Mapping[str, Callable[[Any], Any]] = {
    **VETO_KEYS,
    "figures": _patterns,
    "bounds": _bounds,
    "at_least": _flag,
    "limit": _tokens,
    "first": _flag,
}
