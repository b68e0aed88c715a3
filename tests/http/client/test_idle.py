"""Which idle connection gets the next request: none that has not been proven, and none that is about to be closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.http.client.idle import LONGEST_IDLE_SECONDS, MIN_IDLE_SECONDS, REUSES_AFTER_FAILURE, SAFE_AGE_SHARE, Idle


@dataclass(eq=False)
class Kept:
    """As much of a connection as is looked at."""

    idle_since: float = 0.0
    usable: bool = True


def idle(*connections: Kept, proofs: int = 0) -> Any:
    made: Any = Idle()
    for _ in range(proofs):
        made.record_reuse(Kept())
    for connection in connections:
        made.put(connection)
    return made


def test_an_unproven_connection_rests_before_a_post() -> None:
    pool = idle(Kept())
    assert pool.take(MIN_IDLE_SECONDS / 2, False) is None
    assert len(pool) == 1
    assert pool.take(MIN_IDLE_SECONDS, False) is not None
    assert len(pool) == 0


def test_what_may_be_repeated_need_not_wait() -> None:
    assert idle(Kept()).take(0.0, True) is not None


def test_a_trusted_upstream_gives_the_newest_at_once_and_a_doubtful_one_the_oldest() -> None:
    old, new = Kept(0.0), Kept(1.0)
    assert idle(old, new, proofs=1).take(1.0, False) is new
    assert idle(old, new).take(1.0, False) is old


def test_what_can_be_read_is_left_to_the_event_loop() -> None:
    good, bad = Kept(), Kept(usable=False)
    pool = idle(good, bad, proofs=1)
    assert pool.take(1.0, False) is good
    assert pool.take(1.0, False) is None
    assert pool.connections == (bad,)


def test_one_that_is_closed_behind_its_answer_takes_the_trust_from_all() -> None:
    closed, other = Kept(), Kept()
    pool = idle(closed, other, proofs=1)
    pool.record_close(closed, MIN_IDLE_SECONDS / 2)
    assert pool.take(MIN_IDLE_SECONDS / 2, False) is None
    for _ in range(REUSES_AFTER_FAILURE):
        pool.record_reuse(closed)
    assert pool.take(MIN_IDLE_SECONDS / 2, False) is other


def test_a_request_that_was_lost_takes_the_trust_too() -> None:
    pool = idle(Kept(), proofs=1)
    pool.record_failed_reuse()
    assert pool.take(0.0, False) is None
    assert pool.take(MIN_IDLE_SECONDS, False) is None
    assert pool.take(2 * MIN_IDLE_SECONDS, False) is not None


def test_until_a_reuse_succeeds_one_post_at_a_time_tries_it() -> None:
    first, second, third = Kept(), Kept(), Kept()
    pool = idle(first, second, third)
    assert pool.take(1.0, False) is first
    assert pool.take(1.0, False) is None
    assert pool.take(1.0, True) is second  # it may be repeated
    pool.end_trial(second)
    assert pool.take(1.0, False) is None
    pool.end_trial(first)
    assert pool.take(1.0, False) is third


def test_after_a_success_posts_do_not_wait_for_each_other_and_after_a_failure_they_do_again() -> None:
    first, second, third, fourth = (Kept() for _ in range(4))
    pool = idle(first, second, third, fourth, proofs=1)
    assert {pool.take(1.0, False), pool.take(1.0, False)} == {third, fourth}
    pool.record_failed_reuse()
    assert pool.take(1.0, False) is first
    assert pool.take(1.0, False) is None


def test_a_close_that_comes_late_behind_an_answer_makes_others_rest_for_longer() -> None:
    closed, other = Kept(), Kept()
    pool = idle(closed, other)
    pool.record_close(closed, 2 * MIN_IDLE_SECONDS)
    pool.expire(4 * MIN_IDLE_SECONDS, 50.0)  # the other one outlived it: its age alone was not the reason
    assert pool.take(3 * MIN_IDLE_SECONDS, False) is None
    assert pool.take(4 * MIN_IDLE_SECONDS, False) is other


def test_a_close_for_its_age_makes_none_rest_for_longer() -> None:
    closed, other = Kept(), Kept(5.0)
    pool = idle(closed, other)
    pool.record_close(closed, 5.0)
    assert pool.take(5.0 + 2 * MIN_IDLE_SECONDS, False) is other


def test_an_upstream_that_is_trusted_again_begins_anew() -> None:
    pool = idle()
    pool.record_failed_reuse()
    for _ in range(REUSES_AFTER_FAILURE):
        pool.record_reuse(Kept())
    pool.record_failed_reuse()
    pool.put(Kept())
    assert pool.take(2 * MIN_IDLE_SECONDS, False) is not None


def test_each_failure_doubles_the_rest_up_to_a_bound() -> None:
    pool = idle(Kept())
    for _ in range(20):
        pool.record_failed_reuse()
    assert pool.take(LONGEST_IDLE_SECONDS / 2, False) is None
    assert pool.take(LONGEST_IDLE_SECONDS, False) is not None


def test_one_that_is_none_of_these_teaches_nothing() -> None:
    pool = idle(Kept(), proofs=1)
    pool.record_close(Kept(), 0.0)
    assert pool.take(0.0, False) is not None


def test_the_age_at_which_it_closes_is_kept_away_from() -> None:
    closed, other = Kept(), Kept()
    pool = idle(closed, other, proofs=1)
    pool.record_close(closed, 5.0)
    assert pool.take(5.0 * SAFE_AGE_SHARE + 0.1, False) is None
    assert pool.take(5.0 * SAFE_AGE_SHARE + 0.1, True) is other  # it may be repeated


def test_an_age_that_others_outlive_was_no_rule() -> None:
    closed, other = Kept(), Kept()
    pool = idle(closed, other, proofs=1)
    pool.record_close(closed, 5.0)
    assert pool.expire(6.0, 50.0) == []
    assert pool.take(6.0, False) is None
    assert pool.expire(7.0, 50.0) == []
    assert pool.take(7.0, False) is other


def test_what_waited_too_long_is_let_go() -> None:
    old, new = Kept(0.0), Kept(1.0)
    pool = idle(old, new)
    assert pool.expire(10.0, 10.0) == [old]
    assert pool.connections == (new,)
