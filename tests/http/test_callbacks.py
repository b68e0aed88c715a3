"""Events of the transport: reported through its user's callback, and not too often."""

from __future__ import annotations

from proxy.http.callbacks import RateLimitedEvent


def test_a_frequent_event_is_reported_at_intervals_with_how_many_were_left_out() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    now = 100.0

    def report(message: str, **figures: object) -> None:
        events.append((message, figures))

    happened = RateLimitedEvent(report, "full", seconds=10, clock=lambda: now)
    for size in range(3):
        happened(size=size)
    assert events == [("full", {"size": 0})]
    now += 10
    happened(size=3)
    assert events[1:] == [("full", {"size": 3, "suppressed": 2})]
