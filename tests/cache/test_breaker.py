from __future__ import annotations

from dataclasses import dataclass

from proxy.cache.breaker import INITIAL_PAUSE_S, MAX_PAUSE_S, Breaker


@dataclass(slots=True)
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(clock, lambda low, high: 1.0), clock


def opened(breaker: Breaker, clock: Clock) -> float:
    """Fails after the pause is over; the new pause in seconds."""
    clock.now += breaker.remaining
    breaker.record_failure()
    return breaker.remaining


def test_it_begins_closed() -> None:
    breaker, _ = made()
    assert breaker.closed
    assert breaker.remaining == 0


def test_a_failure_opens_it_for_a_while() -> None:
    breaker, clock = made()
    breaker.record_failure()
    assert not breaker.closed
    assert breaker.remaining == INITIAL_PAUSE_S
    clock.now += INITIAL_PAUSE_S
    assert breaker.remaining == 0
    assert not breaker.closed


def test_each_further_failure_doubles_the_pause_up_to_the_longest() -> None:
    breaker, clock = made()
    assert [opened(breaker, clock) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, MAX_PAUSE_S, MAX_PAUSE_S]


def test_failures_of_what_was_asked_before_do_not_lengthen_the_pause() -> None:
    breaker, _ = made()
    for _ in range(10):
        breaker.record_failure()
    assert breaker.remaining == INITIAL_PAUSE_S


def test_a_probe_closes_it_but_the_next_pause_is_longer() -> None:
    breaker, clock = made()
    opened(breaker, clock)
    clock.now += breaker.remaining
    breaker.close()
    assert breaker.closed
    assert opened(breaker, clock) == 2 * INITIAL_PAUSE_S


def test_work_done_makes_the_next_pause_short_again() -> None:
    breaker, clock = made()
    for _ in range(3):
        opened(breaker, clock)
    breaker.record_success()
    assert breaker.closed
    assert opened(breaker, clock) == INITIAL_PAUSE_S


def test_replicas_do_not_come_back_all_at_once() -> None:
    clock = Clock()
    pauses = set()
    for _ in range(20):
        breaker = Breaker(clock)
        breaker.record_failure()
        pauses.add(breaker.remaining)
    assert len(pauses) > 1
    assert all(0.8 * INITIAL_PAUSE_S <= pause <= 1.2 * INITIAL_PAUSE_S for pause in pauses)
