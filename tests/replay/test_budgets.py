"""Budgets in a replay: accounts in the order of requests, with periods, stages and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.budget import Budget, For, Over
from proxy.model.outcome import Usage
from proxy.model.structs import replace
from proxy.replay.budgets import ALL, MAX_CHANGES, Booking, Ledger
from proxy.replay.plan_worker import Planned
from proxy.replay.recorded import Recorded
from tests.replay.test_sums import pieces, planned, result, tally

DAY = Budget("day", 1_000, window=100, over=Over.FIT)
SMALL = pieces((5, 100))


def booked(ledger: Ledger, at: float = 0.0, budget: Budget = DAY, who: str = "ann", **more: Any) -> Booking:
    """One request of a caller."""
    made = Planned(caller=who, budget=budget, **more)
    booking = ledger.open(made, Recorded(at=at, caller=more.get("tier", "")))
    assert booking is not None
    return booking


def test_a_request_without_a_budget_has_no_account() -> None:
    assert Ledger().open(Planned(caller="ann"), Recorded()) is None


def test_stages_begin_by_what_was_settled_and_end_with_the_period() -> None:
    ledger, stages = Ledger(), []
    for at, taken in ((0.0, 799), (1.0, 1), (2.0, 67), (3.0, 67), (4.0, 10), (86_400.0, 5)):
        one = booked(ledger, at)
        stages.append(one.stage)
        one.settle(taken)
    assert stages == [0, 0, 1, 2, 3, 0]
    (sums,) = ledger.all()
    assert sums.changes == [(1.0, 1), (2.0, 2), (3.0, 3)] and (sums.most, sums.used) == (944, 949)


@pytest.mark.parametrize(("over", "admitted"), [(Over.OBSERVE, True), (Over.FIT, False), (Over.REFUSE, False)])
def test_beyond_the_limit_nothing_is_sent_unless_it_is_only_told(over: Over, admitted: bool) -> None:
    ledger, budget = Ledger(), replace(DAY, over=over)
    one = booked(ledger, budget=budget)
    assert one.admits(1_000)
    one.settle(1_000)
    assert booked(ledger, budget=budget).admits(1) is admitted


def test_whose_account_it_is() -> None:
    def number(scope: For, *requests: dict[str, Any]) -> int:
        ledger = Ledger()
        for one in requests:
            booked(ledger, budget=replace(DAY, scope=scope), **one)
        return len(ledger.accounts)

    both = ({"who": "ann", "talk": 1}, {"who": "ann", "talk": 2}, {"who": "bob", "talk": 1})
    assert [number(scope, *both) for scope in (For.ALL, For.CALLER, For.SESSION)] == [1, 2, 3]
    anybody = ({"who": "rest", "anybody": True, "tier": "a"}, {"who": "rest", "anybody": True, "tier": "b"})
    assert number(For.CALLER, *anybody) == 2 and number(For.ALL, *anybody) == 1
    ledger = Ledger()
    booked(ledger, budget=replace(DAY, scope=For.ALL))
    assert [one.name for one in ledger.all()] == [ALL]


def test_changes_that_are_told_are_bounded() -> None:
    ledger = Ledger()
    for day in range(MAX_CHANGES + 9):
        booked(ledger, 86_400.0 * day).settle(1_000)
    (sums,) = ledger.all()
    assert len(sums.changes) == MAX_CHANGES


def test_requests_are_sent_as_planned_for_the_stage_of_their_budget_and_refused_beyond_it() -> None:
    budget = Budget("day", 20_000, soft=0.4, window=1_000, over=Over.FIT, everything=True)
    small = planned(sent=4_096, caller="ann")
    whole = planned(caller="ann", budget=budget, staged=(small, small, small))
    found = tally(*(result(whole, at, usage=Usage(8_192)) for at in (0.0, 1.0, 2.0, 3.0, 4.0)))
    (sums,) = found.ledger.all()
    assert sums.stages[0] == 1 and sum(sums.stages) == 3 and sums.refused == 2 and sums.used == 8_192 + 2 * 4_096
    assert (found.total.denied, found.total.unfit, found.total.cut) == (2, 0, 2)
    assert found.total.prompt_sent == 8_192 + 2 * 4_096 and found.steps["prune_history"].requests == 2
    assert found.total.removed == found.steps["prune_history"].tokens == 2 * 4_096


def test_what_is_refused_is_not_cut() -> None:
    budget = Budget("day", 9_000, over=Over.REFUSE, everything=True)
    asked = planned(sent=4_096, caller="ann", budget=budget)
    found = tally(*(result(asked, at, cut=True, usage=Usage(8_192)) for at in (0.0, 1.0, 2.0, 3.0)))
    assert (found.total.denied, found.total.cut, found.steps["prune_history"].requests) == (2, 2, 2)
    assert found.total.removed == 2 * 4_096 and len(found.worst) == 1
    assert tally(result(asked, cut=True), result(asked, 1.0, cut=True)).worst


def test_a_budget_that_only_tells_changes_nothing() -> None:
    budget = Budget("day", 10_000, over=Over.OBSERVE, everything=True)
    whole = planned(caller="ann", budget=budget)
    found = tally(*(result(whole, at, usage=Usage(8_192)) for at in (0.0, 1.0, 2.0)))
    (sums,) = found.ledger.all()
    assert (sums.refused, found.total.denied, sum(sums.stages), found.total.prompt_sent) == (0, 0, 3, 3 * 8_192)
