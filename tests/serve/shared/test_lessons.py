from __future__ import annotations

import msgspec
import pytest

from proxy.serve.shared.lessons import STEADY, SUPPOSED, Lesson, pack, unpack
from proxy.types import Learned


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


def test_a_refusal_adds_to_what_was_learned() -> None:
    lesson = Lesson(Learned(window=8192)).taught(Learned(max_input=7000)).taught(Learned(scale=1.1))
    assert lesson.learned == Learned(8192, 7000, 1.1)
    assert lesson.taught(Learned(window=4096)).learned.window == 4096
    turns = lesson.taught(Learned(alternates=True)).taught(Learned())
    assert turns.learned == Learned(8192, 7000, 1.1, alternates=True)
    assert Lesson().joined(turns).learned.alternates and turns.joined(Lesson()).learned.alternates


def test_two_replicas_lessons_make_one() -> None:
    mine = Lesson(Learned(window=8192), 1.1, 5)
    theirs = Lesson(Learned(window=4096, max_input=3000, scale=1.2), 1.3, 9)
    assert mine.joined(theirs) == Lesson(Learned(8192, 3000, 1.2), 1.3, 9)
    assert theirs.joined(mine) == Lesson(Learned(4096, 3000, 1.2), 1.3, 9)
    assert Lesson().joined(mine) == mine
    assert mine.joined(Lesson()) == mine


def test_a_supposed_window_ends_after_a_while_and_one_that_was_named_does_not() -> None:
    supposed = Lesson().taught(Learned(window=5_000, max_input=900, supposed=True), 1_000.0)
    assert supposed.at(1_000.0 + SUPPOSED - 1) == supposed.learned
    assert supposed.at(1_000.0 + SUPPOSED) == Learned(max_input=900)
    assert supposed.at(0.0) == Learned(max_input=900)  # a clock that is far ahead of ours
    named = supposed.taught(Learned(window=5_000), 1_001.0)
    assert named.at(1e9) == Learned(5_000, 900)


def test_an_answer_takes_back_the_bounds_that_it_disproves() -> None:
    lesson = Lesson().taught(Learned(8_192, 7_000, 1.2, supposed=True), 5.0)
    assert lesson.held(7_000, 6.0) is lesson
    assert lesson.held(7_001, 6.0).learned == Learned(8_192, None, 1.2, True)
    assert lesson.held(8_193, 6.0).learned == Learned(scale=1.2)


def test_of_two_replicas_words_the_later_holds_whoever_hears_whom() -> None:
    old = Lesson().taught(Learned(window=5_000, supposed=True), 100.0)
    back, anew = old.held(6_000, 101.0), old.taught(Learned(window=7_000), 102.0)
    for one, two, holds in ((old, back, None), (back, anew, 7_000), (old, anew, 7_000)):
        assert one.joined(two) == two.joined(one)
        assert (one.joined(two).learned.window, one.joined(two).learned.supposed) == (holds, False)


def test_a_word_outranks_the_one_before_it_though_the_clock_goes_backwards() -> None:
    old = Lesson().taught(Learned(window=5_000), 100.0)
    assert old.joined(old.held(6_000, 50.0)).learned == Learned()


def test_a_record_of_the_shorter_kind_is_read_too() -> None:
    assert unpack(msgspec.msgpack.encode((8192, None, 1.0, 1.1, 3))) == Lesson(Learned(8192), 1.1, 3)


@pytest.mark.parametrize("lesson", [Lesson(), Lesson(Learned(8192, 7000, 1.1, True, True), 1.25, 3, 5.5, 7.25)])
def test_a_record_comes_back_as_it_was(lesson: Lesson) -> None:
    assert unpack(pack(lesson)) == lesson


@pytest.mark.parametrize(
    "record",
    [
        (),
        (1, 2, 1.0, 1.0),
        (0, None, 1.0, None, 0),
        (None, -1, 1.0, None, 0),
        (10**12, None, 1.0, None, 0),
        (None, None, 0.0, None, 0),
        (None, None, 1.0, 1e9, 0),
        (None, None, float("nan"), None, 0),
        (None, None, 1.0, None, -1),
        ("8192", None, 1.0, None, 0),
        (8192, None, 1.0, None, 0, 1),
        (8192, None, 1.0, None, 0, True, -1.0),
        (8192, None, 1.0, None, 0, True, 0.0, float("nan")),
        (8192, None, 1.0, None, 0, True, 0.0, 0.0, 1),
    ],
)
def test_an_absurd_record_is_none(record: tuple[object, ...]) -> None:
    assert unpack(msgspec.msgpack.encode(record)) is None


def test_what_is_no_record_is_none() -> None:
    assert [unpack(payload) for payload in (b"", b"\xc1", b"\x93\x01")] == [None] * 3
