"""What upstreams taught us of one model, as one small record: its bounds, and how far its counts are from ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from proxy.types import NOTHING_LEARNED, Learned

STEADY = 32  # answers that a ratio is the mean of; older ones fade
# Seconds that a window holds which no refusal named: long enough that a conversation does not pay a refusal at every
# turn, short enough that a mistake (a gateway's bad minute, a bound of another kind) is over before anybody looks.
SUPPOSED = 600.0

Tokens = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Factor = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Stamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


@dataclass(frozen=True, slots=True)
class Lesson:
    """`learned` is from refusals; `ratio` the mean of what `count` answers told of the model's counts over ours.

    `window_at` and `input_at` are when the two bounds were last taught or taken back, in seconds since 1970 by the
    clock of the replica that did it: of two replicas' words the later one holds, also where it is that there is none.
    """

    learned: Learned = NOTHING_LEARNED
    ratio: float | None = None
    count: int = 0
    window_at: float = 0.0
    input_at: float = 0.0

    def observed(self, ratio: float) -> Lesson:
        """The lesson after one more answer. Its first answers count in full, older ones fade."""
        weight = min(self.count, STEADY - 1)
        mean = ratio if self.ratio is None else (self.ratio * weight + ratio) / (weight + 1)
        return replace(self, ratio=mean, count=self.count + 1)

    def taught(self, told: Learned, now: float = 0.0) -> Lesson:
        """The lesson after a refusal; what that did not tell stays."""
        learned, lesson = self.learned, self
        if told.window is not None:
            learned = replace(learned, window=told.window, supposed=told.supposed)
            lesson = replace(lesson, window_at=_later(self.window_at, now))
        if told.max_input is not None:
            learned = replace(learned, max_input=told.max_input)
            lesson = replace(lesson, input_at=_later(self.input_at, now))
        if told.scale != 1.0:
            learned = replace(learned, scale=told.scale)
        if told.alternates:
            learned = replace(learned, alternates=True)
        return replace(lesson, learned=learned)

    def held(self, prompt: int, now: float = 0.0) -> Lesson:
        """The lesson after a prompt of so many tokens was answered: bounds that are under it are taken back."""
        learned, lesson = self.learned, self
        if learned.window is not None and prompt > learned.window:
            learned = replace(learned, window=None, supposed=False)
            lesson = replace(lesson, window_at=_later(self.window_at, now))
        if learned.max_input is not None and prompt > learned.max_input:
            learned = replace(learned, max_input=None)
            lesson = replace(lesson, input_at=_later(self.input_at, now))
        return lesson if learned is self.learned else replace(lesson, learned=learned)

    def at(self, now: float) -> Learned:
        """What holds of it at a time: a window that was only supposed ends. Replicas' clocks may differ a little."""
        if self.learned.supposed and abs(now - self.window_at) >= SUPPOSED:
            return replace(self.learned, window=None, supposed=False)
        return self.learned

    def joined(self, other: Lesson) -> Lesson:
        """This lesson with what another replica knows better or we do not: of two bounds the later, of two ratios that
        of more answers."""
        better = other if other.count > self.count else self
        bound = max(self, other, key=lambda one: (one.window_at, one.learned.window is not None))
        prompt = max(self, other, key=lambda one: (one.input_at, one.learned.max_input is not None))
        learned = Learned(
            bound.learned.window,
            prompt.learned.max_input,
            other.learned.scale if self.learned.scale == 1.0 else self.learned.scale,
            bound.learned.supposed,
            self.learned.alternates or other.learned.alternates,
        )
        return Lesson(learned, better.ratio, better.count, bound.window_at, prompt.input_at)


def _later(then: float, now: float) -> float:
    """A stamp that outranks the last one, whoever's clock that was by."""
    return max(now, then + 0.001)


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    window: Tokens | None
    max_input: Tokens | None
    scale: Factor
    ratio: Factor | None
    count: Count
    supposed: bool = False
    window_at: Stamp = 0.0
    input_at: Stamp = 0.0
    alternates: bool = False


_RECORD = msgspec.msgpack.Decoder(_Packed)


def pack(lesson: Lesson) -> bytes:
    """The record's bytes: figures, nothing else."""
    told = lesson.learned
    return msgspec.msgpack.encode(
        _Packed(
            told.window,
            told.max_input,
            told.scale,
            lesson.ratio,
            lesson.count,
            told.supposed,
            lesson.window_at,
            lesson.input_at,
            told.alternates,
        )
    )


def unpack(payload: bytes) -> Lesson | None:
    """The record of bytes; None where they are none, or a figure is absurd."""
    try:
        found = _RECORD.decode(payload)
    except msgspec.MsgspecError:
        return None
    learned = Learned(found.window, found.max_input, found.scale, found.supposed, found.alternates)
    return Lesson(learned, found.ratio, found.count, found.window_at, found.input_at)
