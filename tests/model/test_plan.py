"""The vocabulary: what its values say of themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model.limits import Margin, Window
from proxy.model.plan import Drop, Ladder, LadderStep, Plan
from proxy.model.structs import replace
from tests.makers import WordMeter, draft, tool_round, user, words


def test_a_margin_grows_with_the_prompt() -> None:
    assert Margin(100).of(5000) == 100
    assert Margin(100, 0.1).of(5001) == 100 + 501


def test_a_block_costs_what_its_messages_cost() -> None:
    call, one = draft([user("a b"), *tool_round("c", "d e f")], 100).blocks[0], draft(tool_round("c", "d"), 100).blocks
    assert call.tokens == 6 and not call.has_results
    assert one[0].tokens == 13 + 5 and one[0].has_results


def test_the_reserve_is_what_was_asked_for_or_the_default_however_many_answers() -> None:
    found = draft([user("a")], 9000, max_tokens=50, n=3)
    assert (found.reserve, found.least_reply) == (50, 50)
    found = draft([user("a")], 9000, n=2)
    assert (found.reserve, found.least_reply) == (3000, 500)


@pytest.mark.parametrize(
    ("window", "floor", "bases"),
    [
        (128_000, 500, (100, 150, 500)),
        (8_192, 500, (100, 150, 500)),
        (8_000, 500, (100, 150, 500)),
        (7_999, 499, (100, 150, 319)),
        (4_096, 256, (100, 150, 163)),
        (2_000, 125, (80, 80, 80)),
        (300, 18, (12, 12, 12)),
        (10, 1, (0, 0, 0)),
    ],
)
def test_floor_and_margin_shrink_with_small_windows_only(window: int, floor: int, bases: tuple[int, ...]) -> None:
    found = Window(window)
    assert (found.floor(500), found.floor(1)) == (floor, 1)
    assert tuple(found.margin(Margin(base, 0.1)).base for base in (100, 150, 500)) == bases
    assert found.margin(Margin(500, 0.1)).share == 0.1 and found.margin(Margin(0)) == Margin(0)


def test_what_only_floor_or_margin_forbid_is_possible() -> None:
    found = draft([user(words(1900))], 2000, WordMeter(margin=Margin(100)))
    assert found.excess > 0 and found.possible
    assert draft([user(words(1992))], 2000).possible and not draft([user(words(1993))], 2000).possible
    assert not replace(found, window=Window(4000, 1906)).possible
    assert not replace(found, least=94).possible and replace(found, least=94, reply=90).possible


@pytest.mark.parametrize(
    ("prompt", "limit", "load"),
    [(893, None, 1.0), (1868, None, 1.0), (2868, None, 1.5), (893, 1100, 1.0), (893, 2100, 1.5), (1993, 1, 1.0005)],
)
def test_a_reply_without_a_limit_counts_no_more_than_the_prompt_leaves(
    prompt: int, limit: int | None, load: float
) -> None:
    found = replace(draft([user(words(prompt))], 2000), reply=limit)
    assert found.load == load and (load > 1) is (found.excess > 0)


def test_load_compares_prompt_and_reserve_with_the_window() -> None:
    assert draft([user(words(893))], 2000, max_tokens=100).load == 0.5


def test_excess_is_what_does_not_fit_to_the_token() -> None:
    margin = WordMeter(margin=Margin(40, 0.1))
    found = draft([user(words(93))], 250, margin, max_tokens=130)
    assert (found.prompt, found.margin, found.excess) == (100, 20, 0)
    assert replace(found, reply=131).excess == 1
    assert replace(found, window=Window(10_000, 109)).excess == 1  # a share of the prompt may be missed by the count
    assert replace(found, window=Window(10_000, 110)).excess == 0
    assert replace(found, window=Window(100, 110)).excess == 144


def test_a_separate_reply_counts_nowhere_and_a_cut_leaves_it_the_default() -> None:
    found = draft([user(words(93))], 2000, max_tokens=60_000)
    separate = replace(found, window=Window(2000, separate=True), default_reserve=300, ladder_floor=50)
    assert (separate.excess, separate.load, separate.possible) == (100 - 2000, 0.05, True)
    assert (separate.held, separate.room) == (300, 1700) and found.excess > 0
    assert not replace(separate, window=Window(99, separate=True)).possible


def test_the_room_is_the_largest_prompt_that_fits() -> None:
    assert draft([user("a")], 1000, max_tokens=100).room == 900
    assert draft([user("a")], 1000, WordMeter(margin=Margin(15, 0.25)), max_tokens=360).room == 500
    bounded = replace(draft([user("a")], 1000, max_tokens=100), window=Window(1000, 300))
    assert bounded.room == 300


def test_of_a_reserve_over_half_the_window_only_half_is_held() -> None:
    found = draft([user("a")], 4000, max_tokens=4000)
    assert (found.held, found.room) == (2000, 2000)
    assert draft([user("a")], 4000).held == 2000
    thinking = {"type": "enabled", "budget_tokens": 3000}
    assert draft([user("a")], 4000, thinking=thinking).held == 3001  # but never less than the floor
    assert replace(draft([user("a")], 8000), default_reserve=0).held == 500
    assert replace(draft([user("a")], 8000, max_tokens=50), default_reserve=0).held == 50


@given(
    size=st.integers(0, 3000),
    window=st.integers(1, 4000),
    ask=st.none() | st.integers(1, 4000),
    base=st.integers(0, 100),
    share=st.sampled_from([0.0, 0.05, 0.07, 0.1, 0.3]),
    bound=st.none() | st.integers(1, 4000),
)
def test_a_prompt_in_its_room_fits_beside_what_is_held(
    size: int, window: int, ask: int | None, base: int, share: float, bound: int | None
) -> None:
    found = draft([user("a")], window, WordMeter(margin=Margin(base, share)), max_tokens=ask)
    found = replace(found, prompt=min(size, found.room), window=Window(window, bound))
    found = replace(found, prompt=min(size, found.room))
    if found.prompt > 0:
        reply = None if ask is None else min(ask, found.held)
        assert replace(found, reply=reply).excess <= 1  # a float may round the margin up by one


def test_with_other_blocks_the_prompt_is_counted_and_drops_add_up() -> None:
    found = draft([user("a"), user("b c")], 1000)
    less = found.with_blocks(found.blocks[1:], [Drop(0, "why")])
    assert (found.prompt, less.prompt) == (3 + 5 + 6, 3 + 6)
    assert less.with_blocks([], [Drop(1, "too")]).drops == (Drop(0, "why"), Drop(1, "too"))
    assert [m.index for m in less.messages] == [1]


def test_messages_are_counted_anew_by_the_drafts_own_meter() -> None:
    found = draft([user("a b")], 1000)
    dear = replace(found, meter=WordMeter(ratio=2.0))
    assert [m.tokens for m in dear.recount(list(found.messages))] == [12]


def test_the_least_threshold_of_a_ladder_is_the_lowest_at() -> None:
    def same(found: Any, facts: Any) -> Any:
        return found

    assert Ladder("none", (LadderStep("a", same),)).least_at == math.inf
    assert (
        Ladder("some", (LadderStep("a", same, 0.9), LadderStep("b", same), LadderStep("c", same, 0.8))).least_at == 0.8
    )


def test_a_plan_fits_where_its_draft_does_or_the_upstream_shall_tell() -> None:
    found = draft([user(words(900))], 500)
    assert not Plan(found, found).fits and Plan(found, found, trusting=True).fits
    assert not Plan(found, found).changed
