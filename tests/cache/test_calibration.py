"""What usage teaches of counts: steady for one tenant, and hardly moved by one tenant for others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.calibration import (
    MARGINS,
    MAX_DEVIATION,
    MAX_SAMPLES,
    MAX_VOTES,
    MIN_SAMPLES,
    RATIO_HOLD,
    RATIO_STEP,
    Calibration,
    Consensus,
    pack,
    pack_votes,
    unpack,
    unpack_votes,
)
from proxy.model.limits import Correction

ratios = st.floats(0.1, 10)


def taught(*ratios: float) -> Calibration:
    """What these answers taught, one after the other."""
    found = Calibration()
    for ratio in ratios:
        found = found.with_sample(ratio)
    return found


def tenant(number: int) -> bytes:
    return number.to_bytes(8, "big")


def agreed(*ratios: float) -> Consensus:
    """What so many tenants agree on, each of whom was taught one ratio."""
    found = Consensus()
    for number, ratio in enumerate(ratios):
        found = found.with_vote(tenant(number), taught(ratio))
    return found


def test_nothing_is_known_before_the_first_answer() -> None:
    assert (Calibration().ratio, Calibration().share, Consensus().ratio(1.2)) == (None, None, None)


def test_the_first_answer_calibrates_and_the_familys_margin_holds() -> None:
    assert (taught(1.104).ratio, taught(1.104).share) == (1.10, None)
    assert taught(*[1.1] * (MIN_SAMPLES - 1)).share is None and taught(*[1.1] * MIN_SAMPLES).share is not None


def test_one_odd_answer_moves_no_ratio() -> None:
    assert taught(*[1.1] * 5, 6.0).ratio == 1.1
    assert taught(*[1.1] * 12, *[0.3] * 11).ratio == 1.1


def test_a_model_that_changed_is_found_again() -> None:
    assert taught(*[1.1] * 100, *[1.5] * (MAX_SAMPLES // 2 + 1)).ratio == 1.5


def test_a_ratio_stays_until_the_truth_is_several_steps_away() -> None:
    found = taught(*[1.1] * 30)
    for wobble in (1.159, 1.045, 1.11, 1.155, 1.041):
        for _ in range(MAX_SAMPLES):
            found = found.with_sample(wobble)
        assert found.ratio == 1.1
    for _ in range(MAX_SAMPLES):
        found = found.with_sample(1.161)
    assert found.ratio == 1.16


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 0.02), (0.005, 0.02), (0.02, 0.05), (0.05, 0.10), (0.1, 0.15), (0.2, 0.25), (0.5, 0.25)]
)
def test_R7_the_margin_follows_from_the_errors_that_were_seen(error: float, share: float) -> None:
    assert taught(*[1.0, 1.0, 1.0 + error, 1.0] * 3).share == share


def test_the_margin_rises_at_once_and_falls_where_it_is_far_too_large() -> None:
    found = taught(*[1.0] * MIN_SAMPLES)
    assert found.share == 0.02
    found = found.with_sample(1.05)
    assert found.share == 0.10
    for _ in range(MAX_SAMPLES):
        found = found.with_sample(1.0)
    assert found.share == 0.02
    assert taught(*[1.0] * 20, 1.03, 1.03, *[1.0] * 22).share == 0.05  # one row is not worth another cut


def test_the_familys_figures_stay_where_they_are_good_enough() -> None:
    family, found = Correction(1.07, 0.10), Calibration()
    for ratio in (1.04, 1.11, 1.08, 1.02, 1.12, 1.05) * 10:
        found = found.with_sample(ratio, family)
        assert (found.ratio, found.share) == (1.07, 0.10)
    for _ in range(MAX_SAMPLES):
        found = found.with_sample(1.3, family)
    assert (found.ratio, found.share) == (1.3, 0.02)


def test_a_familys_margin_between_two_rows_rises_and_falls_as_they_do() -> None:
    family, found = Correction(1.0, 0.12), Calibration()
    for _ in range(MIN_SAMPLES):
        found = found.with_sample(1.05, family)
    assert found.share == 0.12
    assert found.with_sample(1.1, family).share == 0.15
    for _ in range(MAX_SAMPLES):
        found = found.with_sample(1.03, family)
    assert found.share == 0.05


def test_one_of_many_answers_that_is_far_above_is_left_out() -> None:
    assert taught(*[1.0] * 20, 3.0).share == 0.02
    assert taught(*[1.0] * 20, 3.0, 3.0).share == 0.25


@given(st.lists(ratios, min_size=1, max_size=60))
def test_figures_stay_within_what_was_seen(seen: list[float]) -> None:
    found = taught(*seen)
    latest = seen[-MAX_SAMPLES:]
    assert (
        found.ratio is not None
        and min(latest) - RATIO_HOLD - RATIO_STEP <= found.ratio <= max(latest) + RATIO_HOLD + RATIO_STEP
    )
    assert found.share is None or found.share in MARGINS
    assert len(found.latest) <= MAX_SAMPLES and found.count == len(seen)


@given(st.lists(st.floats(0.9, 1.1), min_size=40, max_size=80))
def test_what_is_like_what_was_seen_is_counted_within_the_margin(seen: list[float]) -> None:
    found = taught(*seen)
    assert found.ratio is not None and found.share is not None
    beyond = [ratio for ratio in found.latest if ratio > found.ratio * (1 + found.share)]
    assert len(beyond) <= MAX_SAMPLES // 16


def test_of_two_replicas_words_that_of_more_answers_holds() -> None:
    few, many = taught(1.5), taught(1.1, 1.1)
    assert few.merged(many) is many and many.merged(few) is many and many.merged(many) is many


@given(st.lists(ratios, max_size=60))
def test_a_calibration_survives_its_bytes(seen: list[float]) -> None:
    found = taught(*seen)
    assert unpack(pack(found)) == found and len(pack(found)) <= 300


@pytest.mark.parametrize(
    "foreign", [b"", b"\xc1", [], [[1.0] * 25, 1, 1.0, None], [[0.0], 1, 1.0, None], [[], -1, None, 7.0], 5]
)
def test_what_is_no_record_is_a_miss(foreign: object) -> None:
    payload = foreign if isinstance(foreign, bytes) else msgspec.msgpack.encode(foreign)
    assert unpack(payload) is None and unpack_votes(payload) is None


# What tenants agree on.


@pytest.mark.parametrize("count", range(1, 6))
def test_R7_a_few_tenants_change_nothing_for_others(count: int) -> None:
    assert agreed(*[1.5] * count).ratio(1.2) is None


def test_many_tenants_are_believed() -> None:
    assert agreed(*[1.1] * 6).ratio(1.2) == 1.1
    assert agreed(*[1.1] * 7, *[1.3] * 5).ratio(1.2) == 1.1
    assert agreed(1.0, 1.1, 1.12, 1.1, 1.3, 9.0).ratio(1.2) == pytest.approx(1.2)


def test_no_agreement_is_far_from_the_familys_row() -> None:
    assert agreed(*[9.0] * 20).ratio(1.0) == pytest.approx(1 + MAX_DEVIATION)
    assert agreed(*[0.1] * 20).ratio(1.0) == pytest.approx(1 - MAX_DEVIATION)


@given(honest=st.lists(st.floats(1.0, 1.2), min_size=9, max_size=40), liar=ratios)
def test_R7_one_tenant_moves_others_no_further_than_the_next_tenants_vote(honest: list[float], liar: float) -> None:
    voted = agreed(*honest)
    with_liar = voted.with_vote(tenant(999), taught(*[liar] * 500)).ratio(1.1)
    assert with_liar is not None and 1.0 - 1e-9 <= with_liar <= 1.2 + 1e-9


def test_a_tenant_has_one_vote_however_often_it_is_answered() -> None:
    found, known = Consensus(), Calibration()
    for _ in range(500):
        known = known.with_sample(1.5)
        found = found.with_vote(tenant(1), known)
    assert len(found.votes) == 1 and found.with_vote(tenant(1), known) is found
    assert found.with_vote(tenant(2), Calibration()) is found
    for _ in range(MAX_SAMPLES):
        known = known.with_sample(1.1)
    assert found.with_vote(tenant(1), known).votes == {tenant(1): (1.1, 524)}


def test_where_there_are_too_many_the_votes_of_the_fewest_answers_go() -> None:
    found = Consensus({tenant(n): (1.1, 100) for n in range(MAX_VOTES)})
    assert found.with_vote(tenant(999), taught(3.0)) is found
    after = found.with_vote(tenant(999), taught(*[3.0] * 101))
    assert tenant(999) in after.votes and len(after.votes) == MAX_VOTES


votes = st.dictionaries(st.integers(0, 80).map(tenant), st.tuples(ratios, st.integers(1, 9)), max_size=MAX_VOTES)


@given(votes, votes)
def test_replicas_come_to_the_same_votes_of_each_tenant(
    ours: dict[bytes, tuple[float, int]], theirs: dict[bytes, tuple[float, int]]
) -> None:
    one, two = Consensus(ours).merged(Consensus(theirs)), Consensus(theirs).merged(Consensus(ours))
    assert {key: count for key, (_, count) in one.votes.items()} == {
        key: count for key, (_, count) in two.votes.items()
    }
    assert len(one.votes) <= MAX_VOTES and one.merged(one) is one


@given(votes)
def test_an_agreement_survives_its_bytes(given_votes: dict[bytes, tuple[float, int]]) -> None:
    assert unpack_votes(pack_votes(Consensus(given_votes))) == Consensus(given_votes)
    assert len(pack_votes(Consensus(given_votes))) <= 2_048
