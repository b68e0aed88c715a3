"""Requests under a budget: what is held for them, what their clients are told, and how they are planned."""

from __future__ import annotations

import pytest

from proxy.apis.openai_chat import API
from proxy.cache.account_script import GRANTED, HELD, USED_UP
from proxy.cache.accounts import Accounts, Decision
from proxy.cache.keyring import Keyring
from proxy.fit.money import Prices, Rates
from proxy.model.budget import NANO, Budget, Over, Unit
from proxy.model.caller_rule import CallerRule
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Mode
from proxy.model.terms import OnFull, Terms
from proxy.request.budgets import Budgets, Hold, headers_of_hold, is_budgeted, refused, staged
from proxy.request.stages import Planned, Received
from proxy.wire.controls import Controls

FIT = Budget("b", 1_000, window=2_000, over=Over.FIT)
USD = Budget("u", 3 * NANO, Unit.USD, over=Over.REFUSE)


def budgets() -> Budgets:
    prices = Prices(Rates(2e-6, 10e-6))
    return Budgets(Accounts(None, Keyring(b"s")), lambda model, upstream: prices, lambda headers, address: b"x")


def hold(budget: Budget = FIT, answer: int = GRANTED, stage: int = 0, amount: int = 100) -> Hold:
    account = Accounts(None, Keyring(b"s")).of(budget, b"ann", named=True)
    return Hold(account, amount, stage, Decision(answer, stage, 700, 60.0))


def received(budget: Budget | None = FIT, **controls: object) -> Received:
    rule = CallerRule(1, "ann", ladder="agent", budget=budget)
    return Received(API, Mode.FIT, controls=Controls(rule=rule, **controls))  # type: ignore[arg-type]


def test_a_request_is_under_a_budget_if_its_rule_names_one() -> None:
    assert is_budgeted(received()) and not is_budgeted(received(None)) and not is_budgeted(Received(API, Mode.FIT))


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


def test_the_client_is_told_of_its_budget_in_the_names_of_providers_limits() -> None:
    assert headers_of_hold(None) == []
    assert dict(headers_of_hold(hold(stage=2))) == {
        b"x-plimsoll-budget": b"b; stage=2; window=4000",
        b"x-plimsoll-budget-limit-tokens": b"1000",
        b"x-plimsoll-budget-remaining-tokens": b"700",
        b"x-plimsoll-budget-reset": b"60",
    }
    told = dict(headers_of_hold(hold(USD, stage=2)))
    assert (told[b"x-plimsoll-budget"], told[b"x-plimsoll-budget-limit-usd"]) == (b"u; stage=2", b"3.000000")


def test_a_used_up_budget_is_told_for_good_and_one_in_use_for_now() -> None:
    planned = Planned(received(), b"payload")
    gone, busy = (refused(planned, hold(answer=answer)) for answer in (USED_UP, HELD))
    assert gone.error is not None and busy.error is not None and not gone.payload
    assert (gone.error.status, gone.error.code, gone.error.retry) == (403, "insufficient_quota", False)
    assert "60 seconds" in gone.error.message and "700 tokens are left" in gone.error.message
    assert (busy.error.status, busy.error.retry, busy.error.after) == (429, True, 1)
    assert gone.result == "over_budget"


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
