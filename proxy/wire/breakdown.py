"""The rows and parts of a plan, packed: what the page shows of a request once its content is released."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.model.plan import Plan
from proxy.wire.report import count, parts
from proxy.wire.rows import Row, as_json, rows
from proxy.wire.touches import Touch, as_list, overhead

MAX_ROWS = 2_000  # of more messages no rows are made: they would hold up the event loop for milliseconds
MAX_MESSAGES = 20_000  # of more messages nothing is made
MAX_NAME = 40  # characters of a role: clients choose it


class Breakdown(msgspec.Struct, frozen=True, gc=False):
    """What became of the messages of one request. `left_out`: the number of messages without a row. `overhead`: tokens
    besides the messages, as received and as sent, and `overhead_steps` what each step changed of them. `before` and
    `sent`: tokens of each part. `window`: that of the model that the client named, and where it is from; another one
    may have been asked."""

    rows: list[Row]
    left_out: int
    overhead: tuple[int, int]
    before: dict[str, int]
    sent: dict[str, int]
    window: int
    window_source: str
    window_sent: int
    overhead_steps: tuple[Touch, ...] = ()


_DECODER = msgspec.msgpack.Decoder(Breakdown)


def pack(plan: Plan) -> bytes:
    """The breakdown of a plan, without any text of its messages; empty for a plan of too many messages."""
    before, draft = plan.before, plan.draft
    messages = max(count(before), count(draft))
    if messages > MAX_MESSAGES:
        return b""
    found = rows(plan, lines=False) if messages <= MAX_ROWS else []
    left_out = 0 if found else messages
    window = before.window
    steps = overhead(plan, (touch for row in found for touch in row.steps)) if found else ()
    windows = window.tokens, window.source, draft.window.tokens
    made = Breakdown(found, left_out, (before.fixed, draft.fixed), parts(before), parts(draft), *windows, steps)
    return zlib.compress(msgspec.msgpack.encode(made), 1)


def rows_of(packed: bytes) -> list[Row]:
    """The rows of a packed breakdown; none where it has none."""
    return _DECODER.decode(zlib.decompress(packed)).rows if packed else []


def as_figures(packed: bytes) -> Mapping[str, Any]:
    """The JSON of a packed breakdown, as `/inspect` has it; without figures for an empty one."""
    if not packed:
        return {"rows": None, "rows_left_out": 0, "tokens": None, "parts": None, "window_sent": None}
    found = _DECODER.decode(zlib.decompress(packed))
    return {
        "rows": [{**as_json(row), "role": shown_role(row.role)} for row in found.rows],
        "rows_left_out": found.left_out,
        "tokens": {
            "overhead": found.overhead[0],
            "overhead_sent": found.overhead[1],
            "overhead_steps": as_list(found.overhead_steps),
        },
        "parts": {"before": found.before, "sent": found.sent},
        "window": found.window,
        "window_source": found.window_source,
        "window_sent": found.window_sent,
    }


def shown_role(role: str) -> str:
    """A role as the page may show it: short, and printable."""
    return "".join(c if c.isprintable() else "?" for c in role[:MAX_NAME])
