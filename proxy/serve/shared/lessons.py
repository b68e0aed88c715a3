"""What upstreams taught us of one model, as one small record: its bounds, and how far its counts are from ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from proxy.types import NOTHING_LEARNED, Learned

STEADY = 32  # answers that a ratio is the mean of; older ones fade

Tokens = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Factor = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Packed = tuple[Tokens | None, Tokens | None, Factor, Factor | None, Count]


@dataclass(frozen=True, slots=True)
class Lesson:
    """`learned` is from refusals; `ratio` the mean of what `count` answers told of the model's counts over ours."""

    learned: Learned = NOTHING_LEARNED
    ratio: float | None = None
    count: int = 0

    def observed(self, ratio: float) -> Lesson:
        """The lesson after one more answer. Its first answers count in full, older ones fade."""
        weight = min(self.count, STEADY - 1)
        mean = ratio if self.ratio is None else (self.ratio * weight + ratio) / (weight + 1)
        return replace(self, ratio=mean, count=self.count + 1)

    def taught(self, learned: Learned) -> Lesson:
        """The lesson after a refusal; what that did not tell stays."""
        return replace(self, learned=_over(learned, self.learned))

    def joined(self, other: Lesson) -> Lesson:
        """This lesson with what another replica knows and we do not; of two ratios that of more answers."""
        better = other if other.count > self.count else self
        return Lesson(_over(self.learned, other.learned), better.ratio, better.count)


def _over(upper: Learned, lower: Learned) -> Learned:
    return Learned(
        lower.window if upper.window is None else upper.window,
        lower.max_input if upper.max_input is None else upper.max_input,
        lower.scale if upper.scale == 1.0 else upper.scale,
    )


def pack(lesson: Lesson) -> bytes:
    """The record's bytes: five figures, nothing else."""
    learned = lesson.learned
    return msgspec.msgpack.encode((learned.window, learned.max_input, learned.scale, lesson.ratio, lesson.count))


def unpack(payload: bytes) -> Lesson | None:
    """The record of bytes; None where they are none, or a figure is absurd."""
    try:
        window, max_input, scale, ratio, count = msgspec.msgpack.decode(payload, type=Packed)
    except msgspec.MsgspecError:
        return None
    return Lesson(Learned(window, max_input, scale), ratio, count)
