"""The one inequality, floors and margins of small windows, and corrections far from the prompts that taught them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model.limits import (
    ANY_SIZE,
    NOTHING_LEARNED,
    REACH,
    Correction,
    Corrections,
    CountUnit,
    LearnedLimits,
    Margin,
    Shape,
    Window,
)


@given(st.integers(1, 100_000), st.integers(0, 100_000), st.integers(0, 50_000), st.floats(0, 0.5))
def test_what_fits_has_prompt_reply_and_margin_within_the_window(
    tokens: int, prompt: int, reply: int, share: float
) -> None:
    window, margin = Window(tokens), Margin(100, share)
    together = prompt + reply + window.margin(margin).of(prompt)
    assert window.fits(prompt, reply, margin) == (together <= tokens)
    assert window.excess(prompt, reply, margin) == together - tokens


def test_the_prompt_alone_is_bounded_too_without_the_base_of_the_margin() -> None:
    window = Window(10_000, max_input=1_000)
    assert window.fits(1_000, 500, Margin(100)) and not window.fits(1_001, 500, Margin(100))
    assert window.excess(1_000, 500, Margin(100, 0.1)) == 100


def test_a_reply_of_its_own_counts_nowhere() -> None:
    window = Window(1_000, separate=True)
    assert window.fits(960, 10_000, Margin(40)) and window.counted(500) == 0 and window.load(500, 9_000) == 0.5


@pytest.mark.parametrize(("tokens", "floor"), [(8_000, 500), (7_999, 499), (1_600, 100), (1, 1)])
def test_the_floor_falls_with_small_windows(tokens: int, floor: int) -> None:
    assert Window(tokens).floor(500) == floor


@pytest.mark.parametrize(("tokens", "base"), [(8_000, 100), (2_500, 100), (2_499, 99), (250, 10)])
def test_the_margin_falls_with_small_windows_and_keeps_its_share(tokens: int, base: int) -> None:
    assert Window(tokens).margin(Margin(100, 0.25)) == Margin(base, 0.25)


def test_without_a_limit_the_reply_takes_what_the_prompt_leaves() -> None:
    window = Window(10_000)
    assert window.load_without_limit(6_000, 3_000, 500) == 0.9
    assert window.load_without_limit(9_000, 3_000, 500) == 1.0
    assert window.load_without_limit(9_900, 3_000, 500) == 1.04


def test_a_correction_is_doubted_beyond_the_prompts_that_taught_it_and_ends_far_from_them() -> None:
    taught = Correction(0.8, 0.02, 30, taught=1_000)
    near, far, gone = taught.at(1_100), taught.at(REACH * 1_000), taught.at(REACH * 1_000 + 1)
    assert near.ratio == far.ratio == 0.8 and near.share == 0.02
    assert far.share is not None and far.share > 0.02 and far.doubt(1.0) > 0 == near.doubt(1.0)
    assert gone.ratio is None and gone.offset == 30 and not gone.sure
    assert taught.nearest == 1_100 and near.at(10**6) is near


def test_an_offset_of_exact_counts_holds_for_every_prompt() -> None:
    exact = Correction(None, 0.0, 12, taught=100)
    assert exact.at(10**9) is exact and exact.nearest == ANY_SIZE


def test_shapes_are_corrected_apart() -> None:
    both = Corrections(text=Correction(0.9, taught=100), tools=Correction(1.2))
    assert both.of(Shape.TOOLS) is both.tools and both.nearest == 110
    far = both.at(10_000)
    assert far.tools is both.tools and far.text is not None and far.text.ratio is None
    assert Corrections(tools=both.tools).at(10_000).of(Shape.TEXT) is None


def test_a_count_leads_back_to_the_tokens_of_the_encoding() -> None:
    assert CountUnit(1.25, 7).encoded(round(1.25 * 400) + 7) == 400


def test_what_was_learned_of_other_windows_does_not_hold_where_one_is_requested() -> None:
    learned = LearnedLimits(window=4_096, max_input=4_000, supposed=True, refused=5_000, alternates=True, scale=1.1)
    there = learned.where_requested(8_192)
    assert (there.window, there.max_input, there.supposed, there.refused) == (None, None, False, 0)
    assert there.requested == 8_192 and there.alternates and there.scale == 1.1
    assert learned.where_requested(None) is learned
    assert learned.bounds and there.bounds and there.limits
    assert not NOTHING_LEARNED.limits and LearnedLimits(scale=1.1).limits and not LearnedLimits(scale=1.1).bounds


def test_an_effective_window_bounds_the_prompt_alone() -> None:
    window = Window(10_000, effective=2_000)
    assert window.fits(2_000, 7_900, Margin(100)) and not window.fits(2_001, 1, Margin(100))
    assert Window(10_000, 3_000, effective=2_000).most_input == 2_000 == Window(10_000, 2_000).most_input
    assert Window(10_000).most_input is None
