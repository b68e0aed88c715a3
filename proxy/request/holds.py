"""What a request holds of a budget, and what its client is told of that: by headers, and by errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from proxy.cache.account_script import GRANTED, HELD
from proxy.cache.accounts import Account, Decision
from proxy.errors import INSUFFICIENT_QUOTA, ClientError
from proxy.model.budget import NANO, Budget, For, Unit
from proxy.model.caller_rule import CallerRule
from proxy.request.stages import Planned
from proxy.wire.headers import Header

FIGURES = {
    unit: (f"x-plimsoll-budget-limit-{unit}".encode(), f"x-plimsoll-budget-remaining-{unit}".encode()) for unit in Unit
}


@dataclass(slots=True)
class Hold:
    """What a request holds of an account, and the decision that granted or denied it. `stage`: the one that it is
    planned for. `later`: its reply is made also when its client has left, who may fetch it. `done`: it is settled."""

    account: Account
    amount: int
    stage: int
    decision: Decision
    later: bool = False
    done: bool = False

    @property
    def budget(self) -> Budget:
        """Its budget."""
        return self.account.budget

    @property
    def held(self) -> int:
        """What is held: nothing, if it was denied."""
        return self.amount if self.decision.answer == GRANTED else 0

    def settle(self, used: int) -> None:
        """The request has ended, and used so much. Only the first call counts."""
        if not self.done:
            self.done = True
            self.account.settle(self.held, used)

    def headers(self) -> list[Header]:
        """What the client is told: the budget and its stage, and the figures by names like those of providers' own
        limits."""
        budget, found = self.account.budget, self.decision
        headers: list[Header] = [_stage_header(budget, self.stage)]
        if budget.scope is not For.ALL:  # what others use at the moment is nobody's business
            limit, remaining = FIGURES[budget.unit]
            headers.append((limit, _figure(budget, self.account.limit)))
            headers.append((remaining, _figure(budget, found.left)))
        if found.resets is not None:
            headers.append((b"x-plimsoll-budget-reset", b"%d" % max(1, found.resets)))
        return headers


@lru_cache(maxsize=512)
def _stage_header(budget: Budget, stage: int) -> Header:
    window = budget.window_in(stage)
    said = [budget.name, f"stage={stage}", *([] if window is None else [f"window={window}"])]
    return b"x-plimsoll-budget", "; ".join(said).encode()


def _figure(budget: Budget, amount: int) -> bytes:
    return b"%d" % amount if budget.unit is Unit.TOKENS else f"{amount / NANO:.6f}".encode()


NO_HEADERS: list[Header] = []


def headers_of_hold(hold: Hold | None) -> list[Header]:
    """What the client is told of the budget that its request is under; nothing without one, as mostly."""
    return NO_HEADERS if hold is None else hold.headers()


def refused(planned: Planned, hold: Hold) -> Planned:
    """The request with the error that its client gets: others hold what is left, or nothing is left."""
    return not_sent(planned, in_use(hold) if hold.decision.answer == HELD else used_up(hold), "over_budget")


def not_sent(planned: Planned, error: ClientError, result: str = "") -> Planned:
    """The request with an error, for which nothing is sent."""
    return replace(planned, payload=b"", pieces=(), result=result or planned.result, error=error)


def unheld(account: Account) -> Hold:
    """What is told of a budget that changes nothing, for a request that holds nothing."""
    found = account.state()
    return Hold(account, 0, found.stage, found)


def used_up(hold: Hold) -> ClientError:
    """The budget is used up: for good, as far as a client's own repeats are concerned."""
    budget, found = hold.budget, hold.decision
    ends = "" if found.resets is None else f" It begins anew in {max(1, round(found.resets)):,} seconds."
    less = f"it may take {budget.text(hold.amount)}"
    if found.left <= 0:
        less = "nothing is left"
    elif budget.scope is not For.ALL:  # of which others' use is told to nobody
        less = f"{budget.text(found.left)} are left, and {less}"
    text = (
        f"The budget {budget.name} of {budget.text(hold.account.limit)} that this proxy's operator has set is used up "
        f"for this request: {less}.{ends}"
    )
    return ClientError(403, text, code=INSUFFICIENT_QUOTA)


def in_use(hold: Hold) -> ClientError:
    """Requests under way hold what is left of the budget: there will be some again."""
    text = f"What is left of the budget {hold.budget.name} is held for requests under way: try again."
    return ClientError(429, text, code="budget_in_use", retry=True, after=1)


def uncounted(reason: str) -> ClientError:
    """Under a budget that is enforced nothing is sent that cannot be counted."""
    why = f": {reason}" if reason else ""
    text = f"This request is under a budget of this proxy's operator and could not be counted{why}."
    return ClientError(400, text, code="not_counted")


def not_counted(rule: CallerRule) -> ClientError:
    """A path that is not fitted, of a caller under a budget that is enforced."""
    text = f"The caller {rule.name} is under a budget, and what this path takes cannot be counted by this proxy."
    return ClientError(403, text, code="not_counted")
