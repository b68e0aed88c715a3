"""What the last requests to an upstream tell of it."""

from __future__ import annotations

import pytest

from proxy.admin.upstreams import LAST, Asked, asked_of, recent
from proxy.model.outcome import Outcome
from proxy.observe.recent import Kept

OK, DEAD = ("passed", 200), ("upstream_error", 502)


@pytest.mark.parametrize(
    ("result", "status", "failed"),
    [
        ("passed", 200, False),
        ("passed", 429, False),
        ("passed", 500, True),
        ("upstream_error", 502, True),
        ("broken_off", 200, True),
    ],
)
def test_an_upstream_fails_where_it_is_not_reached_or_has_an_error_of_its_own(
    result: str, status: int, failed: bool
) -> None:
    asked = asked_of(Kept(1, 2.0, Outcome("chat", result, status)))
    assert asked is not None and asked.failed is failed


@pytest.mark.parametrize("result", ["unfit", "rejected", "cancelled", "stopped", "bug"])
def test_what_was_not_answered_for_a_reason_of_ours_or_the_clients_tells_nothing(result: str) -> None:
    assert asked_of(Kept(1, 2.0, Outcome("chat", result, 502))) is None


def test_failures_of_all_workers_are_one_row_of_failures() -> None:
    first, second = [Asked(4.0, *DEAD), Asked(2.0, *OK)], [Asked(3.0, "passed", 503), Asked(1.0, *DEAD)]
    assert recent([first, second]) == {
        "requests": 4,
        "failed": 3,
        "failed_in_a_row": 2,
        "down": False,
        "failing_since": 3.0,
        "last_failed_at": 4.0,
        "last_result": "upstream_error",
        "last_status": 502,
    }


def test_one_answer_ends_the_row_and_old_requests_are_left_out() -> None:
    found = recent([[Asked(100.0, *OK)], [Asked(float(at), *DEAD) for at in range(2 * LAST)]])
    assert (found["requests"], found["failed"], found["failed_in_a_row"]) == (LAST, LAST - 1, 0)
    assert found["failing_since"] is None and found["last_failed_at"] == 2 * LAST - 1
    assert recent([])["requests"] == 0


@pytest.mark.parametrize(
    ("answers", "down"),
    [
        ([], False),
        ([DEAD], True),
        ([OK], False),
        ([DEAD, DEAD], True),
        ([DEAD, DEAD, OK], False),
        ([DEAD, DEAD, DEAD, OK], True),
        ([OK, DEAD, DEAD, DEAD], False),
    ],
)
def test_it_is_down_after_three_failures_in_a_row_or_where_all_of_fewer_failed(
    answers: list[tuple[str, int]], down: bool
) -> None:
    newest_first = [Asked(-float(place), *one) for place, one in enumerate(answers)]
    assert recent([newest_first])["down"] is down
