"""The stages of a budget, and the windows of requests in them."""

from __future__ import annotations

import pytest

from proxy.model.budget import NANO, STAGES, Budget, Over, Unit


def test_a_stage_begins_at_the_soft_share_and_after_each_third_of_the_rest() -> None:
    budget = Budget("b", 1_000, soft=0.7)
    assert budget.marks == (700, 800, 900)
    assert [budget.stage(used) for used in (0, 699, 700, 799, 800, 900, 5_000)] == [0, 0, 1, 1, 2, 3, 3]


def test_with_a_soft_share_of_one_all_stages_begin_at_the_end() -> None:
    budget = Budget("b", 1_000, soft=1.0)
    assert [budget.stage(used) for used in (999, 1_000)] == [0, STAGES]


def test_the_window_sinks_to_the_smallest_where_the_budget_fits_requests() -> None:
    budget = Budget("b", 1_000, window=16_000, over=Over.FIT)
    assert [budget.window_in(stage) for stage in range(STAGES + 1)] == [None, 64_000, 32_000, 16_000]


@pytest.mark.parametrize("over", [Over.OBSERVE, Over.REFUSE])
def test_the_window_stays_where_the_budget_does_not_fit_requests(over: Over) -> None:
    assert [Budget("b", 1_000, over=over).window_in(stage) for stage in range(4)] == [None] * 4


def test_an_amount_is_told_in_the_budgets_unit() -> None:
    assert Budget("b", 1).text(12_345) == "12,345 tokens"
    assert Budget("b", 1, Unit.USD).text(3 * NANO // 2) == "$1.50"
