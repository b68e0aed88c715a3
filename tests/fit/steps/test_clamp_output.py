"""The reply limit, negotiated with the prompt for the window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fit.steps.clamp_output import Params, apply, clamp, squeezed
from proxy.model.limits import Margin, Window
from proxy.model.plan import Draft
from proxy.model.structs import replace
from tests.makers import WordMeter, draft, facts, user, words

KNOWN = facts(10_000)


def asking(limit: int | None, size: int = 9893, floor: int = 100, **window: Any) -> Draft:
    """A prompt of `size` words and 7 tokens of frame in a window of 10,000."""
    found = draft([user(words(size))], 10_000, max_tokens=limit)
    return replace(found, ladder_floor=floor, window=Window(**{"tokens": 10_000, **window}))


def test_a_limit_that_fits_is_not_touched() -> None:
    before = asking(100)
    assert before.excess == 0 and apply(before, KNOWN, Params()) is before


def test_a_limit_that_does_not_fit_is_lowered_to_what_is_left() -> None:
    after = apply(asking(500), KNOWN, Params(floor=1))
    assert (after.reply, after.excess) == (100, 0)


def test_a_limit_that_does_not_count_against_the_window_is_left_alone() -> None:
    before = asking(60_000, size=12_000, separate=True)
    assert apply(before, KNOWN, Params()) is before and squeezed(before) is before


def test_the_margin_is_left_free() -> None:
    before = replace(asking(5000, size=4993, floor=1), meter=WordMeter(margin=Margin(40, 0.1)))
    assert apply(before, KNOWN, Params()).reply == 10_000 - 5000 - 40 - 500


def test_it_never_goes_under_the_floor() -> None:
    before = asking(500, size=9894, floor=100)
    assert apply(before, KNOWN, Params()) is before  # 99 tokens are left: the prompt must shrink first
    assert apply(asking(500, size=9893, floor=100), KNOWN, Params()).reply == 100


def test_a_rows_own_floor_holds_where_it_is_higher() -> None:
    before = asking(500, size=9793, floor=100)
    assert apply(before, KNOWN, Params(floor=201)) is before
    assert apply(before, KNOWN, Params(floor=200)).reply == 200


def test_a_thinking_budget_is_a_floor_of_its_own() -> None:
    found = draft([user(words(9793))], 10_000, max_tokens=900, thinking={"type": "enabled", "budget_tokens": 250})
    assert found.floor == 500  # the ladder's, which is higher
    before = replace(found, ladder_floor=1)
    assert before.floor == 251
    assert apply(before, KNOWN, Params()) is before


def test_a_client_that_set_no_limit_gets_none() -> None:
    before = asking(None, size=20_000)
    assert apply(before, KNOWN, Params()) is before


def test_a_client_that_asked_for_less_than_the_floor_gets_what_it_asked_for() -> None:
    before = asking(50, size=9944)
    assert before.excess == 1 and apply(before, KNOWN, Params()) is before


def test_in_a_small_window_the_floor_is_a_16th_of_it() -> None:
    before = replace(draft([user(words(1893))], 2000, max_tokens=500), ladder_floor=100)
    assert before.floor == 100 and apply(before, KNOWN, Params()).reply == 100
    before = replace(before, ladder_floor=500)
    assert before.floor == 125 and apply(before, KNOWN, Params()) is before
    for params in (Params(), Params(floor=400)):
        assert apply(replace(before, window=Window(2026)), KNOWN, params).reply == 126


def test_where_no_step_can_do_more_the_margin_gives_way_first_then_the_floor() -> None:
    before = replace(asking(3000, floor=500), meter=WordMeter(margin=Margin(100)))

    def left(prompt: int) -> int | None:
        return squeezed(replace(before, prompt=prompt)).reply

    assert [left(9300), left(9400), left(9450), left(9500)] == [600, 500, 500, 500]
    assert [left(9501), left(9900), left(9999)] == [499, 100, 1]
    assert left(10_000) == 3000  # the prompt alone does not fit: nothing helps
    assert squeezed(replace(before, prompt=9600, reply=300)).reply == 300  # a limit under the floor is kept
    assert squeezed(replace(before, prompt=9600, reply=None)).reply is None


def test_a_request_goes_out_with_no_less_than_its_own_options_allow() -> None:
    before = replace(asking(3000, size=9693, floor=500), least=301)
    assert not before.possible and squeezed(before) is before
    assert squeezed(replace(before, least=300)).reply == 300


def test_what_the_model_itself_cannot_answer_is_not_asked_for() -> None:
    assert apply(asking(900, size=9493, max_output=300), KNOWN, Params()).reply == 300
    assert apply(asking(900, size=193, floor=100, max_output=60), KNOWN, Params()).reply == 60


def test_a_prompt_over_the_models_own_bound_costs_no_more_reply_than_it_will_in_the_end() -> None:
    before = asking(150, size=9943, floor=10, max_input=9800)
    assert apply(before, KNOWN, Params()) is before  # 200 tokens are left beside the 9,800 that may stay
    assert apply(asking(400, size=9943, floor=10, max_input=9800), KNOWN, Params()).reply == 200


def test_a_floor_under_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Params(floor=0)


@given(
    window=st.integers(1, 10**6),
    prompt=st.integers(0, 10**6),
    asked=st.integers(1, 10**6),
    margin=st.integers(0, 500),
    floor=st.integers(1, 600),
)
def test_the_negotiation_is_the_seeds(window: int, prompt: int, asked: int, margin: int, floor: int) -> None:
    granted = clamp(window, prompt, asked, margin, floor)
    assert granted >= floor and (granted <= asked or granted == floor)
    assert granted == floor or prompt + granted + margin <= window


@given(size=st.integers(8500, 10_100), limit=st.integers(1, 1500), floor=st.integers(1, 300))
def test_a_lowered_limit_fits_and_is_the_largest_that_does(size: int, limit: int, floor: int) -> None:
    before = asking(limit, size, floor)
    after = apply(before, KNOWN, Params())
    if after is not before:
        assert after.reply is not None and floor <= after.reply < limit and after.excess <= 0
        assert after.reply == limit or replace(after, reply=after.reply + 1).excess > 0
    elif before.excess > 0:
        assert replace(before, reply=min(limit, floor)).excess > 0


def test_where_the_request_does_not_fit_the_limit_takes_no_more_than_its_share() -> None:
    before = asking(9_000, size=5_000)
    assert apply(before, KNOWN, Params(share=0.25)).reply == 2_500
    assert apply(asking(9_000, size=20_000), KNOWN, Params(share=0.25)).reply == 2_500
    assert apply(asking(9_000, size=20_000), KNOWN, Params()).reply == 9_000
    fits = asking(4_000, size=5_000)
    assert apply(fits, KNOWN, Params(share=0.25)) is fits
    with pytest.raises(ValueError, match="share must be a share over 0"):
        Params(share=0)
