"""The budget and the accounting of extra calls: requests that the proxy itself makes (summaries, embeddings).

An extra call may be billed to the operator. It is then made only for a caller whose own requests the upstream accepted
recently, and only within a budget of tokens. This module sends nothing and stores no content; callers are digests that
never leave the process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.http.callbacks import Event, ignore
from proxy.model.bounded import Bounded
from proxy.model.ports import ACCEPTED_S, Accepted, Spending

MAX_CALLERS = 10_000  # accepted callers that are remembered
DAY_S = 86_400.0
REJECTED_STATUSES = frozenset((401, 403))


class CallDenied(Exception):
    """An extra call was not made. Its text is the reason, a value of the metric label `result`."""


@dataclass(slots=True)
class CallCost:
    """The cost of some extra calls: their number, their tokens (prompt and reply) and their duration in seconds.
    `waited`: the seconds that their request waited for embeddings."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    waited: float = 0.0


@dataclass(slots=True)
class AcceptedHere:
    """The accepted callers that one process knows (`Accepted`)."""

    _until: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MAX_CALLERS))

    def has(self, caller: bytes) -> bool:
        """Whether a caller is accepted."""
        return time.monotonic() < (self._until.get(caller) or 0.0)

    def knows(self, caller: bytes) -> bool:
        """Whether a caller is accepted: refused ones are not remembered."""
        return self.has(caller)

    async def learn(self, caller: bytes) -> None:
        """There are no other replicas."""

    def accept(self, caller: bytes) -> None:
        """Its key was accepted."""
        self._until.put(caller, time.monotonic() + ACCEPTED_S)

    def refuse(self, caller: bytes) -> None:
        """Its key was refused."""
        self._until.take(caller)


@dataclass(slots=True)
class ExtraCalls:
    """Admission and accounting of extra calls for one worker process.

    `budget` is the number of tokens that may be billed to the operator in 24 hours for this process alone; where all
    replicas share what is spent (`spending`), `whole` is the number for all of them. `allow_keyless` permits such calls
    for clients without a key, who all count as one caller. `event` logs that the budget is spent. `accepted`: whose own
    key the upstream accepted, as far as others share it.
    """

    budget: int
    allow_keyless: bool = True
    event: Event = ignore
    accepted: Accepted = field(default_factory=AcceptedHere)
    whole: int = 0
    spending: Spending | None = None
    _used: int = 0
    _resets_at: float = 0.0
    _results: Counter[tuple[str, str]] = field(default_factory=Counter)
    _costs: dict[str, CallCost] = field(default_factory=dict)

    def record_response(self, caller: bytes, status: int) -> None:
        """Records the HTTP status of the upstream's response to a caller's own request."""
        if 200 <= status < 300:
            self.accepted.accept(caller)
        elif status in REJECTED_STATUSES:
            self.accepted.refuse(caller)

    def denial_reason(self, caller: bytes, has_key: bool) -> str:
        """Why a call that is billed to the operator is not permitted for a caller: `keyless`, `unaccepted` or
        `over_budget`. Empty if it is permitted."""
        return self.caller_refusal(caller, has_key) or ("" if self.left else "over_budget")

    def caller_refusal(self, caller: bytes, has_key: bool) -> str:
        """Why a caller may not spend the operator's money: `keyless` or `unaccepted`. Empty if it may."""
        if not has_key and not self.allow_keyless:
            return "keyless"
        return "" if self.has_accepted(caller) else "unaccepted"

    def has_accepted(self, caller: bytes) -> bool:
        """Whether the upstream accepted a caller's own request recently."""
        return self.accepted.has(caller)

    @property
    def left(self) -> int:
        """Tokens that are left in the current 24 hours: of the budget of all replicas if it is known what they spent,
        else of this process's own."""
        return self._left(None if self.spending is None else self.spending.total)

    def _left(self, spent: int | None) -> int:
        """The same where all replicas `spent` so much (None: that is not known)."""
        if spent is not None:
            return max(0, self.whole - spent)
        return max(0, self.budget - self._used) if time.monotonic() < self._resets_at else self.budget

    @property
    def left_here(self) -> int:
        """This process's part of what is left, for a sum over all processes."""
        spent = None if self.spending is None else self.spending.known
        left = self._left(spent)
        return left if spent is None or not self.whole else left * self.budget // self.whole

    def charge(self, tokens: int) -> None:
        """Charges tokens to the budget; a negative number refunds some. The first charge starts the 24 hours."""
        now = time.monotonic()
        if now >= self._resets_at:
            self._used, self._resets_at = 0, now + DAY_S
        before = self.left
        self._used += tokens
        if self.spending is not None:
            self.spending.charge(tokens)
        if before and not self.left:
            hours = round((self._resets_at - now) / 3600, 1)
            self.event("the budget for extra calls is spent", tokens=self.budget, hours_left=hours)

    def record_call(self, kind: str, result: str, tokens: int = 0, seconds: float = 0.0) -> None:
        """Records a call of a kind (`summary`, `embeddings`): `ok`, `failed`, or the reason for which it was denied."""
        self._results[kind, result] += 1
        cost = self._costs.setdefault(kind, CallCost())
        cost.tokens += tokens
        cost.seconds += seconds

    # Totals since the process started, for the metrics.

    def calls(self) -> Mapping[tuple[str, str], int]:
        """Number of calls, by kind and result."""
        return self._results

    def tokens(self) -> Mapping[tuple[str], int]:
        """Tokens, by kind."""
        return {(kind,): cost.tokens for kind, cost in self._costs.items()}

    def seconds(self) -> Mapping[tuple[str], float]:
        """Seconds, by kind."""
        return {(kind,): cost.seconds for kind, cost in self._costs.items()}
