"""Another model, where the one that was asked for is too small."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.fit.steps import switch_model
from proxy.fit.steps.switch_model import Params, apply
from proxy.model.limits import Window
from proxy.model.plan import CandidateModel, Draft, Facts, Want
from proxy.model.structs import replace
from tests.makers import WordMeter, contents, draft, facts, user, words

TO = Params(to=("small", "asked", "big", "huge"))


def candidate(name: str, tokens: int, ratio: float = 1.0, **window: Any) -> CandidateModel:
    return CandidateModel(name, Window(tokens, **window), lambda: WordMeter(ratio=ratio))


SMALL, ASKED, BIG, HUGE = (
    candidate("small", 500),
    candidate("asked", 9000),
    candidate("big", 2000),
    candidate("huge", 10**6),
)


def known(*candidates: CandidateModel, original: Draft | None = None) -> Facts:
    return facts(1000, candidates=candidates, original=original)


def asking(size: int = 1193, limit: int | None = 100, **fields: Any) -> Draft:
    """A prompt of `size` words and 7 tokens of frame, for a model with a window of 1000."""
    return draft([user(words(size))], 1000, model="asked", max_tokens=limit, **fields)


def moved(found: Draft | Want) -> str:
    assert isinstance(found, Draft)
    return found.model


def test_its_threshold_compares_what_the_client_sent() -> None:
    assert switch_model.OF_ORIGINAL is True


def test_the_first_in_order_that_holds_it_is_chosen_and_the_current_one_skipped() -> None:
    assert moved(apply(asking(), known(HUGE, BIG, ASKED, SMALL), TO)) == "big"
    assert moved(apply(asking(), known(HUGE, BIG, SMALL), Params(to=("huge", "big")))) == "huge"


def test_without_a_model_that_is_allowed_and_large_enough_nothing_changes() -> None:
    before = asking()
    assert apply(before, known(HUGE), Params()) is before
    assert apply(before, known(SMALL, ASKED), TO) is before
    assert apply(before, known(), TO) is before


def test_a_tenth_to_spare_is_needed_to_the_token() -> None:
    before = asking(size=893)  # 900 and 100 for the reply, and 100 to spare
    assert moved(apply(before, known(candidate("big", 1100)), TO)) == "big"
    assert apply(before, known(candidate("big", 1099)), TO) is before
    assert moved(apply(before, known(candidate("big", 1000)), Params(to=("big",), spare=0))) == "big"


def test_it_is_counted_the_other_models_way() -> None:
    before = asking()
    assert apply(before, known(candidate("big", 2000, ratio=2.0)), TO) is before
    after = apply(before, known(candidate("big", 4000, ratio=2.0)), TO)
    assert (after.prompt, after.window.tokens, after.meter) == (2397, 4000, WordMeter(ratio=2.0))
    assert [m.raw for m in after.messages] == [m.raw for m in before.messages]


def test_a_guessed_window_holds_nothing() -> None:
    before = asking()
    assert apply(before, known(candidate("big", 10**6, guessed=True)), TO) is before


def test_a_bound_on_the_prompt_alone_is_heeded() -> None:
    before = asking()
    assert apply(before, known(candidate("big", 10**6, max_input=1199)), TO) is before
    assert moved(apply(before, known(candidate("big", 10**6, max_input=1200)), TO)) == "big"


def test_what_the_request_needs_must_not_be_known_to_lack() -> None:
    before = asking(tools=[{"type": "function", "function": {"name": "f"}}])
    assert apply(before, known(candidate("big", 2000, can=frozenset({"vision"}))), TO) is before
    assert moved(apply(before, known(candidate("big", 2000, can=frozenset({"tools", "vision"}))), TO)) == "big"
    assert moved(apply(before, known(candidate("big", 2000, can=None)), TO)) == "big"


def test_the_other_models_own_bound_on_the_reply_is_heeded() -> None:
    before = asking(limit=900)
    after = apply(before, known(candidate("big", 9000, max_output=600)), TO)
    assert (after.model, after.reply) == ("big", 600)
    assert apply(before, known(candidate("big", 9000, max_output=499)), TO) is before  # less than the floor of 500
    assert moved(apply(asking(limit=90), known(candidate("big", 9000, max_output=90)), TO)) == "big"
    assert moved(apply(asking(limit=None), known(candidate("big", 9000, max_output=90)), TO)) == "asked"


def test_a_request_without_a_limit_gets_none_from_the_switch() -> None:
    after = apply(asking(limit=None), known(candidate("big", 9000, max_output=500)), TO)
    assert (after.model, after.reply) == ("big", None)


def test_the_uncut_original_goes_first() -> None:
    original = asking()
    cut = original.with_blocks([])
    assert contents(apply(cut, known(HUGE, original=original), TO)) == contents(original)


def test_what_is_cut_already_is_moved_where_nobody_holds_the_original() -> None:
    original = draft([user(words(3000)), user(words(1200))], 1000, model="asked", max_tokens=100)
    cut = original.with_blocks(original.blocks[1:])
    after = apply(cut, known(BIG, original=original), TO)
    assert (after.model, after.prompt) == ("big", 1207) and after.excess <= 0


def test_what_is_cut_and_fits_stays_where_nobody_holds_the_original() -> None:
    original = draft([user(words(3000)), user(words(10))], 1000, model="asked", max_tokens=100)
    cut = original.with_blocks(original.blocks[1:])
    assert apply(cut, known(BIG, original=original), TO) is cut


def test_a_request_that_was_moved_and_fits_stays_there() -> None:
    original = asking()
    after = apply(original, known(BIG, HUGE, original=original), TO)
    assert apply(after, known(BIG, HUGE, original=original), TO) is after
    full = replace(after, window=Window(1000))
    assert moved(apply(full, known(BIG, HUGE, original=original), TO)) == "huge"


@pytest.mark.parametrize("spare", [-0.1, 10.0])
def test_a_share_to_spare_that_makes_no_sense_is_refused(spare: float) -> None:
    with pytest.raises(ValueError, match="spare"):
        Params(spare=spare)


def test_another_models_count_has_nothing_of_what_the_upstream_counted() -> None:
    found = apply(replace(asking(), rounding=7), known(BIG), TO)
    assert isinstance(found, Draft) and found.model == "big" and found.rounding == 0 and found.prompt == 1200
