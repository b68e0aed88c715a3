"""Old history becomes a summary: what is covered and for how long, what is wanted, and what changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from proxy.fit.plan import plan, start
from proxy.fit.steps import summarise_history
from proxy.fit.steps.summarise_history import GONE, HEADING, Params, ahead, apply, idle
from proxy.model.limits import Window
from proxy.model.plan import Draft, Facts, LadderStep, Want
from proxy.model.structs import replace
from tests.makers import assistant, contents, draft, facts, ladder, prompt, system, tool_round, user, words

SUM = Params(model="sum", at=0.85, ready=0.7, keep_last=4, max_tokens=20)
WINDOW = 2000


def talk(turns: int, size: int = 46) -> list[dict[str, Any]]:
    """A system message, so many turns of 50 tokens, a question."""
    said = [(user if i % 2 == 0 else assistant)(words(size, f"t{i}x")) for i in range(turns)]
    return [system("Be brief."), *said, user("And now?")]


def counted(messages: list[dict[str, Any]], window: int = WINDOW) -> Draft:
    return draft(messages, window, max_tokens=200)


def known(before: Draft, **knowledge: str) -> Facts:
    return facts(before.window.tokens, original=before, knowledge=knowledge)


def wanted(before: Draft, params: Params = SUM) -> Want:
    found = apply(before, known(before), params)
    assert isinstance(found, Want)
    return found


def told(before: Draft, summary: str = "they spoke of ships", params: Params = SUM) -> Draft:
    """The draft after the step was told this summary."""
    found = apply(before, known(before, **{wanted(before, params).key: summary}), params)
    assert isinstance(found, Draft)
    return found


def covered(want: Want) -> list[list[int]]:
    """The client's messages in each stride of a wanted summary."""
    return [[m.index for b in blocks for m in b.messages] for _, blocks in want.payload.strides]


def test_without_a_model_it_takes_no_part() -> None:
    before = counted(talk(60))
    assert idle(Params()) and not idle(SUM)
    assert apply(before, known(before), Params()) is before and ahead(before, known(before), Params()) is before


def test_a_summary_that_nobody_has_is_wanted() -> None:
    want = wanted(counted(talk(34)))
    assert (want.kind, want.payload.model, want.payload.max_tokens) == ("summary", "sum", 20)
    assert [key for key, _ in want.payload.strides] == [want.key]


def test_the_summary_stands_where_the_first_covered_message_stood() -> None:
    before = counted(talk(34))
    after = told(before)
    gone = covered(wanted(before))[0]
    assert gone == list(range(2, gone[-1] + 1))  # all but the system message and the first question
    assert [m.index for m in after.messages] == [0, 1, -1, *range(gone[-1] + 1, 36)]
    assert contents(after)[2] == HEADING + "they spoke of ships"
    made = after.blocks[2]
    assert made.pinned and made.messages[0].role == "user" and made.messages[0].why
    assert [(d.index, d.why) for d in after.drops] == [(i, GONE) for i in gone]
    assert after.prompt == before.prompt - 50 * len(gone) + made.tokens


def test_under_the_mark_nothing_is_covered() -> None:
    before = counted(talk(28))
    assert before.load < 0.85 and apply(before, known(before), SUM) is before


def test_the_newest_messages_stay() -> None:
    for keep_last in (1, 4, 9):
        before = counted(talk(34))
        want = wanted(before, replace(SUM, keep_last=keep_last, ready=0.85))
        assert max(covered(want)[-1]) == max(m.index for m in before.messages) - keep_last - mark_passed(before)


def mark_passed(before: Draft) -> int:
    """How many messages came after the one that passed the mark."""
    costs = itertools.accumulate((b.tokens for b in before.blocks), initial=before.fixed)
    return len(before.blocks) - next(i for i, cost in enumerate(costs) if cost >= 0.85 * WINDOW - 200)


def test_what_a_cover_just_left_is_not_covered_by_the_next_one() -> None:
    params = replace(SUM, keep_last=6, max_tokens=800)
    before = counted([*talk(22)[:-1], user(words(500, "long")), user("And now?")])
    want = ahead(before, known(before), params)
    assert want == wanted(before, params) and len(covered(wanted(before, params))) == 1


def test_long_messages_leave_fewer_of_the_newest() -> None:
    before = counted([system("Be brief."), *(user(words(296, f"l{i}x")) for i in range(6)), user("And now?")])
    want = wanted(before, replace(SUM, keep_last=20))
    left = [b for b in before.blocks if b.messages[0].index > covered(want)[-1][-1]]
    assert 0 < sum(b.tokens for b in left[:-1]) <= 0.5 * (0.7 * WINDOW) + 300


@pytest.mark.parametrize("summary", ["", words(5000)])
def test_a_summary_that_failed_or_is_longer_than_what_it_replaces_changes_nothing(summary: str) -> None:
    before = counted(talk(34))
    assert told(before, summary) is before


def test_the_same_summary_serves_until_the_load_passes_the_mark_again_and_then_it_is_extended() -> None:
    keys, strides = [], []
    for turns in range(34, 120, 2):
        want = wanted(counted(talk(turns)))
        keys.append(want.key)
        strides.append(covered(want))
    runs = [len(list(same)) for _, same in itertools.groupby(keys)]
    assert 3 <= len(runs) <= 9 and min(runs[1:-1]) >= 4
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(strides))
    final = wanted(counted(talk(118))).payload.strides
    assert [key for key, _ in final] == list(dict.fromkeys(keys))


def test_what_comes_next_is_wanted_ahead_and_is_what_is_wanted_later() -> None:
    """From the lower mark on; then no request need wait."""
    soon: set[str] = set()
    for turns in range(8, 120, 2):
        before = counted(talk(turns))
        found = ahead(before, known(before), SUM)
        soon |= {found.key} if isinstance(found, Want) else set()
        if before.load >= 0.85:
            assert wanted(before).key in soon
        if before.load < 0.7:
            assert found is before
    assert len(soon) >= 4


def test_what_is_known_is_not_wanted_ahead() -> None:
    before = counted(talk(30))
    want = ahead(before, known(before), SUM)
    assert isinstance(want, Want)
    assert ahead(before, known(before, **{want.key: ""}), SUM) is before


def test_calls_and_their_results_go_as_one() -> None:
    said = [user("Find it.")]
    for i in range(40):
        said += tool_round(f"c{i}", words(40, f"r{i}x"))
    before = counted(said)
    after = told(before)
    left = {m.index for m in after.messages}
    assert len(after.drops) % 2 == 0 and {0, 79, 80} <= left
    assert all((i in left) == (i + 1 in left) for i in range(1, 81, 2))


def test_what_is_pinned_only_for_now_stays_though_it_is_covered() -> None:
    """The last user message of a long run: once there is another, the cover is still the same."""
    said = [user("Hello."), assistant("Hi."), user("Find it.")]
    for i in range(40):
        said += tool_round(f"c{i}", words(40, f"r{i}x"))
    before = counted(said)
    assert 2 in covered(wanted(before))[0] and 2 in {m.index for m in told(before).messages}
    later = counted([*said, assistant("Done."), user("Thanks.")])
    assert covered(wanted(later))[0] == covered(wanted(before))[0]
    assert 2 not in {m.index for m in told(later).messages}


def test_what_the_client_pinned_stays_and_is_not_covered() -> None:
    sent = replace(prompt(talk(34), max_tokens=200), pins=frozenset({5}))
    before = start(sent, ladder(), facts(WINDOW))
    assert 5 not in covered(wanted(before))[0] and 5 in {m.index for m in told(before).messages}


def test_the_summary_does_not_part_a_pinned_round_from_what_goes_on_with_it() -> None:
    rounds = [m for i in range(12) for m in tool_round(f"c{i}", words(40, f"r{i}x"))]
    messages = [user(words(40)), *rounds, assistant("done"), *talk(20)]
    sent = replace(prompt(messages, max_tokens=200), pins=frozenset({2}))
    left = [m.role for m in told(start(sent, ladder(), facts(WINDOW))).messages]
    assert left[:5] == ["user", "user", "assistant", "tool", "assistant"]


def test_what_other_steps_did_to_the_draft_does_not_move_the_cover() -> None:
    first = counted(talk(40))
    cut = first.with_blocks([b for b in first.blocks if b.messages[0].index not in (3, 4, 38)])
    found = apply(cut, known(first), SUM)
    assert isinstance(found, Want) and found.key == wanted(first).key


def test_where_all_that_is_covered_has_gone_already_nothing_is_wanted() -> None:
    first = counted(talk(34))
    left = first.with_blocks([b for b in first.blocks if b.pinned])
    assert apply(left, known(first), SUM) is left


def test_a_bound_on_the_prompt_alone_is_a_mark_too() -> None:
    before = replace(counted(talk(20), 10_000), window=Window(10_000, 800))
    assert isinstance(apply(before, known(before), SUM), Want)


def test_without_a_threshold_it_waits_until_nothing_else_fits() -> None:
    params = replace(SUM, at=None)
    fitting, full = counted(talk(32)), counted(talk(40))
    assert 0.85 < fitting.load < 1 < full.load
    assert apply(fitting, known(fitting), params) is fitting
    assert told(full, params=params).excess <= 0


def test_in_a_ladder_the_plan_wants_it_and_with_it_goes_on() -> None:
    steps = ladder(LadderStep("summarise_history", lambda d, f: apply(d, f, SUM), 0.85))
    sent = prompt(talk(34), max_tokens=200)
    first = plan(sent, steps, facts(WINDOW))
    assert first.want is not None
    second = plan(sent, steps, facts(WINDOW, knowledge={first.want.key: "ships"}))
    assert second.want is None and [n.step for n in second.notes] == ["summarise_history"]
    assert second.draft.load < 0.85
    third = plan(sent, steps, facts(WINDOW, knowledge={first.want.key: ""}))
    assert third.want is None and not third.changed


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"keep_last": 0}, "keep_last"), ({"max_tokens": 0}, "max_tokens"), ({"ready": 0}, "ready"), ({"low": 1}, "low")],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Params(**wrong)


def test_what_it_covers_is_told_by_the_reason_that_reports_know() -> None:
    from proxy.wire.rows import SUMMARISED

    assert summarise_history.GONE == SUMMARISED
