"""Corrections of token counts for one model, learned from `usage`: one tenant's own, and a consensus of many tenants.

Theory of operation
===================

The `usage` of a response gives a ratio: the tokens that the upstream counted, divided by the tokens that we counted.
The sender of a request chooses its text, so a ratio is first of all evidence about that sender's requests.

* `Calibration` holds what the responses to one tenant taught. It corrects counts for that tenant only. Its ratio is
  the median of the latest samples, so that one outlier changes nothing. Its margin follows from how far samples were
  above the ratio. Both begin as those of the model's family: figures that are good enough stay. Until there are
  `MIN_SAMPLES` samples, the margin of the family applies.
* `Consensus` is for tenants without a calibration. Each calibrated tenant has one vote: its own ratio, limited to
  `MAX_DEVIATION` from the family's ratio. The consensus is the median of all votes. If there are fewer than `QUORUM`
  votes, the family's ratio fills the missing ones. So one tenant is at most a tenth of what others are counted with,
  and five tenants together change nothing.
* Ratios and margins change in steps, and only when the new value differs by several. If counts changed with every
  response, the position of every cut would change with them, and the provider's prompt cache would be lost.
* When two replicas have different records, the one based on more responses wins. Records contain figures and keyed
  digests of tenants, no content.

This module is pure: no I/O and no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

import msgspec

from proxy.model.limits import Correction

MAX_SAMPLES = 24  # the latest ratios that are kept; older ones are dropped, because models change behind their names
MIN_SAMPLES = 6  # fewer do not show how large the errors of further counts will be
OUTLIER_RATE = 16  # one in so many samples, the highest, is ignored: a fault, or a rare kind of content
HEADROOM = 1.25  # further errors may exceed the observed ones by a quarter ...
BASE_MARGIN = 0.01  # ... and by a hundredth of the prompt
# A change of the ratio or of the margin moves the cut of every conversation of the tenant. (measured: with steps of
# 0.02 and 0.01 they changed every twelve requests of real runs, and the repeated share of a prompt was .83 instead of
# the .86 without any correction)
RATIO_STEP, RATIO_HOLD = 0.02, 0.06  # a ratio is rounded to the first, and stays while the truth is within the second
MARGINS = (0.02, 0.05, 0.10, 0.15, 0.25)  # shares of the prompt; the last is the margin of an estimate
MARGIN_HOLD = 2  # a margin stays until it is so many rows of `MARGINS` too large
QUORUM = 10  # tenants; one of them is at most so large a part of the consensus
MAX_DEVIATION = 0.3  # of a vote from the family's ratio, as a share of it
MAX_VOTES = 64
DIGEST_BYTES = 8  # of a tenant's keyed digest

Ratio = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Tenant = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What `count` responses to one tenant taught about one model. `latest` holds their last ratios, oldest first.

    `ratio` is the correction of counts and `share` their margin, as a share of the prompt; None while unknown.
    """

    latest: tuple[float, ...] = ()
    count: int = 0
    ratio: float | None = None
    share: float | None = None

    def with_sample(self, ratio: float, start: Correction | None = None) -> Calibration:
        """The calibration after one more response with that ratio. `start`: the ratio and the margin of the model's
        family, which hold until responses differ from them."""
        latest = (*self.latest, ratio)[-MAX_SAMPLES:]
        known = (self.ratio, self.share) if self.ratio is not None or start is None else (start.ratio, start.share)
        stepped = _stepped_ratio(known[0], median(latest))
        return Calibration(latest, self.count + 1, stepped, _stepped_margin(known[1], stepped, latest))

    def merged(self, other: Calibration) -> Calibration:
        """The calibration based on more responses: this one or another replica's."""
        return other if other.count > self.count else self


def _stepped_ratio(before: float | None, now: float) -> float:
    if before is not None and abs(now - before) < RATIO_HOLD:
        return before
    return round(round(now / RATIO_STEP) * RATIO_STEP, 4)


def _stepped_margin(before: float | None, ratio: float, latest: tuple[float, ...]) -> float | None:
    """The margin as a share of the prompt. Increases at once, and decreases when it is `MARGIN_HOLD` rows too large."""
    if len(latest) < MIN_SAMPLES:
        return before
    highest = sorted(latest)[-1 - len(latest) // OUTLIER_RATE]
    needed = max(0.0, highest / ratio - 1) * HEADROOM + BASE_MARGIN
    now = next((share for share in MARGINS if needed <= share + 1e-9), MARGINS[-1])
    if before is None or needed > before + 1e-9:
        return now
    row = bisect_left(MARGINS, before) - MARGIN_HOLD
    return now if row >= 0 and now <= MARGINS[row] else before


@dataclass(frozen=True, slots=True)
class Consensus:
    """The tenants' votes on one model's ratio. `votes`: tenant's keyed digest -> (ratio, number of its responses)."""

    votes: Mapping[bytes, tuple[float, int]] = field(default_factory=dict)

    def with_vote(self, tenant: bytes, calibration: Calibration) -> Consensus:
        """The consensus with a tenant's calibration as its vote; the same object if that changes no vote."""
        ratio, known = calibration.ratio, self.votes.get(tenant)
        if ratio is None or (known is not None and known[0] == ratio):
            return self
        return self.merged(Consensus({tenant: (ratio, calibration.count)}))

    def merged(self, other: Consensus) -> Consensus:
        """The votes of both replicas; of one tenant's two votes the one based on more responses. If there are more than
        `MAX_VOTES`, those based on the fewest are dropped, so that new tenants cannot displace established ones."""
        votes = dict(self.votes)
        for tenant, vote in other.votes.items():
            if tenant not in votes or vote[1] > votes[tenant][1]:
                votes[tenant] = vote
        kept = sorted(votes.items(), key=lambda item: (-item[1][1], item[0]))[:MAX_VOTES]
        merged = dict(sorted(kept))
        return self if merged == self.votes else replace(self, votes=merged)

    def ratio(self, family_ratio: float) -> float | None:
        """The correction for a tenant without a calibration; None if there are too few votes to change the family's."""
        if len(self.votes) <= QUORUM // 2:
            return None
        low, high = family_ratio * (1 - MAX_DEVIATION), family_ratio * (1 + MAX_DEVIATION)
        votes = [min(high, max(low, ratio)) for ratio, _ in self.votes.values()]
        return median([*votes, *[family_ratio] * (QUORUM - len(votes))])


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    latest: Annotated[list[Ratio], msgspec.Meta(max_length=MAX_SAMPLES)]
    count: Count
    ratio: Ratio | None
    share: Share | None


_CALIBRATION = msgspec.msgpack.Decoder(_Packed)
_VOTES = msgspec.msgpack.Decoder(Annotated[dict[Tenant, tuple[Ratio, Count]], msgspec.Meta(max_length=MAX_VOTES)])


def pack(calibration: Calibration) -> bytes:
    """A calibration as msgpack: figures, at most 300 bytes."""
    packed = _Packed(list(calibration.latest), calibration.count, calibration.ratio, calibration.share)
    return msgspec.msgpack.encode(packed)


def unpack(payload: bytes) -> Calibration | None:
    """The calibration in a payload; None if it is malformed or a figure is out of range. Never raises."""
    try:
        found = _CALIBRATION.decode(payload)
    except msgspec.MsgspecError:
        return None
    return Calibration(tuple(found.latest), found.count, found.ratio, found.share)


def pack_votes(consensus: Consensus) -> bytes:
    """A consensus as msgpack: figures and keyed digests, at most 2 KB."""
    return msgspec.msgpack.encode(consensus.votes)


def unpack_votes(payload: bytes) -> Consensus | None:
    """The consensus in a payload; None if it is malformed or a figure is out of range. Never raises."""
    try:
        return Consensus(_VOTES.decode(payload))
    except msgspec.MsgspecError:
        return None
