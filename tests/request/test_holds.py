"""What a request holds of a budget, and what its client is told of that."""

from __future__ import annotations

import pytest

from proxy.cache.account_script import HELD, USED_UP
from proxy.model.budget import NANO, Budget, For, Over, Unit
from proxy.request.holds import headers_of_hold, refused
from proxy.request.stages import Planned
from tests.request.test_budgets import hold, received

USD = Budget("u", 3 * NANO, Unit.USD, over=Over.REFUSE)


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


@pytest.mark.parametrize("scope", For)
def test_what_all_use_together_is_told_to_nobody(scope: For) -> None:
    of_all = hold(Budget("b", 1_000, scope=scope, over=Over.FIT), USED_UP)
    told = b" ".join(name for name, _ in of_all.headers()) + str(refused(Planned(received()), of_all).error).encode()
    assert (b"remaining" in told or b"700" in told) is (scope is not For.ALL)
    assert b"x-plimsoll-budget-reset" in told
