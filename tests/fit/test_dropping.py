"""Why blocks are dropped, in figures that are true."""

from __future__ import annotations

import re

from proxy.fit.dropping import OLD, drops, lost, ranked, without
from proxy.fit.plan import plan
from proxy.fit.relevance.history.cut import NO_VALUE, Gone
from proxy.model.plan import Plan
from tests.fit.steps.test_prune_history import blocks
from tests.laws.steps import ladder_step
from tests.makers import assistant, draft, facts, ladder, prompt, tool_round, user, words

FIGURES = re.compile(r"less relevant \((\d\.\d\d)\) than the least that is (?:kept|quoted) \((\d\.\d\d)\)")


def test_a_score_under_the_least_that_is_kept_is_said_with_both() -> None:
    assert ranked(0.12, 0.43, 900) == "less relevant (0.12) than the least that is kept (0.43)"
    assert ranked(0.12, 0.43, 900, "quoted") == "less relevant (0.12) than the least that is quoted (0.43)"


def test_a_score_that_would_have_been_enough_went_for_lack_of_room() -> None:
    for least in (None, 0.2, 0.3, 0.302):
        assert ranked(0.3, least, 1_240) == "relevance 0.30, and no room for its 1,240 tokens"


def test_without_a_score_age_decided() -> None:
    assert ranked(0.0, None, 5) == ranked(0.0, 0.001, 5) == OLD


def test_a_cut_before_the_newest_message_says_with_which_one_it_came() -> None:
    run = blocks(10, 1_500, 10, 10, 10)
    gone = (Gone({0: NO_VALUE, 1: 3.0}, 1.5, 3), Gone({2: 0.6}, 1.5, 4))
    assert lost(run, gone, 6.0) == {
        0: "older, and no room, since #3",
        1: "relevance 0.50, and no room for its 1,500 tokens, since #3",
        2: "less relevant (0.10) than the least that is kept (0.25)",
    }


def test_blocks_without_a_reason_went_for_their_age() -> None:
    found = drops(blocks(1, 1, 1), {2}, {1: "why"})
    assert [(drop.index, drop.why) for drop in found] == [(0, OLD), (1, "why")]
    before = draft([user("a"), user("b")], 1000)
    assert without(before, {0, 1}) is before
    assert [m.index for m in without(before, {1}).messages] == [1]


def dropped(made: Plan) -> list[str]:
    return [drop.why for drop in made.draft.drops if not drop.why.startswith("recalled")]


def test_the_turns_of_a_chat_that_are_less_relevant_than_what_is_quoted_say_so() -> None:
    """U19: they said "older than the window holds" while older ones were quoted."""
    told = [user("We begin.")]
    for i in range(60):
        about = "the ferry leaves the pier" if i in (3, 5) else "the crane lifts the boxes"
        told += [assistant(f"{about} {words(40, f'w{i}x')}"), user(f"fine {i}")]
    for layout in (8, 10, 12):  # without a layout, best, and stable
        made = plan(
            prompt([*told, user("When does the ferry leave the pier?")], max_tokens=100),
            ladder(ladder_step("prune_history", layout)),
            facts(1500),
        )
        found = [FIGURES.search(why) for why in dropped(made)]
        assert any(found), dropped(made)
        for match in filter(None, found):
            assert float(match[1]) < float(match[2])


def test_rounds_of_a_run_say_what_they_were_worth_at_the_cut_that_dropped_them() -> None:
    told = [user("Mend the test of the ferry.")]
    for i in range(40):
        told += tool_round(f"c{i}", words(120, f"r{i}x"))
    made = plan(prompt(told, max_tokens=100), ladder(ladder_step("prune_history", 8)), facts(1500))
    whys = dropped(made)
    assert any("since #" in why for why in whys) and any(
        FIGURES.search(why) or "no room for its" in why for why in whys
    )
    assert all(why.startswith((OLD, "less relevant (", "relevance ")) for why in whys), set(whys)
