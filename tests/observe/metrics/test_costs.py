"""Costs and cached prefixes of answered requests, added up by model."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.fit.money import CACHES, Prices, Rates
from proxy.model.outcome import Extra, Outcome, Repeated, Usage
from proxy.observe.metrics.exposition import Metrics
from tests.observe.outcomes import PASSED
from tests.observe.scraping import scraped

MICRO = 1e-6
CHEAP = Prices(Rates(2 * MICRO, 10 * MICRO, 0.5 * MICRO))
WRITES = Prices(Rates(4 * MICRO, 20 * MICRO, 0.4 * MICRO, 5 * MICRO))
TIERED = Prices(Rates(1 * MICRO, 0.0), CACHES["gemini"], ((1_000, Rates(2 * MICRO, 0.0)),))
MODELS = {"cheap": CHEAP, "writes": WRITES, "tiered": TIERED}
PLAIN = Outcome(
    "chat", "passed", 200, model="cheap", model_sent="cheap", prompt=1_000, prompt_sent=1_000, usage=Usage(1_000, 100)
)
CUT = replace(
    PLAIN, prompt=5_000, prompt_sent=2_000, usage=Usage(2_000, 10, 1_024), repeated=Repeated(4_096, 1_500, 5.0, "kept")
)


def costed(*outcomes: Outcome) -> dict[str, float]:
    metrics = Metrics(lambda model: model, prices=lambda model, upstream: MODELS.get(model))
    for outcome in outcomes:
        metrics.observe(outcome)
    return scraped(metrics)


def dollars(found: dict[str, float], name: str, labels: str = "endpoint=chat,model=cheap") -> float:
    """A cost in millionths of a dollar; 0 where it has no series yet."""
    return round(found.get(f"plimsoll_cost_{name}_usd_total{{{labels}}}", 0) / MICRO, 6)


SENT = "endpoint=chat,model=cheap,original=accepted"


def test_requests_that_were_not_changed_cost_the_same_asked_and_sent() -> None:
    found = costed(PLAIN, replace(PLAIN, usage=Usage(1_000, 0, 400)), PLAIN)
    assert dollars(found, "asked") == dollars(found, "sent", SENT) == 3 * 2_000 + 2_000
    assert dollars(found, "asked_net") == dollars(found, "sent_net", SENT) == 8_000 - 400 * 1.5
    assert found["plimsoll_priced_requests_total{basis=usage,endpoint=chat,model=cheap}"] == 3


def test_a_cut_saves_the_difference_of_asked_and_sent() -> None:
    found = costed(CUT)
    assert (dollars(found, "asked"), dollars(found, "sent", SENT)) == (10_100, 4_100)
    assert dollars(found, "sent_net", SENT) == 4_100 - 1_024 * 1.5
    expected, reported = 1_408, 1_024  # 1,500 tokens were sent before, in steps of 128
    assert dollars(found, "asked_net") == pytest.approx(10_100 - 4_096 * reported / expected * 1.5)


def test_what_would_have_been_refused_saves_nothing_and_is_rescued() -> None:
    found = costed(replace(CUT, too_long=True))
    assert dollars(found, "asked") == dollars(found, "sent", SENT) == 0
    assert dollars(found, "sent", SENT.replace("accepted", "too_long")) == 4_100
    assert found["plimsoll_rescued_requests_total{endpoint=chat,model=cheap}"] == 1


def test_a_model_without_a_price_has_no_cost() -> None:
    found = costed(replace(PLAIN, model="free", model_sent="free"), replace(CUT, model="free"))
    assert found["plimsoll_priced_requests_total{basis=unpriced,endpoint=chat,model=free}"] == 2
    assert all(value == 0 for name, value in found.items() if name.startswith("plimsoll_cost"))
    assert "plimsoll_token_price_usd{kind=input,model=free}" not in found


def test_the_basis_of_a_cost_is_told() -> None:
    found = costed(replace(PLAIN, usage=None), replace(PLAIN, usage=None, prompt=None, prompt_sent=None))
    assert dollars(found, "sent", SENT) == 2_000, "the prompt as we counted it, and no reply"
    assert found["plimsoll_priced_requests_total{basis=count,endpoint=chat,model=cheap}"] == 1
    assert found["plimsoll_priced_requests_total{basis=unpriced,endpoint=chat,model=cheap}"] == 1


@pytest.mark.parametrize("more", [{"status": 500}, {"status": 400}, {"status": 0}])
def test_only_what_was_answered_costs_something(more: dict[str, Any]) -> None:
    found = costed(replace(PLAIN, **more), PASSED)
    assert dollars(found, "sent", SENT) == 0
    assert not any(name.startswith("plimsoll_priced_requests_total") for name in found)


def test_costs_that_are_no_sum_are_computed_one_by_one() -> None:
    small = replace(PLAIN, model="tiered", model_sent="tiered", usage=Usage(1_000))
    found = costed(small, small, replace(small, usage=Usage(1_001)))
    assert dollars(found, "asked", "endpoint=chat,model=tiered") == 2 * 1_000 + 2_002
    large = replace(PLAIN, model="writes", model_sent="writes", usage=Usage(1_151))
    found = costed(large, large)
    assert dollars(found, "asked_net", "endpoint=chat,model=writes") == 2 * (1_024 * 5 + 127 * 4)


def test_a_switched_request_is_shown_under_the_model_that_was_asked() -> None:
    switched = replace(CUT, model="writes", model_sent="cheap", repeated=None)
    found = costed(switched)
    assert dollars(found, "asked", "endpoint=chat,model=writes") == 5_000 * 4 + 200
    assert dollars(found, "sent", "endpoint=chat,model=writes,original=accepted") == 4_100


def test_prices_are_shown_of_the_models_that_were_used() -> None:
    found = costed(PLAIN)
    price = "plimsoll_token_price_usd{kind=%s,model=cheap}"
    assert [found[price % kind] for kind in ("input", "output", "cache_read")] == [2 * MICRO, 10 * MICRO, 0.5 * MICRO]
    assert price % "cache_write" not in found
    metrics = Metrics(lambda model: "other", prices=lambda model, upstream: MODELS.get(model))
    metrics.observe(PLAIN)
    assert not any(name.startswith("plimsoll_token_price") for name in scraped(metrics)), "which model is meant?"


def test_expected_cached_tokens_are_held_against_what_is_reported() -> None:
    grown = replace(PLAIN, repeated=Repeated(1_300, 1_300, 5.0), usage=Usage(2_000, 0, 1_280))
    found = costed(CUT, grown, replace(grown, repeated=Repeated(0, 0)), replace(grown, usage=None))
    assert found["plimsoll_repeated_prefix_tokens_total{endpoint=chat,model=cheap}"] == 1_408 + 1_280 + 1_280
    errors = "plimsoll_cached_error_ratio_bucket{endpoint=chat,le=%s,model=cheap}"
    assert [found[errors % le] for le in ("-0.5", "-0.01", "0.01", "0.25", "+Inf")] == [1, 1, 2, 3, 3]
    assert found["plimsoll_cuts_total{endpoint=chat,model=cheap,prefix=kept}"] == 1
    assert "plimsoll_cuts_total{endpoint=chat,model=cheap,prefix=moved}" not in found


def test_other_prices_hold_for_what_comes_after_them() -> None:
    metrics = Metrics(lambda model: model, prices=lambda model, upstream: MODELS.get(model))
    metrics.observe(PLAIN)
    metrics.use_rules(lambda model: model, lambda model, upstream: None)
    metrics.observe(PLAIN)
    found = scraped(metrics)
    assert dollars(found, "sent", SENT) == 3_000
    assert found["plimsoll_priced_requests_total{basis=unpriced,endpoint=chat,model=cheap}"] == 1


def priced(found: dict[str, float], basis: str) -> float:
    return found.get(f"plimsoll_priced_requests_total{{basis={basis},endpoint=chat,model=cheap}}", 0)


def test_M6_what_broke_off_is_billed_as_partial_if_it_was_sent() -> None:
    left = replace(PLAIN, result="cancelled", status=499, usage=None, attempts=1, came=40)
    found = costed(left, replace(left, result="broken_off", status=200), replace(left, attempts=0, prompt_sent=None))
    assert dollars(found, "sent", SENT) == dollars(found, "asked") == 2 * (2_000 + 400)
    assert priced(found, "partial") == 2 and priced(found, "count") == priced(found, "unpriced") == 0
    assert priced(costed(replace(left, result="upstream_error", status=504)), "partial") == 0


def test_M5_a_reported_cost_is_billed_also_without_a_price() -> None:
    said = replace(PLAIN, usage=Usage(1_000, 100, extra=Extra(cost=0.00125)))
    found = costed(said, PLAIN)
    assert dollars(found, "sent", SENT) == 1_250 + 3_000 and priced(found, "reported") == priced(found, "usage") == 1
    free = costed(replace(said, model="free", model_sent="free"))
    assert dollars(free, "sent", "endpoint=chat,model=free,original=accepted") == 1_250


def test_M5_a_deployment_has_the_price_of_the_model_that_answers() -> None:
    found = costed(replace(PLAIN, model="billing", model_sent="billing", usage=Usage(1_000, 100, model="cheap")))
    assert dollars(found, "sent", "endpoint=chat,model=billing,original=accepted") == 3_000


def test_M19_cuts_of_conversations_that_others_may_have_seen_are_counted() -> None:
    first = Repeated(0, 0, prefix="first")
    new = replace(CUT, usage=Usage(2_000), repeated=first, messages_in=2)
    assert "plimsoll_net_unsure_requests_total{endpoint=chat,model=cheap}" not in costed(CUT, new)
    unseen = replace(new, messages_in=9)
    more = replace(CUT, usage=Usage(2_000, 0, 1_920))
    assert costed(unseen, more, CUT)["plimsoll_net_unsure_requests_total{endpoint=chat,model=cheap}"] == 2


def test_a_moved_request_is_asked_at_the_upstream_of_its_model() -> None:
    asked: list[tuple[str, str | None]] = []

    def prices(model: str, upstream: str | None) -> Prices:
        asked.append((model, upstream))
        return CHEAP

    metrics = Metrics(lambda model: model, prices=prices)
    metrics.observe(replace(PLAIN, model="small", model_sent="large", upstream="other"))
    scraped(metrics)
    assert set(asked) == {("large", "other"), ("small", None)}
