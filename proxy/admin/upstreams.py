"""Whether an upstream answers: what became of the last requests that were sent to it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from proxy.observe.recent import Kept

LAST = 20  # requests to one upstream
ENOUGH = 3  # failures in a row by which an upstream is down; where it had fewer requests, all of them
FAILED = frozenset({"upstream_error", "broken_off"})
UNKNOWN = frozenset({"unfit", "rejected", "cancelled", "stopped", "bug"})  # nothing was sent, or it does not tell


class Asked(NamedTuple):
    """A request to an upstream: when it ended, in seconds since 1970, its result, and the status of the answer."""

    at: float
    result: str
    status: int

    @property
    def failed(self) -> bool:
        """Whether the upstream was not reached, did not answer in time, or answered with an error of its own."""
        return self.result in FAILED or self.status >= 500


def asked_of(kept: Kept) -> Asked | None:
    """What a request tells about its upstream; None if nothing."""
    o = kept.outcome
    return None if o.result in UNKNOWN else Asked(kept.at, o.result, o.status)


def recent(answers: Iterable[Iterable[Any]]) -> dict[str, Any]:
    """The JSON of an upstream's last requests, from those that each worker knows."""
    found = sorted((Asked(*one) for asked in answers for one in asked), key=lambda one: one.at, reverse=True)[:LAST]
    failing = list(takewhile(lambda one: one.failed, found))
    failed = [one for one in found if one.failed]
    newest = failed[0] if failed else None
    return {
        "requests": len(found),
        "failed": len(failed),
        "failed_in_a_row": len(failing),
        "down": bool(found) and len(failing) >= min(ENOUGH, len(found)),
        "failing_since": round(failing[-1].at, 3) if failing else None,
        "last_failed_at": round(newest.at, 3) if newest else None,
        "last_result": newest.result if newest else "",
        "last_status": newest.status if newest else None,
    }
