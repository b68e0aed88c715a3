"""What was used in the last minutes, by caller."""

from __future__ import annotations

import random
from typing import Any

from proxy.fit.money import Prices, Rates
from proxy.model.outcome import Outcome, Usage
from proxy.observe.metrics import periods
from proxy.observe.metrics.exposition import Metrics
from proxy.observe.metrics.overview import Values
from proxy.observe.metrics.periods import FIELDS, MINUTES, NOTHING, READ, Noted, Sums, added, difference, sums_of

PRICES = Prices(Rates(2e-6, 8e-6))


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def outcome(caller: str = "", prompt: int = 100, sent: int = 100, result: str = "passed", **more: Any) -> Outcome:
    loads = {"load_before": prompt / 1_000, "load_after": sent / 1_000}
    usage = Usage(sent, 10)
    return Outcome(
        "chat",
        result,
        200,
        model="gpt-4o",
        prompt=prompt,
        prompt_sent=sent,
        caller=caller,
        usage=usage,
        **{**loads, **more},
    )


def made() -> tuple[Metrics, Noted, Clock]:
    metrics = Metrics(lambda model: model, prices=lambda model, upstream: PRICES, by_caller=True)
    clock = Clock()
    return metrics, Noted(lambda: sums_of(Values(metrics.own(READ), metrics.by_caller)), clock), clock


def told(noted: Noted, period: str = "5m") -> dict[str, Any]:
    found: dict[str, Any] = periods.overview([noted.answer()], NOTHING, 0.0)[period]
    return found


def test_what_came_in_the_last_minutes_is_told_by_caller_and_what_came_before_is_not() -> None:
    metrics, noted, clock = made()
    for _ in range(40):  # twenty minutes, in which team-a asks
        metrics.observe(outcome("team-a", 900))
        clock.now += 30
        noted.note()
    metrics.observe(outcome("team-b", 2_000, 800, "fitted"))
    found = told(noted)
    assert 300 <= found["seconds"] <= 330
    assert [(one["caller"], one["requests"], one["prompt"]) for one in found["callers"]] == [
        ("team-a", 10, 9_000),
        ("team-b", 1, 2_000),
    ]
    assert (found["requests"], found["cut"], found["saved"], found["reply"]) == (11, 1, 10 * 800 + 1_200, 110)
    assert sum(found["load"]["before"]) == sum(found["load"]["after"]) == 11
    hour = told(noted, "1h")
    assert (hour["requests"], hour["seconds"]) == (41, 1_200)


def test_what_a_caller_costs_is_told_in_each_period() -> None:
    metrics, noted, _ = made()
    metrics.observe(outcome("team-a", 1_000, 1_000))
    cost = told(noted)["callers"][0]["cost"]
    assert cost == round(1_000 * 2e-6 + 10 * 8e-6, 8)


def test_without_names_of_callers_one_stands_for_all() -> None:
    metrics = Metrics(lambda model: model)
    noted = Noted(lambda: sums_of(Values(metrics.own(READ), metrics.by_caller)), Clock())
    metrics.observe(outcome())
    assert [one["caller"] for one in told(noted)["callers"]] == [""]


def test_endpoints_that_are_not_fitted_count_as_requests_alone() -> None:
    metrics, noted, _ = made()
    metrics.observe(Outcome("passthrough", "passed", 200))
    found = told(noted)
    assert (found["requests"], found["measured"]) == (1, 0)


def test_each_minute_of_the_last_hour_has_its_figures() -> None:
    metrics, noted, clock = made()
    for minute in range(3):
        for _ in range(minute + 1):
            metrics.observe(outcome("a", 100, 50))
        clock.now += 60
        noted.note()
    minutes = periods.overview([noted.answer()], NOTHING, 0.0)["minutes"]
    assert len(minutes) == MINUTES
    assert minutes[-4:] == [[0, 0, 0], [1, 100, 50], [2, 200, 100], [3, 300, 150]]
    assert sum(line[0] for line in minutes) == 6


def test_workers_are_added_up() -> None:
    found = []
    for name in ("team-a", "team-b", "team-a"):
        metrics, noted, _ = made()
        metrics.observe(outcome(name))
        found.append(noted.answer())
    whole = periods.overview(found, NOTHING, 0.0)
    assert {one["caller"]: one["requests"] for one in whole["5m"]["callers"]} == {"team-a": 2, "team-b": 1}
    assert whole["minutes"][-1] == [3, 300, 300]


def test_sums_and_differences_agree_whatever_the_callers() -> None:
    drawn = random.Random(7)
    whole, parts = NOTHING, []
    for _ in range(50):
        names = drawn.sample("abcdef", drawn.randint(0, 4))
        part = Sums({name: tuple(float(drawn.randint(1, 9)) for _ in FIELDS) for name in names})
        later = added([whole, part])
        assert difference(later, whole) == part
        whole = later
        parts.append(part)
    assert added(parts) == whole


def test_an_hour_of_notes_is_all_that_is_kept() -> None:
    metrics, noted, clock = made()
    metrics.observe(outcome("a"))
    for _ in range(1_000):
        noted.note()
        clock.now += 30
    assert len(noted._notes) <= 3_600 / 30 + 2
    assert len({id(sums) for _, sums in noted._notes}) == 1, "what has not changed takes no memory"
    assert told(noted, "1h")["requests"] == 0


def test_a_worker_that_replaces_another_one_begins_anew() -> None:
    metrics, noted, clock = made()
    clock.now += 18_000  # the process that forks it is old
    noted.begin()
    clock.now += 60
    metrics.observe(outcome("a"))
    assert (told(noted)["requests"], told(noted)["seconds"]) == (1, 60)
