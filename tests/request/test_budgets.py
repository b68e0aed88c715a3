"""Requests under a budget: what is held for them, what their clients are told, and how they are planned."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from proxy.apis.openai_chat import API
from proxy.cache.account_script import GRANTED, USED_UP
from proxy.cache.accounts import Accounts, Decision
from proxy.cache.keyring import Keyring
from proxy.errors import ClientError
from proxy.fit.money import Prices, Rates
from proxy.model.budget import Budget, Over
from proxy.model.caller_rule import CallerRule
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Terms
from proxy.request.budgets import Asked, Budgets, Tried, is_hidden, staged
from proxy.request.holds import Hold
from proxy.request.stages import Planned, Received, Record, Scanned
from proxy.wire.controls import Controls

FIT = Budget("b", 1_000, window=2_000, over=Over.FIT)
ROUTES = SimpleNamespace(default=SimpleNamespace(planner=None))


def budgets() -> Budgets:
    prices = Prices(Rates(2e-6, 10e-6))
    accounts = Accounts(None, Keyring(b"s"))
    return Budgets(accounts, lambda model, upstream: prices, lambda headers, address: b"x", [FIT])


def hold(budget: Budget = FIT, answer: int = GRANTED, stage: int = 0, amount: int = 100) -> Hold:
    account = Accounts(None, Keyring(b"s")).of(budget, b"ann", named=True)
    return Hold(account, amount, stage, Decision(answer, stage, 700, 60.0))


def received(budget: Budget | None = FIT, **controls: object) -> Received:
    rule = CallerRule(1, "ann", ladder="agent", budget=budget)
    return Received(API, Mode.FIT, controls=Controls(rule=rule, **controls))  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "stage", "window"), [(None, 1, 8_000), (5_000, 1, 5_000), (50_000, 3, 2_000)])
def test_the_window_of_a_stage_holds_with_a_smaller_one_that_the_client_asks_for(
    asked: int | None, stage: int, window: int
) -> None:
    under = staged(received(window=asked, ladder="refuse"), FIT, stage)
    assert (under.controls.window, under.controls.ladder) == (window, "agent")


def test_in_a_stage_the_proxy_makes_it_fit_and_not_the_agent() -> None:
    request = Received(API, Mode.FIT, controls=received().controls, terms=Terms(on_full=OnFull.AGENT))
    assert staged(request, FIT, 2).terms.on_full is OnFull.FIT
    assert staged(request, FIT, 0) is request


def test_a_hold_is_settled_once_by_the_usage_else_by_what_came() -> None:
    made, one = budgets(), hold()
    outcome = Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1, usage=Usage(70, 5))
    one.account.held = 100
    for _ in range(2):
        made.settle(one, outcome, came=0)
    assert (one.account.held, one.account.spent) == (0, 75)
    other = hold()
    other.account.held = 100
    made.settle(other, Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1), came=9)
    assert other.account.spent == 89


def test_the_replies_of_an_account_say_how_long_one_without_a_limit_may_be() -> None:
    made, one = budgets(), hold()
    for length in range(100):
        one.done = False
        usage = Usage(1, length)
        made.settle(one, Outcome("chat", "passed", 200, model="m", prompt_sent=1, attempts=1, usage=usage), came=0)
    replies = made._replies.get(one.account.parts)
    assert replies is not None and list(replies) == list(range(36, 100))


def test_the_state_of_named_accounts_is_shown() -> None:
    made = budgets()
    account = made.accounts.of(FIT, b"ann", named=True)
    made.accounts.of(FIT, b"stranger", named=False)
    account.held = 900
    account.settle(900, 850)
    assert made.states() == [(("b", "ann"), 0.85, 1)]
    made.current = [Budget("b", 1_000, seconds=3_600)]
    assert not made.states(), "two budgets of one name would have the same labels"


def test_a_server_that_counts_nothing_uses_what_was_counted_here() -> None:
    made, one = budgets(), hold()
    one.account.held = 100
    outcome = Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1, usage=Usage(0, 0))
    made.settle(one, outcome, came=7)
    assert one.account.spent == 87


def test_a_reply_of_which_nothing_is_known_used_what_was_held() -> None:
    for outcome, later, spent in (
        (Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1), False, 100),
        (Outcome("chat", "passed", 500, model="m", prompt_sent=80, attempts=1), False, 0),
        (Outcome("chat", "cancelled", 499, model="m", prompt_sent=80, attempts=1), False, 80),
        (Outcome("chat", "cancelled", 499, model="m", prompt_sent=80, attempts=1), True, 100),
        (Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1, usage=Usage(80, 1)), True, 81),
    ):
        made, one = budgets(), hold()
        one.later, one.account.held = later, 100
        made.settle(one, outcome, came=0)
        assert (one.account.spent, one.account.held) == (spent, 0)


def test_what_was_answered_with_an_error_alone_took_nothing_whatever_its_status() -> None:
    for usage, extra, spent in ((None, 0, 0), (None, 30, 30), (Usage(80, 1), 0, 81)):
        made, one = budgets(), hold()
        outcome = Outcome("chat", "passed", 200, model="m", prompt_sent=80, attempts=1, usage=usage, extra_tokens=extra)
        made.settle(one, outcome, came=1, failed=True)
        assert one.account.spent == spent


def tried(made: Budgets, planned: Planned, request: Received) -> tuple[Tried, list[str]]:
    """A request whose plan is this one, and whether it was planned."""
    asked: list[str] = []

    async def plan(under: Received, scanned: Scanned | None) -> tuple[Planned, Any]:
        asked.append("plan")
        return planned, None

    found = made.plan(Asked(request, None, Record(), plan, cast(Any, ROUTES), lambda *_: None))
    return asyncio.run(found), asked


def test_nothing_is_planned_with_a_budget_that_is_used_up() -> None:
    """A plan may buy summaries: else each request that is refused would."""
    for over in (Over.FIT, Over.REFUSE):
        made, request = budgets(), received(Budget("b", 1_000, over=over))
        rule = request.controls.rule
        assert rule is not None and rule.budget is not None
        made.accounts.of(rule.budget, b"ann", named=True).settle(0, 1_000)
        found, asked = tried(made, Planned(request), request)
        assert asked == [] and found.planned.error is not None and found.planned.error.status == 403
        assert "nothing is left" in found.planned.error.message


def test_what_a_plan_bought_is_paid_also_where_it_ends_with_an_error() -> None:
    made, request = budgets(), received()
    found, asked = tried(made, Planned(request, error=ClientError(400, "too long")), request)
    assert asked == ["plan"] and found.hold is not None
    made.settle(found.hold, Outcome("chat", "unfit", 400, model="m", prompt=80, extra_tokens=300), came=0)
    assert found.hold.account.spent == 300


def test_a_denied_hold_gives_back_nothing_and_pays_for_calls_of_our_own() -> None:
    made, one = budgets(), hold(answer=USED_UP)
    made.settle(one, Outcome("chat", "over_budget", 403, model="m", prompt=80, extra_tokens=30), came=0)
    assert (one.account.held, one.account.spent) == (0, 30)


@pytest.mark.parametrize(
    ("asked", "over", "hidden"),
    [
        (b"br", Over.FIT, True),
        (b"gzip, zstd;q=0.5", Over.REFUSE, True),
        (b"gzip, deflate", Over.FIT, False),
        (b"*", Over.FIT, True),
        (b"br", Over.OBSERVE, False),
    ],
)
def test_under_a_budget_answers_come_in_codings_that_are_read(asked: bytes, over: Over, hidden: bool) -> None:
    request = replace(received(Budget("b", 1_000, over=over)), headers=[(b"accept-encoding", asked)])
    assert is_hidden(request) is hidden and not is_hidden(replace(request, headers=()))


@pytest.mark.parametrize("over", Over)
def test_a_budget_that_is_only_told_waits_for_nothing_and_a_bug_of_ours_stops_nobody(over: Over) -> None:
    made, request = budgets(), received(Budget("b", 1_000, over=over))
    asked: list[str] = []

    async def plan(under: Received, scanned: Scanned | None) -> tuple[Planned, Any]:
        asked.append("plan")
        return Planned(under, b"payload"), None

    async def run() -> Tried:
        return await made.plan(Asked(request, None, Record(), plan, cast(Any, ROUTES), lambda *_: None))

    found = asyncio.run(run())
    assert found.planned.payload == b"payload" and asked == ["plan"]
    assert found.hold is not None and found.hold.held == 0
    made.accounts = cast(Any, None)  # so that our own code fails
    found = asyncio.run(run())
    if over is Over.OBSERVE:
        assert found.planned.error is None and found.planned.payload == b"payload" and found.hold is None
    else:
        assert found.planned.error is not None and found.planned.error.code == "not_counted"
