"""Saying what was done, in figures."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.plan import note, plan
from proxy.model.conversation import PartKind
from proxy.model.limits import Margin, Quality
from proxy.model.plan import Draft, Drop, LadderStep, Note, Plan
from proxy.model.scan import Total
from proxy.model.structs import replace
from proxy.wire.report import (
    count,
    fates,
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


def test_each_message_has_its_fate_and_the_reason() -> None:
    found = fates(CUT)
    assert [(f["index"], f["role"], f["fate"], f["why"]) for f in found] == [
        (0, "system", "kept", "pinned"),
        (1, "user", "kept", "pinned"),
        (2, "assistant", "dropped", "older than the window holds"),
        (3, "tool", "dropped", "older than the window holds"),
        (4, "assistant", "kept", "fits"),
        (5, "user", "kept", "newest"),
    ]
    trimmed = fates(planned(LONG, 600, ladder_step("trim_tool_results", 1), max_tokens=150))
    assert (trimmed[3]["fate"], trimmed[3]["why"]) == ("shortened", "tool result over its cap")
    assert trimmed[3]["tokens_sent"] < trimmed[3]["tokens"] == 304
    assert sum(f["tokens_sent"] for f in found) == CUT.draft.prompt - 3
    assert sum(f["tokens"] for f in found) == CUT.before.prompt - 3
    assert all(f["tokens_sent"] == 0 for f in found if f["fate"] == "dropped")


def test_what_a_summary_stands_for_is_not_called_dropped() -> None:
    before = SAME.draft
    summed = replace(before, blocks=(), drops=tuple(Drop(m.index, "summarised") for m in before.messages))
    assert {(f["fate"], f["why"]) for f in fates(Plan(before, summed))} == {("summarised", "summarised")}


def test_what_was_joined_is_told_of_both_and_counted_once() -> None:
    told = [user(words(9)), assistant(words(900)), user("b"), assistant("c"), user("d")]
    known = facts(200)
    known = replace(known, window=replace(known.window, alternates=True))
    made = plan(prompt(told, max_tokens=50), ladder(ladder_step("prune_history")), known)
    found = fates(made)
    assert [(f["fate"], f["tokens_sent"]) for f in found] == [
        ("joined", 0),
        ("dropped", 0),
        ("joined", 4 + 9 + 1),
        ("kept", 5),
        ("kept", 5),
    ]
    assert found[0]["why"] == "joined to the message behind it"


def test_the_parts_add_up_to_the_window_or_what_is_over_it() -> None:
    counted = WordMeter(fixed={"base": 3, "tools": 40, "schema": 2})
    found = draft(LONG, 1000, counted, max_tokens=150)
    taken = parts(found)
    assert taken == {"tools": 42, "history": 3 + 24 + 13 + 204 + 5, "system": 6, "tool_results": 304} | {
        "reply": 150,
        "margin": 0,
    }
    assert sum(taken.values()) == found.prompt + found.reserve + found.margin


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


def test_what_an_excerpt_quotes_or_a_summary_stands_for_has_a_fate_of_its_own() -> None:
    whys = {2: "recalled: relevance 0.83", 3: "recalled: recent", 4: "summarised"}
    less = CUT.draft.with_blocks([CUT.draft.blocks[0], CUT.draft.blocks[-1]])
    gone = replace(less, drops=tuple(Drop(i, whys.get(i, "old")) for i in (1, 2, 3, 4)))
    found = fates(replace(CUT, draft=gone))
    assert [(f["fate"], f["why"], f["tokens_sent"]) for f in found[1:5]] == [
        ("dropped", "old", 0),
        ("recalled", "relevance 0.83", 0),
        ("recalled", "recent", 0),
        ("summarised", whys[4], 0),
    ]


def test_a_message_of_our_own_has_a_row_before_the_one_that_follows_it() -> None:
    talk = [user(words(20, "a")), *(assistant(words(60, f"b{i}x")) for i in range(9)), user("b3x1 b3x2?")]
    made = planned(talk, 500, ladder_step("prune_history", 8), max_tokens=50)
    found = fates(made)
    assert [f["index"] for f in found] == [*range(10), None, 10]
    ours = found[10]
    assert (ours["fate"], ours["role"], ours["tokens"]) == ("added", "user", 0)
    assert ours["why"] and ours["tokens_sent"] > 60
    assert sum(f["tokens_sent"] for f in found) + 3 == made.draft.prompt
    assert inspection(made, None)["messages"]["overhead"] == {"tokens": 3, "tokens_sent": 3}


def test_a_message_of_our_own_at_the_end_has_the_last_row() -> None:
    ours = replace(CUT.draft.write("more", "why not"), tokens=7)
    behind = CUT.draft.with_blocks([*CUT.draft.blocks, replace(CUT.draft.blocks[-1], messages=(ours,))])
    assert fates(replace(CUT, draft=behind))[-1] == {
        "index": None,
        "role": "user",
        "fate": "added",
        "why": "why not",
        "tokens": 0,
        "tokens_sent": 7,
    }


def test_an_excerpt_has_the_lines_that_it_leaves_out() -> None:
    log = "\n".join(words(9, f"line{i}x") for i in range(60))
    made = planned([user("line41x3?"), *tool_round("c", log), user("and?")], 400, ladder_step("trim_tool_results", 1))
    row = fates(made)[2]
    assert row["fate"] == "shortened" and row["lines"] == 60
    first, last = row["left_out"][0][0], row["left_out"][-1][1]
    assert 1 < first and last < 60
    assert all("left_out" not in f for f in fates(CUT))  # one line each


def test_arguments_of_a_call_have_no_lines_that_could_be_left_out() -> None:
    then = CUT.before.blocks[2].messages[0]
    call = next(part for part in then.parts() if part.kind is PartKind.CALL)
    edited = then.edit([(call, '{"q": "shorter"}')], "arguments of an old call")
    now = replace(CUT.before, blocks=(replace(CUT.before.blocks[2], messages=(edited,)),))
    row = next(f for f in fates(replace(CUT, draft=now)) if f["index"] == then.index)
    assert row["fate"] == "shortened" and "left_out" not in row
