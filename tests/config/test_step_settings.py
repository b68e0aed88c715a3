"""Which parameters of steps the settings give."""

from __future__ import annotations

import pytest

from proxy.config.rules import Rules, load_rules
from proxy.config.settings import Settings, read_settings
from proxy.config.step_settings import defaults, overrides
from proxy.model.plan import LadderStep


def settings(**environment: str) -> Settings:
    return read_settings(environment)


def rules(**environment: str) -> Rules:
    """The built-in rules under these settings."""
    given = settings(**environment)
    return load_rules(None, defaults=defaults(given), overrides=overrides(given))


def of_step(found: Rules, step: str) -> list[LadderStep]:
    return [ladder_step for ladder_step in found.ladders["default"].steps if ladder_step.step == step]


def test_without_settings_ladders_stay_as_they_are() -> None:
    assert defaults(settings()) == {} and overrides(settings()) == {"prune_history": {}, "recall": {}}


@pytest.mark.parametrize(("enabled", "models"), [("true", ("gpt-4o",)), ("false", ())])
def test_fallback_models_take_part_only_where_they_are_enabled(enabled: str, models: tuple[str, ...]) -> None:
    found = rules(LLM_FALLBACK_ENABLED=enabled, LLM_ALLOWED_FALLBACK_MODELS="gpt-4o")
    assert [ladder_step.models for ladder_step in of_step(found, "switch_model")] == [models]


def test_models_for_summaries_and_embeddings_are_those_of_the_steps_that_use_them() -> None:
    given = defaults(settings(PLIMSOLL_SUMMARY_MODEL="short", PLIMSOLL_EMBEDDINGS_MODEL="near"))
    assert given == {
        "summarise_history": {"model": "short"},
        "prune_history": {"embeddings": "near"},
        "recall": {"embeddings": "near"},
    }


def test_budgets_of_the_environment_replace_those_of_ladders() -> None:
    given = settings(
        CONTEXT_TOTAL_TOKEN_LIMIT="200000", CONTEXT_RECENT_HISTORY_TOKEN_BUDGET="150000", CONTEXT_RAG_TOKEN_BUDGET="9"
    )
    assert overrides(given) == {"prune_history": {"budget": 150_000}, "recall": {"budget": 9, "total": 200_000}}
