"""Seed 000: history takes a share of what reply, system prompt and tools leave, in counted tokens."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.steps.prune_history import history_budget
from proxy.model.plan import Plan
from tests.makers import assistant, system, user
from tests.seeds.sizes import assert_fits, planned, shipped, text, windows

RESERVE, SYSTEM = 3000, 500  # what the seed keeps for the reply, and what it takes the system prompt for


def test_the_budget_for_gpt_4_is_3753() -> None:
    assert history_budget(windows().find("gpt-4").tokens, RESERVE, SYSTEM, 0.8) == 3753


def test_the_budget_for_a_model_of_200k_is_157200() -> None:
    assert history_budget(windows().find("claude-3-sonnet").tokens, RESERVE, SYSTEM, 0.8) == 157_200


def test_a_model_that_nobody_knows_counts_as_8192() -> None:
    found = windows().find("unknown-model")
    assert (found.tokens, found.guessed) == (8192, True)
    assert history_budget(found.tokens, RESERVE, SYSTEM, 0.8) == 3753


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4", 8192),
        ("gpt-4-turbo", 128_000),
        ("gpt-4o", 128_000),
        ("gpt-3.5-turbo", 16_385),
        ("claude-3-opus", 200_000),
        ("claude-3-sonnet", 200_000),
        ("claude-3-haiku", 200_000),
        ("claude-3-5-sonnet", 200_000),
        ("llama3.2:3b", 128_000),
        ("llama3.1:70b", 128_000),
        ("deepseek-coder:6.7b", 16_000),
        ("qwen2.5:7b", 128_000),
        ("mistral:7b", 32_768),
        ("grok-beta", 131_072),
        ("grok-3", 131_072),
    ],
)
def test_the_seeds_own_models_have_the_seeds_windows(model: str, tokens: int) -> None:
    assert windows().find(model).tokens == tokens


def long_chat(turns: int, size: int, model: str = "gpt-4", extra: int = 0) -> list[dict[str, Any]]:
    """A system prompt that makes 500 tokens with the frame of the whole, and questions and answers of `size` each."""
    told = [system(text(SYSTEM - 7, model))]
    for i in range(turns):
        told.append((user, assistant)[i % 2](f"{i}:" + text(size - 6, model)))
    return [*told, user(text(size - 4 + extra, model))]


def history(found: Plan) -> list[int]:
    """What each message of the history that is sent costs."""
    return [m.tokens for m in found.draft.messages if m.role != "system"]


@pytest.mark.parametrize(("model", "turns", "size", "budget"), [("gpt-4", 40, 200, 3753), ("gpt-4o", 600, 300, 99_600)])
def test_the_economy_ladder_fills_the_budget_with_the_newest(model: str, turns: int, size: int, budget: int) -> None:
    told = long_chat(turns, size, model)
    found = planned(told, shipped("economy"), model=model)
    fixed = found.draft.fixed + next(iter(found.draft.messages)).tokens
    assert fixed == SYSTEM and history_budget(found.draft.window.tokens, RESERVE, SYSTEM, 0.8) == budget
    assert budget - size < sum(history(found)) <= budget
    kept = [m.index for m in found.draft.messages]
    assert kept[:2] == [0, 1] and kept[2:] == list(range(kept[2], len(told)))
    assert_fits(found)


def test_at_least_one_message_is_sent_however_small_the_budget() -> None:
    found = planned([system(text(500)), user(text(9000))], shipped("economy"), model="gpt-4")
    assert len(history(found)) == 1
    assert_fits(found)


def test_a_small_history_is_sent_whole() -> None:
    found = planned(long_chat(10, 200), shipped("economy"), model="gpt-4")
    assert not found.changed and found.fits


def test_the_conversation_that_was_refused_fits_after_the_default_ladder() -> None:
    """10793 tokens (7793 in the messages, 3000 in the completion), for a window of 8192."""
    told = [system(text(493)), *((user, assistant)[i % 2](text(381)) for i in range(18))]
    told.append(user(text(7793 - 500 - 18 * 385 - 4)))
    found = planned(told, shipped("default"), model="gpt-4", max_tokens=3000)
    before = found.before
    assert (before.prompt, before.reply, before.window.tokens) == (7793, 3000, 8192)
    assert before.prompt + before.reserve == 10_793 and before.excess == 10_793 + 100 - 8192
    assert_fits(found)
    assert found.draft.reply == 3000 and [n.step for n in found.notes] == ["prune_history"]
    kept = [m.index for m in found.draft.messages]
    assert kept[:2] == [0, 1] and kept[-1] == 19 and len(kept) >= 6


def test_a_message_is_counted_not_estimated() -> None:
    said = "This is a test message with about twenty words in it for testing purposes."
    found = planned([{"role": "user", "content": said, "name": "Joel"}], shipped("default"), model="gpt-4")
    message = next(iter(found.draft.messages))
    assert 0 < message.tokens < 50 and found.before.meter.quality == "exact"
