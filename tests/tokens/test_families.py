"""Which model counts how."""

import re

import pytest

from proxy.tokens.families import FAMILIES, family_of
from proxy.tokens.ranks import SOURCES
from proxy.tokens.recipes import CHANNELS, CLASSIC, ESCAPING, HARMONY, JUNE_2023, REASONING


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("azure/GPT-4o", "gpt-4o"),
        ("chatgpt-4o-latest", "gpt-4o"),
        ("gpt-4.1", "gpt-4o"),
        ("gpt-4.5-preview", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o-mini"),
        ("gpt-4o-mini-search-preview", "search"),
        ("gpt-4o-audio-preview", "audio"),
        ("gpt-audio-mini", "audio"),
        ("gpt-4.1-nano-2025-04-14", "gpt-4.1-nano"),
        ("gpt-4", "gpt-4-0613"),
        ("gpt-4-32k-0613", "gpt-4-0613"),
        ("gpt-3.5-turbo-0613", "gpt-4-0613"),
        ("gpt-4-turbo-2024-04-09", "gpt-4-turbo"),
        ("gpt-4-0125-preview", "gpt-4-turbo"),
        ("gpt-35-turbo", "gpt-4-turbo"),
        ("gpt-3.5-turbo", "gpt-4-turbo"),
        ("o1-mini", "o1-mini"),
        ("o1-2024-12-17", "o1"),
        ("o3-mini", "o1"),
        ("o3", "o3"),
        ("o4-mini", "o4-mini"),
        ("gpt-5", "gpt-5"),
        ("gpt-5.1-chat", "gpt-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-5.2", "gpt-5"),
        ("gpt-5.4", "gpt-5.4"),
        ("openai/gpt-5.4-nano", "gpt-5.4"),
        ("gpt-5.10", "gpt-5.4"),
        ("gpt-6", "gpt-5.4"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("codex-mini-latest", "codex"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss"),
        ("us.anthropic.claude-opus-4-20250514-v1:0", "claude"),
        ("anthropic/claude-3.5-sonnet", "claude"),
        ("claude-haiku-4-5@20251001", "claude-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-4-5"),
        ("claude-sonnet-4-6", "claude-4-6"),
        ("claude-opus-4-8", "claude-opus-4-7"),
        ("claude-sonnet-5", "claude-5"),
        ("models/gemini-2.5-flash", "gemini"),
        ("google/gemini-3-flash-preview", "gemini-3"),
        ("deepseek-r1-distill-llama-70b", "deepseek"),
        ("Qwen3-1.7B-Q4_K_M", "qwen"),
        ("qwq-32b", "qwen"),
        ("mistralai/devstral-small-2507", "mistral"),
        ("open-mixtral-8x7b", "mistral"),
        ("mistral-small-latest", "mistral"),
        ("mistralai/mistral-small-3.2-24b-instruct", "mistral-open"),
        ("Mistral-Small-3.2-24B-Instruct-2506-Q4_K_M", "mistral-open"),
        ("x-ai/grok-4-fast", "grok-fast"),
        ("grok-4-1-fast-non-reasoning", "grok-4-1"),
        ("grok-4", "grok-4"),
        ("grok-2-1212", "grok-2"),
        ("grok-3-mini", "grok"),
        ("meta-llama/llama-3.3-70b-instruct:free", "llama"),
        ("llama-4-scout", "llama-4"),
        ("my-own-deployment", "other"),
        ("", "other"),
    ],
)
def test_a_models_name_finds_its_row(model: str, family: str) -> None:
    assert family_of(model).name == family


def test_every_row_has_a_name_of_its_own_an_encoding_that_is_there_and_the_last_takes_all() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert {family.encoding for family in FAMILIES} == set(SOURCES)
    assert FAMILIES[-1].pattern == re.compile("")


def test_equal_names_of_recipes_mean_equal_recipes() -> None:
    recipes = [family.recipe for family in FAMILIES]
    assert len({recipe.name for recipe in recipes}) == len(set(recipes))
    assert len({r.name for r in (CLASSIC, ESCAPING, JUNE_2023, REASONING, CHANNELS, HARMONY)}) == 6


def test_only_openai_counts_are_exact_and_an_unknown_model_has_the_widest_share() -> None:
    exact = {family.name for family in FAMILIES if family.ratio is None}
    assert {"gpt-4o", "gpt-5", "o3", "gpt-4-0613"} <= exact and not exact & {"claude", "gpt-oss", "other"}
    assert FAMILIES[-1].margin.share == max(family.margin.share for family in FAMILIES)


def test_what_usage_has_calibrated_needs_no_wider_share() -> None:
    assert all(f.calibrated.share <= f.margin.share for f in FAMILIES if f.ratio is not None)
