"""The prices of recorded requests are those of whoever answered."""

from __future__ import annotations

import json

import pytest

from proxy.config.model_table import read_table
from proxy.config.window_rules import WindowRules
from proxy.config.windows import Windows
from proxy.replay.prices import MAX_UPSTREAMS, RecordedPrices, no_prices
from proxy.replay.recorded import Recorded
from tests.config.test_price_table import HOSTED
from tests.config.test_upstream_prices import ROWS
from tests.replay.recordings import settings


def prices(**environment: str) -> RecordedPrices:
    """The prices by the table of the tests; without environment no upstream is set."""
    default = {"PLIMSOLL_UPSTREAM": "https://api.openai.com/v1"}
    windows = Windows(WindowRules(), read_table(json.dumps(HOSTED).encode()))
    return RecordedPrices(windows, settings(**{**default, **environment}), ROWS)


def price(recorded: Recorded, model: str, upstream: str | None = "", **environment: str) -> float | None:
    """The price of a million tokens of input."""
    found = prices(**environment)(recorded)(model, upstream)
    return None if found is None else round(found.rates.input * 1e6, 6)


@pytest.mark.parametrize(
    ("recorded", "model", "expected"),
    [
        (Recorded(upstream=""), "gpt-9", 5),
        (Recorded(provider="azure"), "gpt-9", 4),
        (Recorded(provider="groq"), "llama-9", 6),
        (Recorded(provider="groq"), "gpt-9", None),
    ],
)
def test_M5_a_request_has_the_price_of_the_provider_that_answered(
    recorded: Recorded, model: str, expected: float | None
) -> None:
    assert price(recorded, model) == expected


def test_M5_a_recorded_upstream_has_the_prices_of_its_row() -> None:
    assert price(Recorded(upstream="azure"), "gpt-9", "azure") == 4
    assert price(Recorded(upstream="groq"), "gpt-9", "groq") is None, "no stranger's price"


def test_without_a_set_upstream_a_model_has_its_vendors_price() -> None:
    found = price(Recorded(upstream=""), "gpt-9", PLIMSOLL_UPSTREAM="https://us.openai.azure.com/openai/v1")
    assert (found, price(Recorded(upstream=""), "gpt-9")) == (4, 5)


def test_a_model_that_is_put_in_place_of_the_recorded_one_is_served_where_requests_for_it_go() -> None:
    assert price(Recorded(provider="azure"), "llama-9", None) == 6


def test_recorded_upstreams_that_have_no_row_are_told_and_bounded() -> None:
    made = prices()
    for number in range(MAX_UPSTREAMS + 5):
        made(Recorded(upstream=f"old-{number}"))
    made(Recorded(upstream="groq"))
    made(Recorded())
    assert list(made.unknown)[:2] == ["old-0", "old-1"] and len(made.unknown) == MAX_UPSTREAMS


def test_there_may_be_no_prices_at_all() -> None:
    assert no_prices(Recorded())("gpt-4o", "") is None
