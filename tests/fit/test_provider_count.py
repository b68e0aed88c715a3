"""When the upstream's own count decides, and what follows from it."""

from __future__ import annotations

import pytest

from proxy.fit.plan import plan
from proxy.fit.provider_count import (
    KIND,
    RATIO_STEP,
    WHOLE_MARGIN,
    is_believable,
    is_near,
    with_count,
    without_count,
)
from proxy.model.conversation import Prompt
from proxy.model.limits import Margin, Quality, Window
from proxy.model.plan import CountRequest, Draft, Facts, Ladder, LadderStep, Plan
from proxy.model.structs import replace
from tests.makers import WordMeter, draft, ladder, prompt, user, words

MARGIN = Margin(100, 0.1)
SENT = prompt([user(words(500)) for _ in range(20)], max_tokens=500)  # 10,083 tokens
TOKENS = 10_083


def halve(found: Draft, known: Facts) -> Draft:
    return found.with_blocks(found.blocks[len(found.blocks) // 2 :])


LADDER = ladder(LadderStep("halve", halve))


def facts(window: int, quality: Quality = Quality.ESTIMATED, margin: Margin = MARGIN, counter: bool = True) -> Facts:
    return Facts(Window(window), WordMeter(quality, margin), counter=counter)


def told(window: int, tokens: int, sent: Prompt = SENT, steps: Ladder = LADDER) -> Plan:
    """The plan after the upstream counted so many tokens."""
    known = facts(window)
    wanted = plan(sent, steps, known).want
    assert wanted is not None and wanted.kind == wanted.key == KIND and isinstance(wanted.payload, CountRequest)
    return plan(sent, steps, with_count(known, wanted.payload, tokens))


@pytest.mark.parametrize(
    ("window", "near"),
    [(9_000, False), (9_450, False), (9_500, True), (10_583, True), (11_500, True), (11_692, False), (13_000, False)],
)
def test_the_upstream_is_asked_only_where_the_margin_decides(window: int, near: bool) -> None:
    found = plan(SENT, LADDER, facts(window))
    assert (found.want is not None) is near is is_near(found.before)


def test_an_exact_count_needs_no_other() -> None:
    assert plan(SENT, LADDER, facts(10_583, Quality.EXACT)).want is None


def test_without_a_counter_nobody_is_asked() -> None:
    found = plan(SENT, LADDER, facts(10_583, counter=False))
    assert found.want is None and found.changed


def test_what_fits_by_the_upstreams_count_is_not_changed() -> None:
    found = told(10_583, 9_800)
    assert not found.changed and found.fits and found.draft.prompt == 9_800
    assert found.draft.meter.margin == WHOLE_MARGIN and found.draft.meter.quality is Quality.CALIBRATED


def test_the_upstreams_count_has_a_margin_too() -> None:
    most = 10_583 - 500 - WHOLE_MARGIN.of(9_884)
    assert not told(10_583, most).changed and told(10_583, most + 1).changed


def test_what_does_not_fit_is_cut_by_corrected_counts_with_the_margin_of_ours() -> None:
    found = told(10_583, 12_000)
    assert found.changed and found.fits and found.draft.meter.margin == MARGIN
    assert 12_000 <= found.before.prompt <= 12_000 * (1 + RATIO_STEP) + 10


@pytest.mark.parametrize("tokens", [0, -1])
def test_without_an_answer_the_plan_is_that_of_our_own_count(tokens: int) -> None:
    found, ours = told(10_583, tokens), plan(SENT, LADDER, facts(10_583, counter=False))
    assert found == ours


def test_an_empty_prompt_is_no_measure() -> None:
    known = facts(100)
    assert with_count(known, CountRequest(SENT, replace(draft([user("a")], 100), prompt=0)), 7) == replace(
        known, counter=False
    )


@pytest.mark.parametrize(("tokens", "believed"), [(700, True), (1300, True), (699, False), (1301, False), (-7, False)])
def test_a_count_is_believed_near_ours(tokens: int, believed: bool) -> None:
    assert is_believable(replace(draft([user("a")], 100), prompt=1000), tokens) is believed


def test_a_ratio_moves_in_steps() -> None:
    """Else every cut would move at every turn, and with it the provider's prompt cache."""
    ratios = set()
    for tokens in range(10_700, 10_750, 7):
        made = told(10_583, tokens).before.meter
        assert isinstance(made, WordMeter)
        ratios.add(made.ratio)
    assert len(ratios) == 1


def test_a_step_with_an_at_acts_on_what_fits_by_the_upstreams_count() -> None:
    found = told(10_583, 9_800, steps=ladder(LadderStep("halve", halve, at=0.9)))
    assert [note.step for note in found.notes] == ["halve"] and found.notes[0].tokens_before == 9_800


def test_parts_and_what_is_besides_them_add_up_to_the_upstreams_count() -> None:
    made = told(10_583, 9_777).draft
    assert made.rounding and made.with_blocks(made.blocks).prompt == 9_777
    assert made.with_blocks(made.blocks[1:]).prompt == 9_777 - made.blocks[0].tokens


def test_after_a_refusal_the_count_decides_nothing() -> None:
    known = facts(10_583)
    request = CountRequest(SENT, plan(SENT, LADDER, known).before)
    found = plan(SENT, LADDER, without_count(with_count(known, request, 9_800)))
    assert found.changed and found.want is None


def test_a_guessed_window_is_not_asked_about() -> None:
    guess = replace(facts(10_583), window=Window(10_583, guessed=True))
    assert plan(SENT, LADDER, guess).trusting
