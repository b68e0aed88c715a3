"""What usage showed of media is remembered for the tenant and the model that it was shown for."""

from __future__ import annotations

import pytest

from proxy.cache.media_costs import MAX_MEDIA, MediaCosts
from proxy.model.ports import Medium

A, B = b"a", b"b"
UNKNOWN = [Medium(1, 1_000, False), Medium(2, 3_000, False)]


def known(costs: MediaCosts, *digests: int, tenant: bytes = A, model: str = "m") -> list[int | None]:
    find = costs.known(tenant, model)
    return [None if find is None else find(digest) for digest in digests]


def test_usage_less_the_rest_is_shared_by_what_the_parts_usually_cost() -> None:
    costs = MediaCosts()
    assert not costs.filled and known(costs, 1) == [None]
    costs.learn(A, "m", UNKNOWN, counted=4_500, usage=8_500)
    assert costs.filled and known(costs, 1, 2) == [2_000, 6_000]


def test_another_tenant_and_another_model_learn_nothing() -> None:
    costs = MediaCosts()
    costs.learn(A, "m", UNKNOWN, 4_500, 8_500)
    assert known(costs, 1, tenant=B) == known(costs, 1, model="n") == [None]


def test_what_known_parts_leave_is_that_of_the_others() -> None:
    costs = MediaCosts()
    costs.learn(A, "m", [Medium(1, 2_000, True), Medium(2, 3_000, False)], counted=5_500, usage=3_100)
    assert known(costs, 1, 2) == [None, 600]


def test_known_parts_follow_usage_where_it_has_changed() -> None:
    costs, both = MediaCosts(), [Medium(1, 2_000, True), Medium(2, 6_000, True)]
    costs.learn(A, "m", both, counted=8_500, usage=8_550)
    assert not costs.filled
    costs.learn(A, "m", both, counted=8_500, usage=4_500)
    assert known(costs, 1, 2) == [1_000, 3_000]


@pytest.mark.parametrize("usage", [0, 499])
def test_no_part_costs_less_than_nothing(usage: int) -> None:
    costs = MediaCosts()
    costs.learn(A, "m", UNKNOWN, 4_500, usage)
    assert known(costs, 1, 2) == [0, 0]


def test_where_usage_has_more_that_the_body_does_not_show_nothing_is_learned() -> None:
    costs = MediaCosts()
    costs.learn(A, "m", [Medium(0, 1_000, False)], 1_500, 40_000)
    assert not costs.filled


def test_a_tenant_has_a_bounded_number_of_media() -> None:
    costs = MediaCosts()
    for digest in range(1, 3 * MAX_MEDIA):
        costs.learn(A, "m", [Medium(digest, 10, False)], 20, 30)
    find = costs.known(A, "m")
    assert find is not None and sum(find(digest) is not None for digest in range(1, 3 * MAX_MEDIA)) <= MAX_MEDIA
