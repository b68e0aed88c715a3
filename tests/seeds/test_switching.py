"""Seed 003: from 90 % of the window on, the first allowed model that holds the request with 10 % to spare."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.model.plan import Plan
from tests.makers import assistant, user
from tests.seeds.sizes import assert_fits, only, planned, shipped, text, windows

BASE, MINI, QWEN, GEMINI = "qwen/qwen3-coder-flash", "openai/gpt-5-mini", "qwen/qwen3-235b-a22b", "gemini-2.5-flash"
BUFFER = 35_000  # the seed's allowance for system prompt and output: here the reply that was asked for


def switched(messages: list[dict[str, Any]], *to: str, model: str = BASE) -> Plan:
    """What the switch alone does, as the shipped ladder has it."""
    ladder = only(shipped("default", *to), "switch_model") if to else only(shipped("default"), "switch_model")
    assert [ladder_step.at for ladder_step in ladder.steps] == [0.90]
    return planned(messages, ladder, *to, model=model, max_tokens=BUFFER)


def said(tokens: int, model: str = BASE) -> list[dict[str, Any]]:
    """One message of so many tokens by the model's own counter."""
    return [user(text(tokens, model))]


def model_of(found: Plan) -> str | None:
    """The model that was switched to, or None."""
    return None if found.draft.model == found.before.model else found.draft.model


def test_the_windows_are_the_seeds() -> None:
    found = {name: windows().find(name).tokens for name in (BASE, MINI, QWEN, GEMINI)}
    assert found == {BASE: 128_000, MINI: 400_000, QWEN: 262_144, GEMINI: 1_048_576}


def test_no_fallback_within_the_threshold() -> None:
    assert not switched([user("Hello"), assistant("Hi there!")], MINI, GEMINI).changed


def test_fallback_when_approaching_the_limit() -> None:
    found = switched(said(100_000), MINI)
    assert 99_000 < found.before.prompt < 101_000
    assert found.before.load > 0.9 and model_of(found) == MINI
    assert_fits(found)


def test_the_threshold_is_nine_tenths_of_the_window() -> None:
    assert model_of(switched(said(115_200 - BUFFER - 200), MINI)) is None
    assert model_of(switched(said(115_200 - BUFFER + 200), MINI)) == MINI


def test_no_fallback_when_no_models_are_allowed() -> None:
    found = switched(said(100_000))
    assert found.before.load > 0.9 and model_of(found) is None and not found.changed


def test_fallback_skips_the_current_model() -> None:
    assert model_of(switched(said(100_000), BASE, MINI)) == MINI


def test_fallback_takes_the_first_that_is_large_enough() -> None:
    assert model_of(switched(said(87_000), BASE, QWEN, MINI, GEMINI)) == QWEN


def test_scenario_1_a_normal_conversation_stays_where_it_is() -> None:
    found = switched(said(20, QWEN), MINI, GEMINI, model=QWEN)
    assert model_of(found) is None and found.before.prompt + found.before.reserve == pytest.approx(35_020, abs=20)


def test_scenario_2_a_document_of_100_000_tokens_goes_to_the_first_allowed_model() -> None:
    found = switched(said(100_000), MINI, GEMINI)
    assert model_of(found) == MINI and found.draft.window.tokens == 400_000
    assert [(n.model_before, n.model_after) for n in found.notes] == [(BASE, MINI)]


def test_scenario_3_half_a_million_tokens_pass_over_the_model_that_is_too_small() -> None:
    found = switched(said(500_000), MINI, GEMINI)
    assert model_of(found) == GEMINI
    assert_fits(found)


def test_scenario_4_what_no_model_holds_is_said_not_to_fit() -> None:
    found = switched(said(1_250_000, MINI), GEMINI, model=MINI)
    assert model_of(found) is None and not found.changed and not found.fits


def test_scenario_4_through_the_whole_ladder_is_cut_to_fit() -> None:
    found = planned(said(1_250_000, MINI), shipped("default", GEMINI), GEMINI, model=MINI, max_tokens=BUFFER)
    assert found.draft.model == GEMINI  # where more of the text stays than in its own model
    assert_fits(found)


def test_tools_are_not_sent_to_a_model_that_is_known_to_have_none() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    ladder = only(shipped("default", "deepseek-coder:6.7b", MINI), "switch_model")
    found = planned(
        said(100_000), ladder, "gpt-4", MINI, model=BASE, max_tokens=BUFFER, tools=tools, response_format=SCHEMA
    )
    assert model_of(found) == MINI


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}
