"""What became of the messages of one conversation over its requests: since when each is gone, why, and what came back.

It reads the rows that are kept of its last requests; no text is among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.wire.breakdown import shown_role
from proxy.wire.rows import Row

GONE = frozenset({"dropped", "summarised"})  # states of messages whose words the model does not get
CHANGED = frozenset({"shortened", "excerpted"})
QUOTED = "recalled"
MAX_REQUESTS = 100  # the newest of one conversation
MAX_ROWS = 20_000  # of all these requests in one worker: to read more takes too long
MAX_LOST, MAX_CHANGES = 500, 20  # messages that are told of, and changes of one

Request = Mapping[str, Any]  # a request as the page lists it, and `rows` as `columns` makes them


def columns(rows: Iterable[Row]) -> list[tuple[int, str, str, str, int, int]]:
    """What is needed of rows: index, role, state, reason, tokens as received and as sent."""
    return [
        (
            row.index,
            shown_role(row.role),
            row.state,
            "" if row.state == "kept" else row.why,
            row.tokens,
            row.tokens_sent,
        )
        for row in rows
        if row.index is not None
    ]


def fates(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Of each message that was ever not sent whole: its place and role, its tokens, its state now, since which request,
    why, and each change of its state before, the oldest message first. `requests`: in the order of time."""
    found: dict[int, dict[str, Any]] = {}
    for request in requests:
        for index, role, state, why, tokens, tokens_sent in _as_sent(request):
            if state == "kept" and index not in found:
                continue
            fate = found.setdefault(index, {"index": index, "changes": []})
            fate |= {"role": role, "tokens": tokens, "tokens_sent": tokens_sent, "why": why}
            _changed(fate["changes"], request, state, why)
    ordered = [found[index] for index in sorted(found)]
    lost = [fate for fate in ordered if any(change["state"] not in ("kept", "joined") for change in fate["changes"])]
    return [_summed(fate) for fate in lost[-MAX_LOST:]]


def _as_sent(request: Request) -> Iterable[tuple[int, str, str, str, int, int]]:
    """The rows of what was really sent: none of a request that could not be sent, and in mode observe all messages."""
    rows: Sequence[tuple[int, str, str, str, int, int]] = request["rows"] if request["messages_sent"] else ()
    if request["planned"]:
        return [(index, role, "kept", "", tokens, tokens) for index, role, _, _, tokens, _ in rows]
    return rows


def _changed(changes: list[dict[str, Any]], request: Request, state: str, why: str) -> None:
    """Adds a change of a message's state."""
    if changes and changes[-1]["state"] == state:
        return
    back = bool(changes) and changes[-1]["state"] in GONE and state not in GONE
    changes.append({"state": state, "request": request["id"], "at": request["at"], "why": why, "back": back})
    del changes[1:-MAX_CHANGES]


def _summed(fate: dict[str, Any]) -> dict[str, Any]:
    last = fate["changes"][-1]
    return {**fate, "state": last["state"], "since": last["at"], "request": last["request"]}


def summary(messages: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many messages are gone now, how many are shorter, quoted, and how many came back."""
    states = [fate["state"] for fate in messages]
    return {
        "gone": sum(state in GONE for state in states),
        "shortened": sum(state in CHANGED for state in states),
        "quoted": states.count(QUOTED),
        "back": sum(any(change["back"] for change in fate["changes"]) for fate in messages),
    }
