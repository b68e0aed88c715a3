"""What holds of an effective window, whatever is sent and by whatever ladder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.plan import plan
from proxy.model.plan import Facts, Ladder, Plan
from proxy.model.structs import replace
from tests.laws import laws
from tests.laws.cases import Case, cases
from tests.laws.test_ladders import any_ladder, of

shares = st.sampled_from((0.02, 0.1, 0.25, 0.5, 0.8, 1.0, 3.0))


def wishing(facts: Facts, tokens: int) -> Facts:
    """The facts with an effective window, for the model and for those that a request may be moved to."""
    candidates = tuple(replace(one, window=replace(one.window, effective=tokens)) for one in facts.candidates)
    return replace(facts, window=replace(facts.window, effective=tokens), candidates=candidates)


def both(case: Case, found: Ladder, share: float) -> tuple[int, Plan, Plan]:
    """An effective window, the plan that wishes it, and the plan without it."""
    tokens, ladder = max(1, int(share * case.facts.window.tokens)), of(case, found)
    wished = plan(case.prompt, ladder, wishing(case.facts, tokens))
    return tokens, wished, plan(case.prompt, ladder, case.facts)


@given(case=cases(), found=any_ladder, share=shares)
def test_nothing_is_refused_for_it_and_what_is_sent_fits_the_own_window(
    case: Case, found: Ladder, share: float
) -> None:
    _, wished, plain = both(case, found, share)
    if wished.want is not None:
        return
    assert wished.draft.window.effective is None and wished.before.window == plain.before.window
    assert wished.possible or not plain.possible
    laws.assert_recounted(case, wished, case.dialect.render(case.prompt, wished))


@given(case=cases(), found=any_ladder, share=shares)
def test_it_is_kept_or_the_plan_is_the_one_without_it(case: Case, found: Ladder, share: float) -> None:
    tokens, wished, plain = both(case, found, share)
    if wished.want is None and wished.draft.prompt > tokens:
        assert (wished.notes, wished.draft.prompt, wished.trusting) == (plain.notes, plain.draft.prompt, plain.trusting)
        assert case.dialect.render(case.prompt, wished) == case.dialect.render(case.prompt, plain)


@given(case=cases(), found=any_ladder, share=shares)
def test_what_fits_it_is_sent_as_without_it(case: Case, found: Ladder, share: float) -> None:
    tokens, wished, plain = both(case, found, share)
    margin = plain.before.window.margin(plain.before.meter.margin)
    if plain.before.prompt + margin.of(plain.before.prompt) - margin.base <= tokens and plain.before.excess <= 0:
        assert case.dialect.render(case.prompt, wished) == case.dialect.render(case.prompt, plain)
        assert wished.notes == plain.notes


@given(case=cases(), found=any_ladder, share=shares)
def test_no_reply_is_lowered_for_it(case: Case, found: Ladder, share: float) -> None:
    _, wished, plain = both(case, found, share)
    if wished.want is None and plain.want is None and wished.draft.model == plain.draft.model and plain.draft.reply:
        assert wished.draft.reply is not None and wished.draft.reply >= plain.draft.reply
