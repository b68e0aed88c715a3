"""Whose prices a model has, by the upstream that it is sent to."""

from __future__ import annotations

import json

import pytest

from proxy.config.model_table import read_table
from proxy.config.upstream_prices import upstream_prices
from proxy.config.upstreams import UpstreamRow
from proxy.config.window_rules import PriceRow, WindowRules
from proxy.config.windows import Windows
from tests.config.test_price_table import HOSTED

ROWS = (
    UpstreamRow("groq", url="https://api.groq.com/openai/v1", models=("llama-*",)),
    UpstreamRow("own", url="http://10.0.0.7:8000/v1", models=("my-*",)),
    UpstreamRow("azure", url="https://us.openai.azure.com/openai/v1", models=("azure-*",)),
    UpstreamRow("through", api="litellm", provider="anthropic", models=("claude-*",)),
)


def price(model: str, upstream: str | None, default: str = "https://api.openai.com/v1") -> float | None:
    """The price of a million tokens of input."""
    windows = Windows(WindowRules(), read_table(json.dumps(HOSTED).encode()))
    found = upstream_prices(windows, default, ROWS)(model, upstream)
    return None if found is None else round(found.rates.input * 1e6, 6)


@pytest.mark.parametrize(
    ("model", "upstream", "expected"),
    [
        ("gpt-9", "", 5),
        ("gpt-9", "default", 5),
        ("gpt-9", "azure", 4),
        ("llama-9", "groq", 6),
        ("gpt-9", "groq", None),
        ("llama-9", "default", None),
        ("gpt-9", "own", 5),
        ("claude-9", "through", 8),
        ("llama-9", None, 6),
        ("gpt-9", None, 5),
        ("gpt-9", "of rules that are gone", 5),
    ],
)
def test_a_model_has_the_price_of_the_provider_that_it_is_sent_to(
    model: str, upstream: str | None, expected: float | None
) -> None:
    assert price(model, upstream) == expected


def test_a_gateway_of_an_unknown_host_has_the_vendors_price_and_no_hosts() -> None:
    assert price("gpt-9", "", "http://litellm:4000") == 5
    assert price("llama-8-versatile", "", "http://litellm:4000") is None
    assert price("groq/llama-9", "", "http://litellm:4000") == 6


def test_a_row_of_the_user_has_the_price_at_every_upstream() -> None:
    rules = WindowRules(prices=(PriceRow("gpt-9", input=1.5, output=2),))
    found = upstream_prices(Windows(rules, read_table(json.dumps(HOSTED).encode())), "https://api.openai.com/v1", ROWS)
    assert [round(one.rates.input * 1e6, 6) for up in ("", "groq", "azure") if (one := found("gpt-9", up))] == [1.5] * 3
