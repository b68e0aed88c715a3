"""Shortens the text of one tool result: as rows of JSON, as lines, or as head and tail. It chooses no message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proxy.fit.nested import decoded
from proxy.fit.relevance.results.json_shrinking import LEFT_OUT, encoded, shrink
from proxy.fit.relevance.results.lines import BY_PROXY, shorten_lines
from proxy.fit.relevance.results.read_on import NO_CALL, ReadOn
from proxy.fit.relevance.results.rows import find_rows, shorten_rows
from proxy.fit.relevance.results.tables import COLUMNS, expanded
from proxy.fit.relevance.text.query import ResultQuery
from proxy.fit.shorten import head_and_tail, marked_by_proxy, marker
from proxy.model.lenient_json import Json
from proxy.model.oversized_json import is_cut
from proxy.model.ports import Meter
from proxy.model.structs import replace

MOST_OF_IT = 0.5  # share of a JSON text from which its longest string (a file, a log) alone is shortened
SPARE = 16  # tokens for the quotes and escapes of a shortened string
OVER_CHARACTERS = "\n[Truncated for context management]"  # the note of seed 004 for a text cut by characters
CUT = "…"  # the end of a text whose rest is missing, where there is no room for a number
WHO = 12  # tokens of the field that says who left something out
TRIES = 3  # attempts to make a string fit into its JSON, where escapes make it longer


def shorten(
    text: str,
    limit: int,
    query: ResultQuery,
    meter: Meter,
    *,
    cap_chars: int | None = None,
    preview: int | None = None,
    too_long: bool = False,
    call: ReadOn = NO_CALL,
) -> str:
    """At most `limit` tokens (and `cap_chars` characters) of a tool result, chosen for a query, with a note
    of what was removed. The same text if it is within both limits.

    `call`: how the call can be repeated for what is missing. `preview`: the most rows of a list. `too_long`: the caller
    has counted the text and it is over the limit.
    """

    def fits(made: str) -> bool:
        return (cap_chars is None or len(made) <= cap_chars) and meter.text(made) <= bound

    bound = limit
    if not too_long and fits(text):
        return text
    if cap_chars is not None:
        limit = min(limit, meter.text(text[:cap_chars]))
    goal = Goal(limit, query, meter, fits, preview, call)
    made = _of_json(text, goal)
    return made if made is not None else _of_text(text, goal, "" if cap_chars is None else OVER_CHARACTERS)


def shorten_json(text: str, limit: int, query: ResultQuery, meter: Meter) -> str | None:
    """At most `limit` tokens of a JSON value, by its rows as in a tool result, as valid JSON; None if nothing fits."""
    return _of_json(text, Goal(limit, query, meter, lambda made: meter.text(made) <= limit))


def _of_text(text: str, goal: Goal, said: str) -> str:
    """The lines relevant to the query, followed by the note `said`; else head and tail."""

    def fits(made: str) -> bool:
        return goal.fits(made + said)

    made = shorten_lines(text, goal.limit, goal.query, goal.meter, fits, goal.call)
    if made is None:
        made = _cut(text, replace(goal, fits=fits))
    return made + said if made else _cut(text, goal)


@dataclass(frozen=True, slots=True)
class Goal:
    """The parameters of one call of `shorten`; `fits` tests whether a result is within the limits."""

    limit: int
    query: ResultQuery
    meter: Meter
    fits: Callable[[str], bool]
    preview: int | None = None
    call: ReadOn = NO_CALL


def _cut(text: str, goal: Goal) -> str:
    """Head and tail of a text, or the head alone, for texts that cannot be shortened by lines. It never ends as if it
    were whole."""
    made = head_and_tail(text, goal.limit, goal.meter, marker=marked_by_proxy if goal.call.says_who else marker)
    if goal.fits(made):
        return made
    made = goal.meter.cut(text, goal.limit)
    while made and not goal.fits(made + CUT):
        made = made[: len(made) * 9 // 10]
    return made + CUT if goal.fits(made + CUT) else ""


def _of_json(text: str, goal: Goal) -> str | None:
    """A JSON result by its rows, else by its longest string, else shrunk as a whole. None if it is not JSON or nothing
    fits."""
    try:
        whole = decoded(text)
    except msgspec.DecodeError:
        return None
    if not isinstance(whole, (dict, list)):
        return None
    whole = expanded(whole) if f'"{COLUMNS}"' in text else whole
    listed = find_rows(whole)
    if listed is None or listed.size < MOST_OF_IT * len(text):
        longest = _longest(whole)
        if longest is not None and len(longest) >= MOST_OF_IT * len(text):
            return _around(whole, longest, goal)
    if listed is not None:
        listed = replace(listed, uncounted=is_cut(text))
        return shorten_rows(listed, goal.limit, goal.query, goal.meter, goal.fits, goal.preview, goal.call)
    made = shrink(whole, goal.limit - WHO * goal.call.says_who, goal.query.words, goal.meter)
    if goal.call.says_who and isinstance(made, dict):
        made[LEFT_OUT] = f"{made[LEFT_OUT]} by a proxy" if LEFT_OUT in made else BY_PROXY
    text_made = encoded(made)
    return text_made if goal.fits(text_made) else None


def _longest(value: Json, depth: int = 4) -> str | None:
    """The longest string within `depth` levels."""
    if isinstance(value, str):
        return value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = (_longest(child, depth - 1) for child in children) if depth else ()
    return max((s for s in found if s is not None), key=len, default=None)


def _around(whole: Json, longest: str, goal: Goal) -> str | None:
    """The JSON with its longest string shortened as if it were a result."""
    room = goal.limit - goal.meter.text(encoded(_with(whole, longest, ""))) - SPARE
    for _ in range(TRIES):
        if room <= 0:
            return None
        short = shorten(longest, room, goal.query, goal.meter, call=replace(NO_CALL, says_who=goal.call.says_who))
        made = encoded(_with(whole, longest, short))
        if goal.fits(made):
            return made
        # Quotes and escapes are a share of what the string took, which may be less than its room.
        room = min(room, goal.meter.text(short)) * goal.limit // max(goal.limit, goal.meter.text(made)) - SPARE
    return None


def _with(value: Json, longest: str, instead: str) -> Json:
    if value is longest:
        return instead
    if isinstance(value, dict):
        return {key: _with(item, longest, instead) for key, item in value.items()}
    return [_with(item, longest, instead) for item in value] if isinstance(value, list) else value
