"""Saying what was done, in figures."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.plan import note, plan
from proxy.model.limits import Margin, Quality
from proxy.model.plan import Draft, LadderStep, Note, Plan
from proxy.model.scan import Total
from proxy.model.structs import replace
from proxy.wire.report import (
    count,
    header_value,
    inspection,
    parts,
    plan_headers,
    step_summary,
    takers,
    total_headers,
)
from tests.laws.steps import ladder_step
from tests.makers import WordMeter, assistant, draft, facts, ladder, prompt, system, tool_round, user, words


def planned(messages: list[dict[str, Any]], window: int, *steps: LadderStep, **fields: Any) -> Plan:
    return plan(prompt(messages, **fields), ladder(*steps), facts(window))


LONG = [system("be kind"), user(words(20)), *tool_round("c", words(300)), assistant(words(200)), user("and?")]
CUT = planned(
    LONG,
    400,
    ladder_step("trim_tool_results", 1),
    ladder_step("prune_history"),
    ladder_step("clamp_output", 1),
    max_tokens=150,
)
SAME = planned([user("hi")], 9000)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (Note("trim_tool_results", 1500, 266, 9, 9, "m", "m"), "trim_tool_results;-1234"),
        (Note("recall", 10, 30), "recall;+20"),
        (Note("clamp_output", 9, 9, 4096, 1200, "m", "m"), "clamp_output;4096->1200"),
        (Note("truncate_longest", 90, 9, 50, 20, "m", "m"), "truncate_longest;-81"),
        (Note("switch_model", 9, 12, 5, 5, "gpt-4", "gpt-4o"), "switch_model;gpt-4->gpt-4o"),
    ],
)
def test_a_step_is_told_in_a_few_characters(told: Note, said: str) -> None:
    assert step_summary(told) == said


def told(found: Plan, *, sent: bool = True) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in plan_headers(found, sent=sent)}


def test_the_headers_say_what_was_done() -> None:
    said = told(CUT)
    assert said["x-plimsoll-tokens"] == str(CUT.before.prompt)
    assert said["x-plimsoll-tokens-sent"] == str(CUT.draft.prompt) and CUT.draft.prompt < CUT.before.prompt
    assert said["x-plimsoll-count"] == "exact" and said["x-plimsoll-max-tokens"] == "150"
    assert said["x-plimsoll-steps"].startswith("trim_tool_results;-") and "prune_history;-" in said["x-plimsoll-steps"]
    assert "x-plimsoll-model" not in said


def test_a_request_that_nothing_was_done_to_says_only_its_tokens() -> None:
    assert told(SAME) == {"x-plimsoll-tokens": "8", "x-plimsoll-tokens-sent": "8", "x-plimsoll-count": "exact"}


def test_what_was_only_observed_was_sent_as_it_came() -> None:
    said = told(CUT, sent=False)
    assert said["x-plimsoll-tokens-sent"] == said["x-plimsoll-tokens"] and "x-plimsoll-steps" in said


def test_a_request_that_was_only_counted_says_the_same() -> None:
    total = Total(8, Margin(), Quality.EXACT, 1)
    assert total_headers(total, None) == plan_headers(SAME, sent=True)
    limited = planned([user("hi")], 9000, max_tokens=5)
    assert sorted(total_headers(total, 5)) == sorted(plan_headers(limited, sent=True))


def test_a_switch_names_the_model_that_answered() -> None:
    moved = replace(SAME, draft=replace(SAME.draft, model="größer\r\nx: y"))
    assert told(moved)["x-plimsoll-model"] == "gr??er??x: y"


def test_a_header_holds_visible_characters_only() -> None:
    assert header_value("a\r\nb\x00é€ ~") == b"a??b??? ~"


def test_an_inspection_has_every_figure() -> None:
    found = inspection(CUT, {"model": "gpt-4o"})
    assert (found["model"], found["model_sent"], found["window"]) == ("gpt-4o", "gpt-4o", 400)
    assert (found["window_source"], found["window_guessed"], found["window_sent"]) == ("test", False, 400)
    assert found["tokens"] == {
        "prompt": CUT.before.prompt,
        "prompt_sent": CUT.draft.prompt,
        "reserve": 150,
        "max_tokens_sent": 150,
        "margin": 0,
        "quality": "exact",
    }
    assert found["load"] == {"before": round(CUT.before.load, 4), "after": round(CUT.draft.load, 4)}
    assert found["fits"] is True and found["excess"] == 0 and found["request"] == {"model": "gpt-4o"}
    assert [s["step"] for s in found["steps"]] == ["trim_tool_results", "prune_history"]
    assert found["messages"]["in"] == 6 and found["messages"]["sent"] == count(CUT.draft)
    assert found["metadata"] == {
        "messageCount": count(CUT.draft),
        "inputTokenCount": CUT.draft.prompt,
        "adjustedMaxTokens": 150,
    }
    assert inspection(planned([user(words(900))], 500), {})["excess"] == 907 + 31 - 500


def test_a_step_tells_of_limit_and_model_only_where_it_changed_them() -> None:
    before = SAME.draft
    after: Draft = replace(before, reply=5, model="other")
    found = inspection(Plan(before, after, (note("both", before, after),)), None)
    assert found["steps"] == [
        {
            "step": "both",
            "tokens_before": 8,
            "tokens_after": 8,
            "max_tokens_before": None,
            "max_tokens_after": 5,
            "model_before": "gpt-4o",
            "model_after": "other",
        }
    ]


def test_the_parts_add_up_to_the_window_or_what_is_over_it() -> None:
    counted = WordMeter(fixed={"base": 3, "tools": 40, "schema": 2})
    found = draft(LONG, 1000, counted, max_tokens=150)
    taken = parts(found)
    assert taken == {"tools": 42, "history": 3 + 24 + 13 + 204 + 5, "system": 6, "tool_results": 304} | {
        "reply": 150,
        "margin": 0,
    }
    assert sum(taken.values()) == found.prompt + found.reserve + found.margin


def test_the_parts_add_up_to_the_upstreams_own_count() -> None:
    counted = draft(LONG, 1000, max_tokens=150)
    found = replace(counted, prompt=counted.prompt + 9, rounding=9)
    assert sum(parts(found).values()) == found.prompt + found.reserve + found.margin


def test_what_takes_the_room_is_named_the_largest_first() -> None:
    counted = WordMeter(fixed={"base": 3, "tools": 7100})
    told = takers(draft([user("hi")], 8192, counted))
    assert told == "tools alone take 7,100 of 8,192 (tools 7,100, the reply 500, messages 8)"
    told = takers(draft(LONG[:4], 500, max_tokens=100))
    assert told.startswith("tool results alone take 304 of 500 (tool results 304, the reply 100, messages 40")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_tokens": 9000}, "the reply alone takes 9,000 of 8,192 (the reply 9,000, messages 8)"),  # no clamp
        (
            {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8500}},
            "the reply alone takes 8,501 of 8,192 (the reply 8,501, messages 8)",
        ),
    ],
)
def test_where_the_least_reply_takes_the_room_an_error_says_so(fields: dict[str, Any], told: str) -> None:
    assert takers(draft([user("hi")], 8192, **fields)) == told
