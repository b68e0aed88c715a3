from __future__ import annotations

import msgspec
import pytest

from proxy.serve.shared.lessons import STEADY, Lesson, pack, unpack


def test_the_first_answer_is_believed_and_further_ones_are_averaged() -> None:
    first = Lesson().observed(1.2)
    assert (first.ratio, first.count) == (1.2, 1)
    second = first.observed(1.4)
    assert second.ratio == pytest.approx(1.3)
    assert second.count == 2


def test_a_ratio_follows_a_model_that_changes() -> None:
    lesson = Lesson()
    for _ in range(1000):
        lesson = lesson.observed(1.0)
    for _ in range(10 * STEADY):
        lesson = lesson.observed(2.0)
    assert lesson.ratio == pytest.approx(2.0, abs=0.01)


def test_of_two_replicas_lessons_that_of_more_answers_holds() -> None:
    mine, theirs = Lesson(1.1, 5), Lesson(1.3, 9)
    assert mine.joined(theirs) == theirs.joined(mine) == theirs
    assert Lesson().joined(mine) == mine.joined(Lesson()) == mine


@pytest.mark.parametrize("lesson", [Lesson(), Lesson(1.25, 3)])
def test_a_record_comes_back_as_it_was(lesson: Lesson) -> None:
    assert unpack(pack(lesson)) == lesson


@pytest.mark.parametrize("record", [(), (1.0,), (1e9, 0), (float("nan"), 0), (None, -1), ("1", 0), (0.0, 1)])
def test_an_absurd_record_is_none(record: tuple[object, ...]) -> None:
    assert unpack(msgspec.msgpack.encode(record)) is None


def test_what_is_no_record_is_none() -> None:
    assert [unpack(payload) for payload in (b"", b"\xc1", b"\x93\x01")] == [None] * 3
