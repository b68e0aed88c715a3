"""The second family, in OpenTelemetry's names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.model.outcome import Outcome
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.gen_ai import GEN_AI_METRICS, GenAi
from tests.observe.outcomes import FITTED, PASSED
from tests.observe.scraping import scraped

CALL = "gen_ai_operation_name=chat,gen_ai_provider_name=openai,gen_ai_request_model=gpt-4,gen_ai_response_model=%s"
STREAM = replace(FITTED, stream=True, first_byte_seconds=0.05)


def told(*outcomes: Outcome) -> dict[str, float]:
    metrics = Metrics(lambda model: model, gen_ai=GenAi({"": "openai", "other": "anthropic"}))
    for outcome in outcomes:
        metrics.observe(outcome)
    return scraped(metrics)


def labels(model_sent: str = "gpt-4", error: str | None = None, token: str = "") -> str:
    """The labels of a sample, in the order of their names."""
    first = "" if error is None else f"error_type={error},"
    return "{" + first + CALL % model_sent + (f",gen_ai_token_type={token}" if token else "") + "}"


def test_tokens_are_told_by_type() -> None:
    found = told(FITTED, replace(FITTED, model_sent="gpt-4o"), replace(FITTED, usage=None))
    assert found["gen_ai_client_token_usage_sum" + labels(token="input")] == 3691
    assert found["gen_ai_client_token_usage_sum" + labels(token="output")] == 7
    assert found["gen_ai_client_token_usage_count" + labels("gpt-4o", token="input")] == 1


def test_durations_are_told_with_the_error() -> None:
    found = told(FITTED, replace(FITTED, status=429), replace(FITTED, result="broken_off"))
    name = "gen_ai_server_request_duration_seconds_"
    assert found[f"{name}sum" + labels(error="")] == pytest.approx(0.25123)
    assert found[f"{name}count" + labels(error="429")] == found[f"{name}count" + labels(error="broken_off")] == 1


def test_the_first_token_and_those_after_it_are_told_of_streams_alone() -> None:
    found = told(STREAM, FITTED, replace(STREAM, status=500), replace(STREAM, usage=None))
    assert found["gen_ai_server_time_to_first_token_seconds_count" + labels()] == 2
    assert found["gen_ai_server_time_per_output_token_seconds_count" + labels()] == 1
    assert found["gen_ai_server_time_per_output_token_seconds_sum" + labels()] == pytest.approx(0.2 / 6)


def test_each_upstream_has_its_provider() -> None:
    found = told(replace(FITTED, upstream="other"), replace(FITTED, upstream="gone"))
    providers = {name.split("provider_name=")[1].split(",")[0] for name in found if "provider_name=" in name}
    assert providers == {"anthropic", "_OTHER"}


def test_what_is_not_a_call_of_a_model_is_not_told() -> None:
    assert not any(name.startswith("gen_ai") for name in told(PASSED, replace(FITTED, attempts=0)))
    assert not any(name.startswith("gen_ai") for name in scraped(Metrics(lambda model: model)))


def test_other_rules_name_other_providers() -> None:
    metrics = Metrics(lambda model: model, gen_ai=GenAi({"": "openai"}))
    metrics.observe(FITTED)
    metrics.use_rules(lambda model: model, lambda model, upstream: None, {"": "anthropic"})
    metrics.observe(FITTED)
    counts = [name for name in scraped(metrics) if name.startswith("gen_ai_server_request_duration_seconds_count")]
    assert len(counts) == 2


def test_the_names_are_those_of_the_conventions() -> None:
    assert {metric.name for metric in GEN_AI_METRICS} == {
        "gen_ai_client_token_usage",
        "gen_ai_server_request_duration_seconds",
        "gen_ai_server_time_to_first_token_seconds",
        "gen_ai_server_time_per_output_token_seconds",
    }
