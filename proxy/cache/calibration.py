"""By how much a model's own counts differ from ours: what answers taught one caller, and what many callers agree on.

Theory of operation
===================

The `usage` of an answer tells how many of the model's tokens one of our encoding's proved to be worth: a ratio. Which
texts a request holds, its sender chooses; so a ratio is evidence of its sender's requests first.

* `Calibration` is what the answers to one caller taught of one model. It counts that caller's requests, and no others.
  Its ratio is the median of the latest answers, so that one odd answer moves nothing. Its margin follows from how far
  those answers were above the ratio (`ABOVE`); until there are `FEW` of them the family's own margin holds.
* `Agreement` is what the callers of one model say together, for a caller of whom nothing is known yet. Each caller has
  one vote, its own calibrated ratio, which counts as at most `APART` away from the family's row. The agreement is the
  median of all votes; where there are fewer than `QUORUM`, the family's row stands in for those that are missing. So
  one caller is at most a tenth of what others are counted with, and five together still change nothing.
* Both are steady: ratio and margin move in steps, and only when the truth is a whole step away. Counts that changed
  with every answer would move the cuts with them.
* Of two replicas' words that of more answers holds. Records hold figures, and keyed digests of callers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

import msgspec

LATEST = 24  # answers that count; older ones are forgotten: models change behind their names
FEW = 6  # answers: fewer say nothing of the errors that are to come
ODD = 16  # of so many answers the one furthest above the ratio is left out: a fault, or a kind that is rare
ABOVE = 1.25  # what is to come may be further above the ratio than what was seen, by a quarter ...
MORE = 0.01  # ... and by a hundredth of the prompt
RATIO_STEP = 0.02  # of ratios
STEP = 0.01  # of margins
MARGINS = (0.02, 0.25)  # shares of the prompt: no fewer, however well it counts; no more than of an estimate
QUORUM = 10  # callers: each is at most so large a part of the agreement
APART = 0.3  # a vote is at most so far from the family's row
MOST_VOTES = 64
DIGEST = 8  # bytes of a caller's keyed digest

Ratio = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Caller = Annotated[bytes, msgspec.Meta(min_length=DIGEST, max_length=DIGEST)]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What `count` answers taught of one model's counts, by the ratios of the latest of them, the oldest first.

    `ratio` and `share` (the margin, as a share of the prompt) are the steady figures to count with; None where nothing,
    or too little, is known.
    """

    latest: tuple[float, ...] = ()
    count: int = 0
    ratio: float | None = None
    share: float | None = None

    def observed(self, ratio: float) -> Calibration:
        """The calibration after one more answer, whose usage said that ratio."""
        latest = (*self.latest, ratio)[-LATEST:]
        steady = _steady(self.ratio, median(latest))
        return Calibration(latest, self.count + 1, steady, _margin(self.share, steady, latest))

    def joined(self, other: Calibration) -> Calibration:
        """This one or another replica's: that of more answers."""
        return other if other.count > self.count else self


def _steady(before: float | None, now: float) -> float:
    if before is not None and abs(now - before) < RATIO_STEP:
        return before
    return round(round(now / RATIO_STEP) * RATIO_STEP, 4)


def _margin(before: float | None, ratio: float, latest: tuple[float, ...]) -> float | None:
    """The margin's share: rises at once, and falls when it is two steps too large."""
    if len(latest) < FEW:
        return None
    highest = sorted(latest)[-1 - len(latest) // ODD]
    needed = max(0.0, highest / ratio - 1) * ABOVE + MORE
    least, most = MARGINS
    now = min(most, max(least, round(math.ceil(needed / STEP - 1e-9) * STEP, 4)))
    return before if before is not None and now <= before < now + 2 * STEP - 1e-9 else now


@dataclass(frozen=True, slots=True)
class Agreement:
    """The callers' votes on one model's ratio: of each caller (a keyed digest) the ratio, and of how many answers."""

    votes: Mapping[bytes, tuple[float, int]] = field(default_factory=dict)

    def voted(self, caller: bytes, calibration: Calibration) -> Agreement:
        """The agreement after a caller's calibration; the same object where that changes no vote."""
        ratio, known = calibration.ratio, self.votes.get(caller)
        if ratio is None or (known is not None and known[0] == ratio):
            return self
        return self.joined(Agreement({caller: (ratio, calibration.count)}))

    def joined(self, other: Agreement) -> Agreement:
        """Both replicas' votes: of each caller that of more answers. Where they are too many, those of the fewest
        answers go: who wants to push others out must have more answered than they."""
        votes = dict(self.votes)
        for caller, vote in other.votes.items():
            if caller not in votes or vote[1] > votes[caller][1]:
                votes[caller] = vote
        most = sorted(votes.items(), key=lambda one: (-one[1][1], one[0]))[:MOST_VOTES]
        joined = dict(sorted(most))
        return self if joined == self.votes else replace(self, votes=joined)

    def ratio(self, row: float) -> float | None:
        """What a caller is counted with of whom nothing is known, beside the family's `row`; None where there are too
        few votes to change it."""
        if len(self.votes) <= QUORUM // 2:
            return None
        low, high = row * (1 - APART), row * (1 + APART)
        votes = [min(high, max(low, ratio)) for ratio, _ in self.votes.values()]
        return median([*votes, *[row] * (QUORUM - len(votes))])


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    latest: Annotated[list[Ratio], msgspec.Meta(max_length=LATEST)]
    count: Count
    ratio: Ratio | None
    share: Share | None


_CALIBRATION = msgspec.msgpack.Decoder(_Packed)
_VOTES = msgspec.msgpack.Decoder(Annotated[dict[Caller, tuple[Ratio, Count]], msgspec.Meta(max_length=MOST_VOTES)])


def pack(calibration: Calibration) -> bytes:
    """A calibration's bytes: figures, at most 300 bytes."""
    known = calibration
    return msgspec.msgpack.encode(_Packed(list(known.latest), known.count, known.ratio, known.share))


def unpack(payload: bytes) -> Calibration | None:
    """The calibration of bytes; None where they are none, or a figure is absurd."""
    try:
        found = _CALIBRATION.decode(payload)
    except msgspec.MsgspecError:
        return None
    return Calibration(tuple(found.latest), found.count, found.ratio, found.share)


def pack_votes(agreement: Agreement) -> bytes:
    """An agreement's bytes: figures and keyed digests, at most 2 KB."""
    return msgspec.msgpack.encode(agreement.votes)


def unpack_votes(payload: bytes) -> Agreement | None:
    """The agreement of bytes; None where they are none, or a figure is absurd."""
    try:
        return Agreement(_VOTES.decode(payload))
    except msgspec.MsgspecError:
        return None
