"""Which steps touched each message, and that their tokens add up, over all ladders, steps and dialects."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from proxy.fit.plan import plan
from proxy.model.conversation import Block
from proxy.model.plan import Plan
from proxy.model.structs import replace
from proxy.wire.report import inspection
from proxy.wire.rows import rows
from proxy.wire.touches import AGAIN, Touch, overhead
from tests.fit.steps.test_trim_tool_schemas import LIMITS, TOOLS, WINDOW
from tests.laws.cases import Case, cases
from tests.laws.steps import ladder_step
from tests.laws.test_ladders import SHIPPED, any_ladder, of
from tests.makers import WordMeter, facts, ladder, prompt, system, tool_round, user, words
from tests.wire.test_rows import CUT, done, planned, shortened


def assert_adds_up(made: Plan) -> None:
    """The tokens of each row and of what is besides add up along their steps, and those of each step over all rows."""
    found = rows(made)
    besides = overhead(made, (touch for row in found for touch in row.steps))
    for row in found:
        assert row.tokens + sum(touch.tokens for touch in row.steps) == row.tokens_sent, row
    assert made.before.fixed + sum(touch.tokens for touch in besides) == made.draft.fixed
    by_step: Counter[str] = Counter()
    for touch in (*besides, *(touch for row in found for touch in row.steps)):
        by_step[touch.step] += touch.tokens
    noted: Counter[str] = Counter()
    for note in made.notes:
        noted[note.step] += note.tokens_after - note.tokens_before
    again = made.draft.billed - made.before.billed - sum(noted.values())
    noted[AGAIN] += again
    assert {step: tokens for step, tokens in by_step.items() if tokens} == {s: n for s, n in noted.items() if n}


@given(case=cases(), found=any_ladder)
def test_rows_and_steps_add_up_whatever_the_ladder(case: Case, found: object) -> None:
    made = plan(case.prompt, of(case, found), case.facts)  # type: ignore[arg-type]
    assert_adds_up(made)
    for row in rows(made):
        assert row.state in ("kept", "added") or row.steps, "whatever is not kept was touched by a step"
        assert not row.step or row.step in {touch.step for touch in row.steps}


@pytest.mark.parametrize("name", sorted(SHIPPED))
@given(case=cases())
def test_rows_and_steps_add_up_for_every_ladder_that_is_shipped(name: str, case: Case) -> None:
    assert_adds_up(plan(case.prompt, of(case, SHIPPED[name]), case.facts))


def test_a_step_that_shortens_what_another_one_marked_is_named_by_the_row() -> None:
    """U18: steps said `prune_history` -13,607 while every row named `trim_tool_results` alone."""
    told = [system("be kind"), user("start")]
    for i in range(30):
        told += tool_round(f"c{i}", words(400, f"r{i}x"))
    steps = ladder_step("trim_tool_results", 2), ladder_step("prune_history", 8)
    made = planned([*told, user("and?")], 1500, *steps, max_tokens=100)
    saved = {note.step: note.tokens_before - note.tokens_after for note in made.notes}
    assert set(saved) == {"trim_tool_results", "prune_history"}
    for step, tokens in saved.items():
        touches = [touch for row in rows(made) for touch in row.steps if touch.step == step]
        assert touches and -sum(touch.tokens for touch in touches) == tokens
    assert_adds_up(made)


def test_a_message_that_two_steps_change_names_both() -> None:
    before = CUT.before
    first = shortened(before, 1, "a b")
    second = shortened(first, 1, "a")
    row = rows(done(before, one=first, two=second))[1]
    less = before.blocks[1].tokens - first.blocks[1].tokens
    assert row.steps == (Touch("one", -less), Touch("two", first.blocks[1].tokens - second.blocks[1].tokens and -1))
    assert row.step == "two"


def test_a_block_that_is_only_marked_has_its_estimate_and_what_makes_it_has_the_rest() -> None:
    before = CUT.before
    made = shortened(before, 1, "a").blocks[1]
    marked = replace(before.blocks[1], later=lambda room: made, most=9)
    first = before.with_blocks([before.blocks[0], marked, *before.blocks[2:]])
    second = first.with_blocks(first.made().blocks)
    row = rows(done(before, marks=first, makes=second))[1]
    assert row.steps == (Touch("marks", 9 - row.tokens), Touch("makes", row.tokens_sent - 9))
    assert row.step == "marks", "what was marked before and is made now tells nothing new"


def test_a_message_of_our_own_that_a_later_step_shortens_keeps_both() -> None:
    before = CUT.before
    ours = [replace(before.write(text, "why"), tokens=tokens) for text, tokens in (("long", 90), ("short", 40))]
    drafts = [before.with_blocks([*before.blocks, Block((one,))]) for one in ours]
    assert rows(done(before, adds=drafts[0], shortens=drafts[1]))[-1].steps == (
        Touch("adds", 90),
        Touch("shortens", -50),
    )


def test_what_is_counted_otherwise_after_the_last_step_is_named_so() -> None:
    block = CUT.draft.blocks[0]
    more = replace(block, messages=tuple(replace(m, tokens=m.tokens + 7) for m in block.messages))
    made = replace(CUT, draft=CUT.draft.with_blocks([more, *CUT.draft.blocks[1:]]))
    row = rows(made)[0]
    assert (row.state, row.step, row.steps) == ("kept", "", (Touch(AGAIN, 7),))
    assert_adds_up(made)


def test_inspect_names_the_steps_of_the_overhead() -> None:
    asked = prompt([user("go"), user(words(900))], tools=TOOLS, **LIMITS)
    known = facts(WINDOW, meter=WordMeter().with_fields(asked.definitions.fields))
    made = plan(asked, ladder(ladder_step("trim_tool_schemas")), known)
    besides = inspection(made, None)["messages"]["overhead"]
    saved = sum(step["tokens"] for step in besides["steps"])
    assert {step["step"] for step in besides["steps"]} == {"trim_tool_schemas"}
    assert besides["tokens"] + saved == besides["tokens_sent"] < besides["tokens"]
