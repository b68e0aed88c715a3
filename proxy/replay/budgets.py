"""What a budget of callers.toml would have done: accounts that are walked through in the order of requests.

One account has no replicas and no requests under way: what a request takes is known when it is asked for. The gateway
holds the limit of a reply until its usage is reported, so it may refuse a little earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.model.budget import STAGES, Budget, For
from proxy.replay.evidence import Kept
from proxy.replay.plan_worker import Planned
from proxy.replay.recorded import Recorded

MAX_ACCOUNTS, MAX_CHANGES = 100_000, 100  # accounts that are kept, and changes of a stage that are told of each name
ALL = "(all)"


@dataclass(slots=True)
class Account:
    """The use of one budget in the period of this number."""

    index: int = 0
    used: int = 0
    stage: int = 0


@dataclass(slots=True)
class BudgetSums:
    """What a budget did to the requests of one name: requests by stage, and those that would have been refused.
    `most`: the largest use of a period, by an account. `changes`: times at which a stage began, in seconds.
    `evidence`: what replies took from requests that were cut or refused."""

    budget: Budget
    name: str
    stages: list[int] = field(default_factory=lambda: [0] * (STAGES + 1))
    refused: int = 0
    used: int = 0
    most: int = 0
    changes: list[tuple[float, int]] = field(default_factory=list)
    evidence: Kept = field(default_factory=Kept)


@dataclass(slots=True)
class Ledger:
    """All accounts. Beyond `MAX_ACCOUNTS` the oldest begins anew."""

    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    sums: dict[tuple[str, str], BudgetSums] = field(default_factory=dict)

    def open(self, p: Planned, recorded: Recorded) -> Booking | None:
        """The account of a request, in the period that its time is in; None if it is under no budget."""
        budget = p.budget
        if budget is None:
            return None
        name = ALL if budget.scope is For.ALL else p.caller
        who = name
        if budget.scope is not For.ALL and p.anybody:
            who += f"\0{recorded.name or recorded.caller or recorded.app}"
        if budget.scope is For.SESSION:
            who += f"\0{p.talk}"
        at = recorded.at or 0.0
        index = int(at // budget.seconds) if budget.seconds else 0
        account = self.accounts.get((budget.name, who))
        if account is None:
            if len(self.accounts) >= MAX_ACCOUNTS:
                del self.accounts[next(iter(self.accounts))]
            account = self.accounts[budget.name, who] = Account(index)
        if index > account.index:
            account.index, account.used, account.stage = index, 0, 0
        sums = self.sums.setdefault((budget.name, name), BudgetSums(budget, name))
        return Booking(account, sums, at)

    def all(self) -> Iterable[BudgetSums]:
        """The sums of each budget and name, in the order of their first requests."""
        return self.sums.values()


@dataclass(slots=True)
class Booking:
    """One request under a budget: its stage before it, what it takes after it, and the stage that it is `planned`
    for."""

    account: Account
    sums: BudgetSums
    at: float
    planned: int = 0

    @property
    def stage(self) -> int:
        """The stage in which the request is planned."""
        return self.account.stage

    def admits(self, amount: int) -> bool:
        """Whether a request that takes so much is sent."""
        budget = self.sums.budget
        return not budget.enforced or self.account.used + amount <= budget.limit

    def refuse(self) -> None:
        """It is not sent."""
        self.sums.refused += 1

    def settle(self, amount: int) -> None:
        """It was sent as it was planned, and took so much."""
        account, sums = self.account, self.sums
        account.used += amount
        sums.used += amount
        sums.most = max(sums.most, account.used)
        sums.stages[self.planned] += 1
        begun = sums.budget.stage(account.used)
        if begun > account.stage:
            account.stage = begun
            if len(sums.changes) < MAX_CHANGES:
                sums.changes.append((self.at, begun))
