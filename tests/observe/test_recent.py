"""The last requests of a process."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe import recent as module
from proxy.observe.recent import KEPT, MAX_NAME, MOST_A_SECOND, TEXT_SECONDS, Recent, Shown

PASSED = Outcome("chat", "passed", 200)
FITTED = Outcome("chat", "fitted", 200, notes=(Note("prune_history", 9, 5, model_before="m" * 999),))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Source:
    weight: int = field(default=10)


def numbers(recent: Recent, after: int = 0) -> list[int]:
    return [kept.number for kept in recent.since(after)]


def test_the_newest_come_first_and_each_once() -> None:
    recent = Recent()
    for outcome in (PASSED, FITTED, PASSED, FITTED):
        recent.add(outcome)
    assert numbers(recent) == [4, 3, 2, 1] and numbers(recent, 2) == [4, 3] and numbers(recent, 4) == []
    assert recent.count == 4


def test_ordinary_requests_do_not_displace_remarkable_ones() -> None:
    recent = Recent()
    for outcome in (PASSED, FITTED, FITTED):
        recent.add(outcome)
    for _ in range(KEPT):
        recent.add(PASSED)
    assert numbers(recent) == [*range(KEPT + 3, 3, -1), 3, 2]
    assert [kept.number for kept in recent.remarkable()] == [3, 2]
    assert [kept.number for kept in recent.remarkable(2)] == [3]
    assert recent.find(1) is None
    found = recent.find(2)
    assert found is not None and found.outcome.result == "fitted"


def test_both_are_bounded() -> None:
    recent = Recent()
    for _ in range(3 * KEPT):
        recent.add(FITTED)
    assert len(numbers(recent)) == KEPT


def test_a_name_that_a_client_chose_is_bounded() -> None:
    recent = Recent()
    recent.add(Outcome("chat", "fitted", 200, model="m" * 10**6, model_sent="n" * 10**6, notes=FITTED.notes))
    kept = recent.find(1)
    assert kept is not None
    assert len(kept.outcome.model) == len(kept.outcome.model_sent) == MAX_NAME
    assert len(kept.outcome.notes[0].model_before) == MAX_NAME


def test_what_became_of_messages_is_kept_by_number() -> None:
    recent = Recent()
    recent.add(FITTED, Shown(b"packed"))
    recent.add(PASSED, Shown())
    assert (recent.breakdown(1), recent.has_breakdown(1)) == (b"packed", True)
    assert (recent.breakdown(2), recent.has_breakdown(2)) == (b"", False)


def test_texts_are_gone_after_minutes() -> None:
    clock = Clock()
    recent = Recent(age_clock=clock)
    recent.add(PASSED, Shown(texts=Source()))
    assert recent.texts(1) == Source() and recent.texts(2) is None
    clock.now += TEXT_SECONDS + 1
    recent.expire()
    assert recent.texts(1) is None and not recent._texts


def test_texts_are_bounded_in_bytes_and_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 100)
    recent = Recent()
    for _ in range(12):
        recent.add(PASSED, Shown(texts=Source(20)))
    assert [n for n in range(1, 13) if recent.texts(n)] == [8, 9, 10, 11, 12]
    recent.add(PASSED, Shown(texts=Source(101)))
    assert not any(recent.texts(n) for n in range(1, 14))
    for _ in range(KEPT + 5):
        recent.add(FITTED, Shown(texts=Source(0)))
    assert len(recent._texts) == KEPT


def test_of_a_flood_of_ordinary_requests_a_part_is_kept() -> None:
    """A burst whole, and from then on so many a second; what something happened to always."""
    clock = Clock()
    recent = Recent(age_clock=clock)
    for _ in range(10 * KEPT):
        recent.add(PASSED)
    recent.add(FITTED)
    assert numbers(recent) == [10 * KEPT + 1, *range(KEPT + 1, 2, -1)] and recent.count == 10 * KEPT + 1
    clock.now += 1
    for _ in range(KEPT):
        recent.add(PASSED)
    newer = range(10 * KEPT + 2, 10 * KEPT + 2 + MOST_A_SECOND)
    assert abs(len(numbers(recent, 10 * KEPT + 1)) - MOST_A_SECOND) <= 1
    assert set(numbers(recent, 10 * KEPT + 1)) <= {*newer, newer[-1] + 1}
    clock.now += 100
    for _ in range(KEPT):
        recent.add(PASSED)
    assert len(numbers(recent, 11 * KEPT + 1)) == KEPT


def test_a_process_that_replaces_another_has_another_name() -> None:
    clock = Clock()
    recent = Recent(clock)
    before = recent.name
    clock.now += 1
    recent.begin()
    recent.worker = 3
    assert recent.name != before and recent.name.startswith("3-")
