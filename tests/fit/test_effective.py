"""An effective window is kept where cuts reach it, and the model's own counts for everything else."""

from __future__ import annotations

from proxy.fit import effective
from proxy.fit.effective import by_own_window, is_kept, own, trusts, within, without_effective
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import CandidateModel, Draft, Facts, Ladder, LadderStep, Plan
from proxy.model.structs import replace
from tests.makers import WordMeter, facts, ladder, prompt, user, words

LONG = [user(words(50)) for _ in range(4)]  # 219 tokens


def halve(found: Draft, known: Facts) -> Draft:
    return found.with_blocks(found.blocks[len(found.blocks) // 2 :]) if len(found.blocks) > 1 else found


HALVING = ladder(LadderStep("halve", halve), LadderStep("halve again", halve))


def wishing(tokens: int, window: int = 4_000, **more: object) -> Facts:
    known = facts(window)
    return replace(known, window=replace(known.window, effective=tokens, **more))


def test_what_is_longer_is_cut_to_it_and_keeps_its_reply() -> None:
    found = plan(prompt(LONG, max_tokens=3_700), HALVING, wishing(120))
    assert [note.step for note in found.notes] == ["halve"] and found.draft.prompt <= 120
    assert found.draft.reply == 3_700 and found.fits
    assert found.draft.window == found.before.window == Window(4_000, source="test")
    assert all(draft.window.effective is None for draft in found.drafts)


def test_what_is_no_longer_is_left_alone_to_the_token() -> None:
    assert not plan(prompt(LONG), HALVING, wishing(219)).changed
    assert plan(prompt(LONG), HALVING, wishing(218)).changed


def test_where_no_cut_reaches_it_the_own_window_counts() -> None:
    found = plan(prompt(LONG), HALVING, wishing(10))
    assert not found.changed and found.fits and found.draft.window == Window(4_000, source="test")
    small = plan(prompt(LONG, max_tokens=10), HALVING, wishing(10, window=150))
    assert [note.step for note in small.notes] == ["halve"] and small.fits


def test_nothing_is_refused_that_would_not_be_refused_without_it() -> None:
    with_it, without = (plan(prompt(LONG), ladder(), known) for known in (wishing(10, window=100), facts(100)))
    assert (with_it.possible, with_it.draft.prompt) == (without.possible, without.draft.prompt) == (False, 219)


def test_a_guessed_window_still_cuts_nothing_beyond_it() -> None:
    learning = ladder(*HALVING.steps, unknown="learn")
    cut = plan(prompt(LONG, max_tokens=9_000), learning, wishing(120, window=100, guessed=True))
    assert cut.draft.prompt <= 120 and cut.trusting and cut.draft.window.tokens == 100 and cut.draft.reply == 9_000
    whole = plan(prompt(LONG), learning, wishing(10, window=100, guessed=True))
    assert not whole.changed and whole.trusting


def test_an_assumed_window_bounds_it() -> None:
    assuming = Ladder("test", HALVING.steps, unknown="assume")
    found = wishing(5_000, window=150, guessed=True)
    assert within(found, assuming) is found and not trusts(found.window, assuming)
    assert within(found, ladder()).window.tokens == effective.UNBOUNDED
    assert plan(prompt(LONG, max_tokens=10), assuming, found).draft.prompt <= 150


def test_it_is_forgotten_with_that_of_every_model() -> None:
    known = replace(wishing(10), candidates=(CandidateModel("b", Window(9, effective=3), WordMeter),))
    found = without_effective(known)
    assert (found.window, found.candidates[0].window) == (own(known.window), Window(9))
    assert own(found.window) is found.window


def test_a_window_that_was_supposed_proves_nothing_of_it() -> None:
    draft = plan(prompt(LONG), ladder(), facts(4_000)).before
    wished = replace(draft, window=replace(draft.window, effective=100, refused=1_000))
    assert wished.possible and not is_kept(Plan(wished, wished)) and is_kept(Plan(wished, wished, trusting=True))


def test_a_draft_for_another_model_keeps_the_window_of_that_one() -> None:
    draft = plan(prompt(LONG), ladder(), facts(4_000)).before
    moved = replace(draft, model="b", window=Window(9_000, effective=5))
    found = by_own_window(Plan(draft, moved, drafts=(moved,)), Window(4_000), ladder())
    assert found.draft.window == Window(9_000) == found.drafts[0].window and found.before.window == Window(4_000)
