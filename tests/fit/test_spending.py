"""What a request takes from a budget."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.money import CACHES, Prices, Rates
from proxy.fit.spending import UNPRICED, USUAL_REPLY, amount, expected, of_outcome, usual_reply
from proxy.model.budget import NANO, Budget, Unit
from proxy.model.outcome import Extra, Outcome, Repeated, Usage

TOKENS, ALL = Budget("t", 1), Budget("a", 1, everything=True)
USD, USD_ALL = Budget("u", 1, Unit.USD), Budget("v", 1, Unit.USD, everything=True)
PRICES = Prices(Rates(2e-6, 10e-6, cache_read=0.5e-6))
AT = ("m", "")


def prices(model: str, upstream: str | None) -> Prices | None:
    return {"m": PRICES, "marked": Prices(PRICES.rates, CACHES["anthropic"])}.get(model)


@pytest.mark.parametrize(
    ("budget", "used"),
    [(TOKENS, 10_000 - 4_000 + 500), (ALL, 10_500), (USD, 19_000_000), (USD_ALL, 25_000_000)],
)
def test_what_was_read_from_the_cache_counts_only_where_everything_does(budget: Budget, used: int) -> None:
    """By hand: 6,000 x 2 + 4,000 x .5 + 500 x 10 = 19,000 millionths; without the cache 25,000."""
    assert amount(budget, prices, AT, Usage(10_000, 500, 4_000)) == used


def test_a_model_without_a_price_takes_what_a_large_one_costs() -> None:
    cost = NANO * (9_000 * UNPRICED.input + 500 * UNPRICED.output)
    assert amount(USD, prices, ("unknown", ""), Usage(10_000, 500, 1_000)) == round(cost) > 0


def test_the_model_that_answers_gives_the_price_of_one_without() -> None:
    assert amount(USD, prices, ("deployed", ""), Usage(1_000, model="m")) == 2_000_000


def test_searches_without_a_price_leave_the_rest() -> None:
    assert amount(USD, prices, AT, Usage(1_000, extra=Extra(searches=3))) == 2_000_000


def test_before_it_is_sent_it_takes_its_prompt_and_all_of_its_reply() -> None:
    assert expected(TOKENS, prices, AT, Usage(5_000, 700), None) == 5_700


def test_what_the_provider_has_cached_is_not_expected_again() -> None:
    cached = 1_024 + (4_000 - 1_024) // 128 * 128
    assert expected(TOKENS, prices, AT, Usage(5_000, 700), Repeated(0, 4_000, idle=5.0)) == 5_700 - cached
    assert expected(TOKENS, prices, AT, Usage(5_000, 700), Repeated(0, 4_000, idle=5_000.0)) == 5_700
    assert expected(TOKENS, prices, ("marked", ""), Usage(5_000, 700), Repeated(0, 4_000)) == 5_700


def outcome(**fields: Any) -> Outcome:
    plain: dict[str, Any] = {"model": "m", "prompt": 1_000, "prompt_sent": 1_000, "attempts": 1}
    return Outcome(**{"endpoint": "chat", "result": "passed", "status": 200, **plain, **fields})


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({"usage": Usage(900, 40, 100)}, 840),
        ({}, 1_000),
        ({"result": "cancelled", "status": 499, "came": 70}, 1_070),
        ({"result": "broken_off", "came": 70, "usage": Usage(900, 5)}, 970),
        ({"result": "stopped", "status": 503}, 1_000),
        ({"result": "refused", "status": 400}, 0),
        ({"result": "upstream_error", "status": 502}, 0),
        ({"result": "over_budget", "status": 403, "attempts": 0, "prompt_sent": None}, 0),
        ({"result": "cancelled", "status": 499, "attempts": 0, "prompt_sent": None}, 0),
        ({"usage": Usage(900, 40), "extra_tokens": 300}, 1_240),
        ({"result": "refused", "status": 400, "extra_tokens": 300}, 300),
    ],
)
def test_a_request_that_has_ended_took_what_was_billed_of_it(fields: dict[str, Any], used: int) -> None:
    assert of_outcome(TOKENS, prices, outcome(**fields)) == used


def test_a_cheaper_tier_that_only_the_client_names_is_not_believed() -> None:
    for usage in (Usage(1_000), None):
        assert of_outcome(USD, prices, outcome(usage=usage, tier="batch")) == 2_000_000
    assert of_outcome(USD, prices, outcome(usage=Usage(1_000, tier="batch"), tier="batch")) == 1_000_000
    assert expected(USD, prices, AT, Usage(1_000, tier="batch"), None) == 2_000_000


def test_the_model_that_was_sent_is_billed() -> None:
    assert of_outcome(USD, prices, outcome(model="dear", model_sent="m", usage=Usage(1_000))) == 2_000_000


def test_a_reply_without_a_limit_is_as_long_as_nearly_all_before() -> None:
    assert usual_reply([10] * 7) == USUAL_REPLY
    assert usual_reply([*range(100)]) == 95
    assert usual_reply([10] * 19 + [9_000]) == 9_000
    assert usual_reply([10] * 63 + [9_000]) == 10


@pytest.mark.parametrize(
    ("usage", "taken"),
    [
        (Usage(100, 10, cached=5_000), 10),
        (Usage(-5_000, 10), 0),
        (Usage(10**30, 10), 1 << 52),
    ],
)
def test_whatever_an_upstream_reports_nobody_gets_anything_back(usage: Usage, taken: int) -> None:
    assert amount(TOKENS, prices, AT, usage) == taken
    assert 0 <= amount(USD, prices, AT, usage) <= 1 << 52
    assert amount(USD, prices, AT, Usage(100, 10, cached=5_000)) == 50_000 + 100_000, (
        "all of it is cached, and the reply"
    )
    assert 0 <= amount(USD, prices, AT, Usage(1, 1, extra=Extra(cost=-3.0))) <= 1 << 52
