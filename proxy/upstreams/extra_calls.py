"""Extra calls, which clients do not make themselves (summaries, embeddings): whose money they cost, and how much.

A call on the operator's money is made only for a caller whose own requests the upstream accepted lately, and within a
budget. It knows callers by a digest that never leaves the process, and no content.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.model.bounded import Bounded
from proxy.observe import log

ACCEPTED_SECONDS = 600.0  # after which an accepted key must be accepted anew: keys are revoked
MOST_CALLERS = 10_000  # remembered
DAY = 86_400.0  # seconds
REJECTED = frozenset((401, 403))


class NotAsked(Exception):
    """An extra call that was not made: its text says why (a label of a metric)."""


@dataclass(slots=True)
class Spent:
    """What extra calls cost: of one request, or of a kind."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Extras:
    """The account of one process. `budget`: tokens in 24 hours on the operator's money; `keyless`: whether clients
    without a key, who are one caller, may cause calls on it."""

    budget: int
    keyless: bool = True
    _accepted: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MOST_CALLERS))
    _used: int = 0
    _until: float = 0.0
    _calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    _sums: dict[str, Spent] = field(default_factory=dict)

    def saw(self, caller: bytes, status: int) -> None:
        """The upstream answered a request of a caller's own."""
        if 200 <= status < 300:
            self._accepted.put(caller, time.monotonic() + ACCEPTED_SECONDS)
        elif status in REJECTED:
            self._accepted.take(caller)

    def why_not(self, caller: bytes, has_key: bool) -> str:
        """Why a call on the operator's money must not be made for a caller; empty where it may be."""
        if not has_key and not self.keyless:
            return "keyless"
        if time.monotonic() >= (self._accepted.get(caller) or 0.0):
            return "unaccepted"
        return "" if self.left else "over_budget"

    @property
    def left(self) -> int:
        """Tokens of the budget that are left for now."""
        return max(0, self.budget - self._used) if time.monotonic() < self._until else self.budget

    def take(self, tokens: int) -> None:
        """Takes tokens from the budget (below 0: gives some back). A day begins with the first that are taken."""
        now = time.monotonic()
        if now >= self._until:
            self._used, self._until = 0, now + DAY
        had = self.left
        self._used += tokens
        if had and not self.left:
            log.event(
                "the budget for extra calls is spent", tokens=self.budget, hours_left=round(self._hours_left(), 1)
            )

    def _hours_left(self) -> float:
        return (self._until - time.monotonic()) / 3600

    def note(self, kind: str, result: str, tokens: int = 0, seconds: float = 0.0) -> None:
        """Counts a call, or one that was not made."""
        self._calls[kind, result] += 1
        spent = self._sums.setdefault(kind, Spent())
        spent.tokens += tokens
        spent.seconds += seconds

    # For the metrics.

    def calls(self) -> Mapping[tuple[str, str], int]:
        """By kind and result."""
        return self._calls

    def tokens(self) -> Mapping[tuple[str], int]:
        """By kind."""
        return {(kind,): spent.tokens for kind, spent in self._sums.items()}

    def seconds(self) -> Mapping[tuple[str], float]:
        """By kind."""
        return {(kind,): spent.seconds for kind, spent in self._sums.items()}
