"""What holds for whole ladders: those that are shipped, and any other that a user may write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.rules import load_rules
from proxy.fit.plan import due, plan
from proxy.model.conversation import Kind, Message
from proxy.model.plan import Ladder, Want
from proxy.model.structs import replace
from proxy.wire.rows import rows
from tests.laws import laws
from tests.laws.cases import VALID, Case, cases, orderly
from tests.laws.steps import NAMES, TO, ladder_step
from tests.makers import ladder

SHIPPED = load_rules(None, defaults={"switch_model": {"to": TO}}).ladders
DEFAULT = load_rules(None).ladders["default"]  # without models to switch to
THRESHOLDS = (None, None, None, 0.5, 0.9)
steps = st.builds(ladder_step, st.sampled_from(NAMES), st.integers(0, 13), st.sampled_from(THRESHOLDS))
any_ladder = st.one_of(
    st.sampled_from(sorted(SHIPPED)).map(lambda name: SHIPPED[name]),
    st.lists(steps, max_size=7).map(lambda found: ladder(*found)),
)
every_ladder = pytest.mark.parametrize("name", sorted(SHIPPED))


def of(case: Case, found: Ladder) -> Ladder:
    """The ladder, with the case's own reserve and floor."""
    return replace(found, default_reserve=case.default_reserve, floor=case.floor)


def walked(case: Case, found: Ladder) -> None:
    """Every rung in its turn keeps the laws, whatever came before it."""
    prompt = case.prompt
    draft = first = case.counted(prompt)
    parsed = case.dialect.parsed
    facts = replace(case.facts, original=first)
    for one in of(case, found).steps:
        after = one.apply(draft, facts) if due(one, draft, first) else draft
        if isinstance(after, Want):
            continue
        before, made = draft.made(), after.made()  # a step may decide what is made later
        assert made.excess <= max(0, before.excess)
        if one.step == "switch_model":  # to it belongs what the client sent, or what stands now, and nothing else
            assert parsed(made) in (parsed(first), parsed(before))
        else:
            laws.assert_pins(one.step, before, made)
        laws.assert_accounts(prompt, made)
        laws.assert_untouched(case.dialect, prompt, made)
        laws.assert_paired(parsed(first), parsed(made))
        assert laws.users_after_results(parsed(made)) == 0 or laws.users_after_results(parsed(first))
        draft = after


@every_ladder
@given(case=cases())
def test_every_step_of_a_shipped_ladder_keeps_the_laws_in_its_place(name: str, case: Case) -> None:
    walked(case, SHIPPED[name])


@given(case=cases(), found=any_ladder)
def test_every_step_of_any_ladder_keeps_the_laws_in_its_place(case: Case, found: Ladder) -> None:
    walked(case, found)


@given(case=orderly(), found=any_ladder)
def test_no_step_of_a_ladder_lets_a_user_speak_straight_after_a_result(case: Case, found: Ladder) -> None:
    walked(case, found)


def strict(case: Case) -> Case:
    """The same for models that take user and assistant in turn only."""
    candidates = tuple(replace(r, window=replace(r.window, alternates=True)) for r in case.facts.candidates)
    window = replace(case.facts.window, alternates=True)
    return replace(case, facts=replace(case.facts, window=window, candidates=candidates))


@given(case=orderly(), found=any_ladder)
def test_where_users_and_answers_must_alternate_they_do(case: Case, found: Ladder) -> None:
    case = strict(case)
    prompt = case.prompt
    made = plan(prompt, of(case, found), case.facts)
    laws.assert_in_turn(case.dialect.parsed(made.draft))
    assert laws.users_after_results(case.dialect.parsed(made.draft)) == 0
    laws.assert_accounts(prompt, made.draft)
    laws.assert_recounted(case, made, case.dialect.render(prompt, made))
    plain = plan(prompt, of(case, found), replace(case.facts, window=replace(case.facts.window, alternates=False)))
    if made.draft.model == plain.draft.model and not {n.step for n in made.notes} & {*laws.MAY_CHANGE_PINNED}:
        laws.assert_said(plain.before, made.draft)
    if made.want is None and plain.draft.model == prompt.model:
        assert made.draft.prompt <= plain.draft.prompt and (made.fits or not plain.fits)


@given(case=orderly(), found=any_ladder)
def test_what_was_joined_for_turns_is_told_of_every_message(case: Case, found: Ladder) -> None:
    case = strict(case)
    made = plan(case.prompt, of(case, found), case.facts)
    told = rows(made)
    laws.assert_told(made)
    joined = [row for row in told if row.state == "joined"]
    assert not joined or "join_turns" in {n.step for n in made.notes}


@given(case=cases(), found=any_ladder)
def test_what_would_be_sent_fits_or_the_plan_says_that_it_does_not(case: Case, found: Ladder) -> None:
    prompt = case.prompt
    made = plan(prompt, of(case, found), case.facts)
    body = case.dialect.render(prompt, made)
    laws.assert_recounted(case, made, body)
    laws.assert_told(made)
    laws.assert_fields_kept(case.dialect, case.body, body)


@given(case=cases(VALID), found=any_ladder)
def test_what_was_valid_is_sent_valid(case: Case, found: Ladder) -> None:
    prompt = case.prompt
    made = plan(prompt, of(case, found), case.facts)
    laws.assert_valid(case.dialect.parsed(made.draft), case.opened(made.before))


@given(case=cases(), found=any_ladder)
def test_what_fits_and_is_under_every_line_is_left_alone(case: Case, found: Ladder) -> None:
    made = plan(case.prompt, of(case, found), case.facts)
    if made.before.excess <= 0 and made.before.load < found.least_at:
        assert made.draft is made.before and not made.changed and made.fits


@given(case=cases(), found=any_ladder)
def test_the_same_request_gives_the_same_bytes(case: Case, found: Ladder) -> None:
    one, two = (case.dialect.render(p, plan(p, of(case, found), case.facts)) for p in (case.prompt, case.prompt))
    assert one == two


@given(case=cases())
def test_what_the_default_ladder_made_fit_is_left_alone_by_the_next_one(case: Case) -> None:
    found = of(case, DEFAULT)
    prompt = case.prompt
    made = plan(prompt, found, case.facts)
    if made.fits:
        again = case.dialect.parse(case.dialect.render(prompt, made), case.pins)
        assert (
            plan(again, replace(found, floor=min(found.floor, again.reply.limit or found.floor)), case.facts).notes
            == ()
        )


@given(case=cases())
def test_a_request_whose_texts_can_give_way_is_never_refused(case: Case) -> None:
    """The default ladder finds room wherever it is enough to drop what may go, to cut every text to 90 tokens, and to
    leave the reply half the window. Instructions and what the client pinned stay whole."""
    prompt = case.prompt
    made = plan(prompt, of(case, DEFAULT), case.facts)
    first = made.before
    meter = first.meter
    least = first.fixed

    def fast(message: Message) -> bool:
        return message.kind is Kind.INSTRUCTION or message.index in first.pins

    for block in first.blocks:
        if block.pinned:
            least += sum(m.tokens - (0 if fast(m) else max(0, meter.text(m.text()) - 90)) for m in block.messages)
    room = min(first.window.tokens - first.held, first.window.max_input or first.window.tokens)
    assert made.fits or least + meter.margin.of(least) > room
