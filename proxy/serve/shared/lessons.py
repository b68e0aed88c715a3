"""What an upstream's answers taught of one model: how far its counts are from ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

STEADY = 32  # answers that a ratio is the mean of; older ones fade

Factor = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class Lesson:
    """`ratio` is the mean of what `count` answers told of the model's counts over ours."""

    ratio: float | None = None
    count: int = 0

    def observed(self, ratio: float) -> Lesson:
        """The lesson after one more answer. Its first answers count in full, older ones fade."""
        weight = min(self.count, STEADY - 1)
        mean = ratio if self.ratio is None else (self.ratio * weight + ratio) / (weight + 1)
        return replace(self, ratio=mean, count=self.count + 1)

    def joined(self, other: Lesson) -> Lesson:
        """This lesson or another replica's: that of more answers."""
        return other if other.count > self.count else self


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    ratio: Factor | None
    count: Count


_RECORD = msgspec.msgpack.Decoder(_Packed)


def pack(lesson: Lesson) -> bytes:
    """The record's bytes: figures, nothing else."""
    return msgspec.msgpack.encode(_Packed(lesson.ratio, lesson.count))


def unpack(payload: bytes) -> Lesson | None:
    """The record of bytes; None where they are none, or a figure is absurd."""
    try:
        found = _RECORD.decode(payload)
    except msgspec.MsgspecError:
        return None
    return Lesson(found.ratio, found.count)
