"""Shortening one tool result: JSON keeps its metadata, a count and rows, text its ends; it chooses no message."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from proxy.fit.shorten import head_and_tail
from proxy.types import Json, Meter

LIST_DEPTH = 4  # levels of objects in which the list of results is looked for; deeper lists belong to one row
FEWEST_ROWS = 3  # a shorter list is no list of results
LONG_STRING = 500  # characters that a preview keeps of a string (seed 004)


def shorten_result(
    text: str, limit: int, meter: Meter, *, cap_chars: int | None = None, preview: int | None = None
) -> str:
    """At most `limit` tokens (and `cap_chars` characters) of a tool result; the same text where it is within both."""
    if (cap_chars is None or len(text) <= cap_chars) and meter.text(text) <= limit:
        return text
    try:
        short = _of_json(text, limit, meter, cap_chars, preview)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        short = None
    return _of_text(text, limit, meter, cap_chars) if short is None else short


def _of_text(text: str, limit: int, meter: Meter, cap_chars: int | None) -> str:
    """Head and tail; where that is over the characters, seed 004's cut."""
    short = head_and_tail(text, limit, meter)
    if cap_chars is None or len(short) <= cap_chars:
        return short
    return head_and_tail(_clipped(text, cap_chars), limit, meter)


def _clipped(text: str, cap: int) -> str:
    """Seed 004's cut of a text by characters, and what it says then."""
    note = "\n[Truncated for context management]"
    return text if len(text) <= cap else text[: cap - len(note)] + note


def _of_json(text: str, limit: int, meter: Meter, cap_chars: int | None, preview: int | None) -> str | None:
    """The result with only its first rows, and the count and a note beside them; None where it has no rows, or where
    not one row fits. Raises what the decoder does where it is no JSON."""
    whole = msgspec.json.decode(text)
    rows = largest_list(whole)
    if rows is None:
        return None
    low, high = 1, min(len(rows), preview or len(rows))
    best = None
    while low <= high:  # the most rows that fit
        middle = (low + high) // 2
        short = with_rows(whole, rows, middle)
        if (cap_chars is None or len(short) <= cap_chars) and meter.text(short) <= limit:
            best, low = short, middle + 1
        else:
            high = middle - 1
    return best


def largest_list(value: Json, depth: int = LIST_DEPTH) -> list[Json] | None:
    """The list that holds the results: the one with the longest JSON within `depth` levels of objects."""
    found: list[list[Json]] = []
    level: list[Json] = [value]
    for _ in range(depth):
        found += [v for v in level if isinstance(v, list) and len(v) >= FEWEST_ROWS]
        level = [child for v in level if isinstance(v, dict) for child in v.values()]
    return max(found, key=lambda rows: len(msgspec.json.encode(rows)), default=None)


def with_rows(whole: Json, rows: list[Json], keep: int) -> str:
    """The JSON with only the first `keep` of those rows, long strings in them cut, and a note where rows went."""
    note = f"[Truncated: {len(rows)} total results]"
    shown = [_brief(row) for row in rows[:keep]]
    if whole is rows:
        return _text({"result_count": len(rows), "results_preview": shown, "note": note})
    slim = _replaced(whole, rows, shown)
    return _text({**slim, _free("result_count", slim): len(rows), _free("note", slim): note})


def _free(key: str, taken: Collection[str]) -> str:
    """The key, or one like it that the result has not taken for something of its own."""
    while key in taken:
        key = "_" + key
    return key


def _replaced(value: Json, rows: list[Json], shown: list[Json]) -> Any:
    if value is rows:
        return shown
    if isinstance(value, dict):
        return {k: _replaced(v, rows, shown) for k, v in value.items()}
    return value


def _brief(row: Json) -> Json:
    if isinstance(row, str):
        return row if len(row) <= LONG_STRING else row[:LONG_STRING] + "…"
    if isinstance(row, dict):
        return {k: _brief(v) for k, v in row.items()}
    return [_brief(v) for v in row] if isinstance(row, list) else row


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
