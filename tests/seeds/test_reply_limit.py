"""Seed 001: the reply limit is negotiated with what the input leaves of the window."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.plan import plan
from proxy.fit.steps.clamp_output import clamp
from proxy.model.limits import Margin
from proxy.model.plan import Facts, Plan
from proxy.wire.report import inspection
from tests.makers import WordMeter, assistant, prompt, system, user, words
from tests.seeds.sizes import assert_fits, shipped, windows

MARGIN, FLOOR = 100, 500


@pytest.mark.parametrize(
    ("model", "window", "count", "asked", "adjusted"),
    [
        ("llama3.2:3b", 128_000, 1_750, 3000, 3000),
        ("gpt-3.5-turbo", 16_385, 13_000, 5000, 3285),
        ("deepseek-coder:6.7b", 16_000, 15_500, 3000, 500),
    ],
)
def test_the_seeds_three_examples(model: str, window: int, count: int, asked: int, adjusted: int) -> None:
    assert windows().find(model).tokens == window
    assert clamp(window, count, asked, MARGIN, FLOOR) == adjusted


def planned(count: int, model: str, asked: int) -> Plan:
    """A system prompt of 500 tokens and so many messages of 250, through the default ladder, counted in words."""
    told: list[dict[str, Any]] = [system(words(493))]
    told += [(user, assistant)[i % 2](words(246, f"m{i}x")) for i in range(count)]
    facts = Facts(windows().find(model), WordMeter(margin=Margin(MARGIN)))
    return plan(prompt(told, model=model, max_tokens=asked), shipped("default"), facts)


def test_a_small_conversation_keeps_what_it_asked_for() -> None:
    found = planned(5, "llama3.2:3b", 3000)
    assert (found.before.prompt, found.draft.reply, found.changed) == (1750, 3000, False)


def test_a_large_conversation_gets_what_is_left() -> None:
    found = planned(50, "gpt-3.5-turbo", 5000)
    assert (found.before.prompt, found.draft.prompt, found.draft.reply) == (13_000, 13_000, 3285)
    assert found.draft.prompt + 3285 + MARGIN == 16_385
    assert inspection(found, None)["metadata"] == {
        "messageCount": 51,
        "inputTokenCount": 13_000,
        "adjustedMaxTokens": 3285,
    }
    assert_fits(found)


@pytest.mark.parametrize("count", [60, 100])
def test_where_less_than_the_floor_is_left_the_prompt_shrinks_and_nothing_overflows(count: int) -> None:
    found = planned(count, "deepseek-coder:6.7b", 3000)
    assert found.before.prompt == 500 + 250 * count
    assert found.draft.reply is not None and found.draft.reply >= FLOOR
    assert_fits(found)


def test_where_less_than_the_floor_is_left_and_nothing_may_go_the_longest_text_gives_way() -> None:
    told = [system(words(9000)), user(words(6392))]
    facts = Facts(windows().find("deepseek-coder:6.7b"), WordMeter(margin=Margin(MARGIN)))
    found = plan(prompt(told, max_tokens=3000), shipped("default"), facts)
    assert found.before.prompt == 9000 + 4 + 6392 + 4 + 3  # leaves 497
    assert found.draft.reply == 3000 and [n.step for n in found.notes] == ["truncate_longest"]
    assert_fits(found)


def test_tools_and_system_prompt_count() -> None:
    told = [system(words(493)), user(words(246))]
    plain = WordMeter(margin=Margin(MARGIN))
    dear = WordMeter(margin=Margin(MARGIN), fixed={"base": 3, "tools": 6000})
    window = windows().find("gpt-4")
    replies = [
        plan(prompt(told, model="gpt-4", max_tokens=8000), shipped("default"), Facts(window, meter)).draft.reply
        for meter in (plain, dear)
    ]
    assert replies == [8192 - 750 - 100, 8192 - 6750 - 100]


def test_the_margin_follows_from_how_far_a_count_may_be_trusted() -> None:
    sure, unsure = (
        plan(
            prompt([user(words(5000))], model="gpt-4", max_tokens=8000),
            shipped("default"),
            Facts(windows().find("gpt-4"), WordMeter(margin=margin)),
        ).draft.reply
        for margin in (Margin(50), Margin(200))
    )
    assert sure == 8192 - 5007 - 50 and unsure == 8192 - 5007 - 200
