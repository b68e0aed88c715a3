"""What reports of usage of all APIs share: which values are counts, and the last report in the end of a response.

Nothing here raises.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping

from proxy.model.lenient_json import Json, raw_places, raw_value
from proxy.model.outcome import DEFAULT_TIER, TIERS, Extra, Usage
from proxy.wire.headers import MAX_COST

MAX_OBJECT = 16_384  # bytes from a usage object's start in which it must end
MAX_TOKENS = 10**15  # a larger number is no count, and would overflow later arithmetic
Read = Callable[[Mapping[str, Json], Usage | None], Usage | None]


def count_of(value: Json) -> int | None:
    """A value as a count of tokens; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None


def cost_of(value: Json) -> float | None:
    """A value as a cost in US dollars; None if it is none."""
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    return number if 0 <= number <= MAX_COST else None


def tier_of(value: Json) -> str:
    """The tier of service of its name: a value of `TIERS`, `DEFAULT_TIER` for any other; empty if it is no name."""
    return TIERS.get(value.lower(), DEFAULT_TIER) if isinstance(value, str) and value else ""


def extra_of(extra: Extra) -> Extra | None:
    """The same; None if it has nothing."""
    return None if extra == NOTHING else extra


NOTHING = Extra()


def with_more(reported: bytes, keys: Collection[str], more: int) -> bytes:
    """The JSON of a usage with so many tokens more under these keys, where they have counts; its other bytes stay."""
    written: list[bytes] = []
    end = 0
    for name, (start, stop) in raw_places(reported).items():
        count = count_of(raw_value(reported[start:stop])) if name in keys else None
        if count is not None:
            written += (reported[end:start], b"%d" % (count + more))
            end = stop
    return b"".join((*written, reported[end:]))


def usage_in_tail(tail: bytes, before: Usage | None, start: re.Pattern[bytes], read: Read) -> Usage | None:
    """The last usage in the end of an object whose beginning is missing; `before` if there is none.

    `start` matches the API's key of a usage and the brace behind it. `read` makes a usage of the object and of the
    usage before it.
    """
    starts = [found.end() - 1 for found in start.finditer(tail)]
    if not starts:
        return before
    try:
        text = tail[starts[-1] : starts[-1] + MAX_OBJECT].decode(errors="replace")
        return read(json.JSONDecoder().raw_decode(text)[0], before)
    except (ValueError, RecursionError):
        return before
