"""Which row of the table has the price of a model at its provider, and what a row says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from proxy.config import model_names
from proxy.config.model_table import Table, read_table, table_file
from proxy.config.price_table import PriceTable, distance, is_of, prices_in
from proxy.fit.money import BATCH, CACHES, Prices, Rates
from proxy.model.outcome import Extra, Usage

INPUT, OUTPUT = 2e-6, 1e-5


def priced(**more: Any) -> dict[str, Any]:
    return {"mode": "chat", "input_cost_per_token": INPUT, "output_cost_per_token": OUTPUT, **more}


def at(input_price: float, provider: str = "", mode: str = "chat") -> dict[str, Any]:
    """A row of a provider's, known by its price of a million tokens of input."""
    return priced(litellm_provider=provider, mode=mode) | {"input_cost_per_token": input_price / 1e6}


def made(rows: dict[str, dict[str, Any]]) -> Table:
    return read_table(json.dumps(rows).encode())


def found_in(rows: dict[str, dict[str, Any]], name: str, provider: str = "") -> float | None:
    """The price of a million tokens of input."""
    found = made(rows).prices.find(model_names.variants(name), provider)
    return None if found is None else round(found.rates.input * 1e6, 6)


def prices(**more: Any) -> Prices:
    found = prices_in("m", priced(**more))
    assert found is not None
    return found


def test_a_row_has_prices_for_input_output_and_the_cache() -> None:
    found = prices(cache_read_input_token_cost=1e-6, cache_creation_input_token_cost=3e-6)
    assert found == Prices(Rates(2e-6, 1e-5, 1e-6, 3e-6), CACHES["openai"])


@pytest.mark.parametrize("price", [None, "2e-6", True, -1e-6, 2.0])
def test_a_row_without_a_usable_price_for_input_and_output_has_none(price: Any) -> None:
    assert prices_in("m", priced() | {"input_cost_per_token": price}) is None
    assert prices_in("m", priced() | {"output_cost_per_token": price}) is None
    assert prices(cache_read_input_token_cost=price) == Prices(Rates(2e-6, 1e-5))


def test_prices_over_a_threshold_are_those_of_the_row_and_else_its_own() -> None:
    found = prices(input_cost_per_token_above_200k_tokens=4e-6, cache_read_input_token_cost=1e-6)
    assert found.over == ((200_000, Rates(4e-6, 1e-5, 1e-6)),)
    assert found.of(200_000).input == 2e-6 and found.of(200_001).input == 4e-6


def test_higher_prices_of_xai_begin_at_their_threshold() -> None:
    found = prices(input_cost_per_token_above_200k_tokens=4e-6, litellm_provider="xai")
    assert found.of(199_999).input == 2e-6 and found.of(200_000).input == 4e-6


def test_a_provider_caches_in_its_own_way_and_a_model_from_its_own_length_on() -> None:
    rows = {
        "gemini/gemini-9": priced(litellm_provider="gemini", prompt_cache_min_tokens=4_096),
        "claude-9": priced(litellm_provider="anthropic"),
        "databricks/databricks-claude-9": priced(litellm_provider="databricks"),
        "gpt-9": priced(litellm_provider="openai", prompt_cache_min_tokens="many"),
    }
    caches = {name: found.cache for name, row in rows.items() if (found := prices_in(name, row)) is not None}
    assert caches["gemini/gemini-9"] == replace(CACHES["gemini"], least=4_096)
    assert caches["claude-9"] == caches["databricks/databricks-claude-9"] == CACHES["anthropic"]
    assert caches["gpt-9"] == CACHES["openai"]


def test_a_tier_of_service_has_its_own_prices_and_others_cost_as_usual() -> None:
    found = prices(
        input_cost_per_token_flex=1e-6,
        output_cost_per_token_flex=5e-6,
        cache_read_input_token_cost=4e-7,
        input_cost_per_token_above_272k_tokens=4e-6,
        input_cost_per_token_above_272k_tokens_flex=3e-6,
        input_cost_per_token_above_128k_tokens_priority=9e-6,
    )
    assert found.of(1_000, "flex") == Rates(1e-6, 5e-6, 4e-7)
    assert found.of(300_000, "flex").input == 3e-6 and found.of(300_000).input == 4e-6
    assert found.of(1_000, "priority") == found.of(1_000) == Rates(2e-6, 1e-5, 4e-7), "it names no price below 128k"
    assert found.of(200_000).input == 2e-6, "a threshold of one tier alone"


def test_batches_cost_half_unless_the_table_says_otherwise() -> None:
    assert prices().of(10, BATCH) == Rates(1e-6, 5e-6)
    own = prices(input_cost_per_token_batches=1.5e-6, cache_read_input_token_cost=1e-6)
    assert own.of(10, BATCH) == Rates(1.5e-6, 5e-6), "what is read from the cache has no price of batches"


def test_a_list_of_prices_is_one_for_each_range_of_prompts() -> None:
    steps = [
        {"range": [32_000, 128_000], "input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6},
        {"range": [0, 32_000], "input_cost_per_token": 1e-6, "output_cost_per_token": 3e-6},
    ]
    found = prices_in("m", {"mode": "chat", "tiered_pricing": steps})
    assert found is not None and found.over == ((32_000, Rates(2e-6, 4e-6)),)
    assert found.of(32_000) == Rates(1e-6, 3e-6) and found.of(500_000).input == 2e-6
    assert prices_in("m", {"mode": "chat", "tiered_pricing": [{"range": [0]}, 5]}) is None


def test_audio_and_thinking_have_prices_where_they_differ() -> None:
    found = prices(
        input_cost_per_audio_token=3e-5, output_cost_per_audio_token=6e-5, output_cost_per_reasoning_token=1e-5
    )
    assert found.rates == Rates(2e-6, 1e-5, audio=3e-5, audio_reply=6e-5), "thinking costs what other output does"
    thinking = prices(
        output_cost_per_reasoning_token=3e-6, output_cost_per_token_flex=4e-6, input_cost_per_token_flex=1e-6
    )
    assert thinking.rates.reasoning == 3e-6 and thinking.of(1, "flex").reasoning is None


def test_searches_are_billed_one_by_one_or_once_a_request() -> None:
    each = {"search_context_cost_per_query": {"search_context_size_medium": 0.01}}
    searched = Usage(0, extra=Extra(searches=3))
    assert prices(**each).bill(searched).net == pytest.approx(0.03)
    assert prices(**each, litellm_provider="gemini").bill(searched).net == pytest.approx(0.01)
    per_query = prices(**each, litellm_provider="gemini", web_search_billing_unit="per_query")
    assert per_query.bill(searched).net == pytest.approx(0.03)
    assert prices(search_context_cost_per_query={"search_context_size_medium": "free"}).search is None


def test_M3_a_row_of_embeddings_has_a_price_without_one_for_a_reply() -> None:
    row = {"mode": "embedding", "input_cost_per_token": 2e-8, "litellm_provider": "openai"}
    table = made({"text-embedding-3-small": row, "image-1": row | {"mode": "image_generation"}})
    found = table.prices.find(("text-embedding-3-small",), "openai")
    assert found is not None and found.rates == Rates(2e-8, 0.0)
    assert table.prices.name_of(("text-embedding-3-small",)) == "text-embedding-3-small"
    assert table.prices.find(("image-1",)) is None and table.prices.name_of(("image-1",)) == ""


HOSTED = {
    "deepinfra/meta-llama/llama-9": at(1, "deepinfra"),
    "together_ai/meta-llama/llama-9": at(2, "together_ai"),
    "fireworks_ai/accounts/fireworks/models/llama-9": at(3, "fireworks_ai"),
    "azure/gpt-9": at(4, "azure"),
    "gpt-9": at(5, "openai"),
    "groq/llama-9": at(6, "groq"),
    "anthropic.claude-9-v1:0": at(7, "bedrock_converse"),
    "claude-9": at(8, "anthropic"),
    "inferenceapis/llama-8-versatile": at(9, "inferenceapis"),
    "mistral/mistral-9": at(10, "mistral"),
    "gemini-9": at(11, "vertex_ai-language-models"),
    "gemini/gemini-9": at(12, "gemini"),
}


@pytest.mark.parametrize(
    ("name", "provider", "price"),
    [
        ("meta-llama/Llama-9", "deepinfra", 1),
        ("meta-llama/llama-9", "together_ai", 2),
        ("accounts/fireworks/models/llama-9", "fireworks_ai", 3),
        ("gpt-9", "azure", 4),
        ("gpt-9-2026-01-02", "azure", 4),
        ("gpt-9", "openai", 5),
        ("llama-9", "groq", 6),
        ("anthropic.claude-9-v1:0", "bedrock", 7),
        ("claude-9", "anthropic", 8),
        ("gemini-9", "vertex_ai", 11),
        ("gemini-9", "gemini", 12),
    ],
)
def test_M5_a_model_has_the_price_of_its_host(name: str, provider: str, price: float) -> None:
    assert found_in(HOSTED, name, provider) == price


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("llama-8-versatile", "groq"),
        ("llama-8-versatile", ""),
        ("gpt-9", "openrouter"),
        ("openrouter/anthropic/claude-9", ""),
        ("claude-9", "bedrock"),
        ("groq/gpt-9", ""),
        ("mistral-9", "azure"),
    ],
)
def test_M5_a_model_never_has_the_price_of_a_stranger(name: str, provider: str) -> None:
    assert found_in(HOSTED, name, provider) is None


def test_M5_where_the_host_is_not_known_a_model_has_the_price_of_its_vendor() -> None:
    assert [found_in(HOSTED, name) for name in ("gpt-9", "openai/gpt-9", "mistral-9", "groq/llama-9")] == [5, 5, 10, 6]
    assert found_in({"a/m-large": at(1), "b/m-large": at(1)}, "m-large") is None, "even if all hosts agree"
    assert found_in({"a/m-large": at(1), "m-large": at(3)}, "m-large") == 3
    assert found_in({"mistral/m-large": at(1), "xai/m-large": at(2)}, "m-large") is None, "two vendors disagree"
    assert found_in({}, "m-large") is None


def test_the_name_in_the_table_is_without_the_host() -> None:
    names = made(HOSTED).prices
    assert names.name_of(model_names.variants("meta-llama/LLAMA-9")) == "llama-9"
    assert names.name_of(("nobody-knows-it",)) == ""


def test_rows_of_one_provider_have_several_names_of_it() -> None:
    assert is_of("vertex_ai", "vertex_ai-language-models") and is_of("cohere", "cohere_chat")
    assert not is_of("azure", "azure_ai") and not is_of("", "None")
    assert [distance(name) for name in ("gpt-9", "mistral/mistral-9", "groq/llama-9")] == [0, 1, 2]


def test_a_row_that_is_no_object_has_no_price() -> None:
    table = PriceTable({"m": msgspec.Raw(b"[1]")}, {"m": ""}, {})
    assert table.find(("m",)) is None


def test_M3_the_installed_table_has_a_price_for_nearly_every_row_that_has_one() -> None:
    table = read_table(table_file().read_bytes())
    rows = json.loads(table_file().read_bytes())
    embeddings = [
        name for name, row in rows.items() if row.get("mode") == "embedding" and row.get("input_cost_per_token")
    ]
    assert len(embeddings) > 100
    assert all(table.prices.find((name.lower(),), rows[name]["litellm_provider"].split("-")[0]) for name in embeddings)
