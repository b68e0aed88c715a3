"""Corrections of token counts for one model, learned from `usage`: one tenant's own, and a consensus of many callers.

Theory of operation
===================

The `usage` of a response and our count of its prompt are a pair `(n, used)`: tokens of the model's encoding, and tokens
that the upstream counted. The sender of a request chooses its text, so a pair is first of all evidence about that
sender's requests. Texts differ by a factor (the encodings differ), and prompts by a constant (a system prompt of a
gateway, tools that cost more or less than we say): `used = offset + ratio * n`.

* `Line` is what the responses to one tenant taught, for prompts of one shape. It corrects counts for that tenant
  only. Both figures begin as the family's (offset 0) and are fitted to the latest pairs (`fitted`), so that one outlier
  changes nothing and short prompts teach the offset. Where counts are exact, only an offset is learned: the median.
  From the third response on the margin follows from how far pairs were above the line.
* A line holds for prompts like those that taught it (`Correction.at`).
* `Consensus` is for tenants without a line of their own. A caller has one vote, whatever its cookies, organisations
  and projects: the caller is whose key the upstream has accepted, else an address. Where an upstream does not check
  keys, nobody votes, and no tenant gets what others agree on: whoever asks could be any number of callers. A vote
  needs a line of `MIN_SAMPLES` responses; its ratio is limited to `MAX_DEVIATION` from the family's. The consensus is
  the median of all votes. If there are fewer than `QUORUM` votes, the family's figures fill the missing ones. So one
  caller is at most a tenth of what others are counted with, and five callers together change nothing.
* Lines and margins change in steps, and only when the new value differs by several. If counts changed with every
  response, the position of every cut would change with them, and the provider's prompt cache would be lost.
* When two replicas have different records, the one based on more responses wins. Records contain figures and keyed
  digests of callers, no content.

This module is pure: no I/O and no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated

import msgspec

from proxy.model.limits import Correction, Corrections, Shape

Pair = tuple[int, int]  # tokens of the encoding in a prompt, and tokens that the upstream counted
MAX_SAMPLES = 24  # the latest pairs that are kept; older ones are dropped, because models change behind their names
MARGIN_SAMPLES = 3  # fewer do not show how large the errors of further counts will be
MIN_SAMPLES = 6  # of a vote, and of counts that are called calibrated
EAGER_SAMPLES = 12  # so many responses fit the line anew, later ones if they differ from it, or each `PERIOD`th
PERIOD = 8
OUTLIER_RATE = 16  # one in so many samples, the highest, is ignored: a fault, or a rare kind of content
HEADROOM = 1.25  # further errors may exceed the observed ones by a quarter ...
BASE_MARGIN = 0.01  # ... and by a hundredth of the prompt; where counts are exact, by nothing
# Tokens of an error that are no share of the prompt, as the margin's constant covers them: the rounding of messages, a
# word of a template.
SLACK, EXACT_SLACK = 20, 50
# Before any response: by how much families are off, in tokens once, and in tokens of each one for a family whose margin
# is a quarter of the prompt. (It falls with the square of the margin: the ratio of a family of its own is known far
# better than that of a model which no family is for.) They say how an error divides into offset and ratio: that of a
# short prompt is an offset first, that of a long one a ratio.
OFFSET_SPREAD, RATIO_SPREAD = 150.0, 0.25
LEAST_FAMILY_SHARE = 0.1  # a narrower margin of a family does not bind the ratio of a deployment with its name
NOISE_TOKENS, NOISE_SHARE = 8.0, 0.03  # errors of single prompts around the line
HUBER = 1.5  # a pair that is further off, in multiples of that noise, pulls no harder
LEAST_OFFSET, MOST_OFFSET = -400, 1_900  # tokens; the byte proof allows for 1,900 that are not in the body
OFFSET_STEP, RATIO_STEP = 5, 0.01
LEAST_RATIO, MOST_RATIO = 0.1, 19.0
# A change of the line or of the margin moves the cut of every conversation of the tenant: a line stays while the new
# one is within this share of it. (measured: ratios that followed within 0.02 changed every twelve requests of real
# runs, and the repeated share of a prompt was .83 instead of the .86 without any correction)
EAGER_HOLD, HOLD = 0.02, 0.04
OFFSET_HOLD = 24  # tokens: where counts are exact, a smaller offset is left to the margin's constant
SLOPE_NOISE = 0.03  # where counts are exact and errors grow faster with the prompt, another model answers
MARGINS = (0.0, 0.02, 0.05, 0.10, 0.15, 0.25)  # shares of the prompt; the last is the margin of an estimate
MARGIN_HOLD = 2  # a margin stays until it is so many rows of `MARGINS` too large
QUORUM = 10  # callers; one of them is at most so large a part of the consensus
MAX_DEVIATION = 0.3  # of a vote from the family's ratio, as a share of it
MAX_VOTES = 64
RENEWED = 1.5  # a vote with the same line counts for longer prompts once those are so many times as long
DIGEST_BYTES = 8  # of a caller's keyed digest

Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Offset = Annotated[int, msgspec.Meta(ge=LEAST_OFFSET, le=MOST_OFFSET)]
Ratio = Annotated[float, msgspec.Meta(gt=0.05, lt=20)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Caller = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class Line(msgspec.Struct, frozen=True, gc=False):
    """What `count` responses to one tenant taught about one model, for prompts of one shape. `latest` holds their last
    pairs, oldest first.

    `offset` and `ratio` correct counts; the ratio is None where counts are exact. `share` is the margin's share of the
    prompt; None while it is the family's.
    """

    latest: tuple[Pair, ...] = ()
    count: int = 0
    offset: int = 0
    ratio: float | None = None
    share: float | None = None

    def with_sample(self, pair: Pair, start: Correction | None = None) -> Line:
        """The line after one more response. `start`: the ratio and the margin of the model's family, which hold until
        responses differ from them; None where counts are exact."""
        latest, count = (*self.latest, pair)[-MAX_SAMPLES:], self.count + 1
        if start is None or start.ratio is None:
            usual = abs(pair[1] - pair[0] - self.offset) < OFFSET_HOLD
            if usual and count > EAGER_SAMPLES and count % PERIOD:
                return Line(latest, count, self.offset, None, self.share)
            return self._exact(latest, count)
        ratio, share = self.ratio or start.ratio, start.share if self.share is None else self.share
        if count > EAGER_SAMPLES and count % PERIOD and self._is_near(pair, ratio, share):
            return Line(latest, count, self.offset, self.ratio, self.share)
        offset, found = fitted(latest, start.ratio, start.share or MARGINS[-1])
        sizes, most = (min(latest)[0], max(latest)[0]), EAGER_HOLD if count <= MAX_SAMPLES else HOLD
        if all(abs(self.offset - offset + (ratio - found) * n) <= most * (offset + found * n) for n in sizes):
            offset, found = self.offset, ratio
        if count < MARGIN_SAMPLES:
            return Line(latest, count, offset, found, self.share)
        needed = HEADROOM * _highest([_over(pair, offset, found) for pair in latest]) + BASE_MARGIN
        return Line(latest, count, offset, found, _stepped(share if count > MARGIN_SAMPLES else None, needed))

    def _exact(self, latest: tuple[Pair, ...], count: int) -> Line:
        if count < MARGIN_SAMPLES:
            return Line(latest, count)
        found = _bounded(round(median([used - n for n, used in latest])))
        offset = found if abs(found - self.offset) >= OFFSET_HOLD else self.offset
        needed = (
            max(_highest([_over(pair, offset, 1.0, EXACT_SLACK) for pair in latest]), _excess_slope(latest)) * HEADROOM
        )
        return Line(latest, count, offset, None, _stepped(self.share, needed))

    def _is_near(self, pair: Pair, ratio: float, share: float | None) -> bool:
        """Whether a pair is one of those that the line was fitted to and its margin was made for."""
        over = _over(pair, self.offset, ratio)
        under = _over((pair[0], 2 * round(self.offset + ratio * pair[0]) - pair[1]), self.offset, ratio)
        return share is not None and HEADROOM * over + BASE_MARGIN <= share and under <= HOLD

    @property
    def correction(self) -> Correction | None:
        """The correction of counts; None before the first response."""
        if not self.latest:
            return None
        taught = 0 if self.ratio is None else max(self.latest)[0]  # exact counts: an offset is one everywhere
        return Correction(self.ratio, self.share, self.offset, self.count >= MIN_SAMPLES, taught)

    def merged(self, other: Line) -> Line:
        """The line based on more responses: this one or another replica's."""
        return other if other.count > self.count else self


def fitted(pairs: tuple[Pair, ...], family_ratio: float, family_share: float) -> tuple[int, float]:
    """The offset and the ratio of the line through pairs: Huber's estimate, by least squares with weights that are made
    three times, from a start that no outlier moves. It leaves the family's line as far as the pairs outweigh how far
    families are usually off."""
    slope, offset = median([used / n for n, used in pairs]) - family_ratio, 0.0
    share = max(family_share, LEAST_FAMILY_SHARE)
    rows = [(n, used - family_ratio * n, 1 / (NOISE_TOKENS + NOISE_SHARE * family_ratio * n)) for n, used in pairs]
    for _ in range(3):
        w_0, w_1, w_2 = OFFSET_SPREAD**-2, 0.0, (RATIO_SPREAD * (4 * share) ** 2 * family_ratio) ** -2
        y_0 = y_1 = 0.0
        for n, off, certainty in rows:
            z = abs(off - offset - slope * n) * certainty
            weight = certainty * certainty * (HUBER / z if z > HUBER else 1.0)
            w_0, w_1, w_2 = w_0 + weight, w_1 + weight * n, w_2 + weight * n * n
            y_0, y_1 = y_0 + weight * off, y_1 + weight * n * off
        by = w_0 * w_2 - w_1 * w_1
        offset, slope = (y_0 * w_2 - y_1 * w_1) / by, (w_0 * y_1 - w_1 * y_0) / by
    stepped = round((family_ratio + slope) / RATIO_STEP) * RATIO_STEP
    ratio = round(max(LEAST_RATIO, min(MOST_RATIO, stepped)), 4)
    balanced = (y_0 - (ratio - family_ratio) * w_1) / w_0  # what the rounded ratio leaves
    return _bounded(round(balanced / OFFSET_STEP) * OFFSET_STEP), ratio


def _bounded(offset: int) -> int:
    return max(LEAST_OFFSET, min(MOST_OFFSET, offset))


def _over(pair: Pair, offset: int, ratio: float, slack: int = SLACK) -> float:
    """By how much usage was above the line, as a share of it; 0 if it was not."""
    n, used = pair
    counted = max(1.0, offset + ratio * n)
    return max(0.0, (used - counted - slack) / counted)


def _highest(errors: list[float]) -> float:
    return sorted(errors)[-1 - len(errors) // OUTLIER_RATE]


def _excess_slope(pairs: tuple[Pair, ...]) -> float:
    """By how much faster usage grows than exact counts, as a share: the line between the medians of the shorter and of
    the longer prompts. 0 if they are of one size, or grow alike."""
    by_size, third = sorted(pairs), max(1, len(pairs) // 3)
    low, high = by_size[:third], by_size[-third:]
    grown = median([n for n, _ in high]) - median([n for n, _ in low])
    if grown < 0.2 * high[-1][0]:
        return 0.0
    slope = (median([used for _, used in high]) - median([used for _, used in low])) / grown - 1
    return slope if slope > SLOPE_NOISE else 0.0


def _stepped(before: float | None, needed: float) -> float:
    """The margin as a share of the prompt. Increases at once, and decreases when it is `MARGIN_HOLD` rows too large."""
    now = next((share for share in MARGINS if needed <= share + 1e-9), MARGINS[-1])
    if before is None or needed > before + 1e-9:
        return now
    row = bisect_left(MARGINS, before) - MARGIN_HOLD
    return now if row >= 0 and now <= MARGINS[row] else before


class Calibration(msgspec.Struct, frozen=True, gc=False):
    """What the responses to one tenant taught about one model: a line for each shape of prompt."""

    text: Line = Line()
    tools: Line = Line()

    def of(self, shape: Shape) -> Line:
        """The line of a shape."""
        return self.tools if shape is Shape.TOOLS else self.text

    def with_sample(self, shape: Shape, pair: Pair, start: Correction | None = None) -> Calibration:
        """The calibration after one more response (`Line.with_sample`)."""
        line = self.of(shape).with_sample(pair, start)
        return Calibration(self.text, line) if shape is Shape.TOOLS else Calibration(line, self.tools)

    def merged(self, other: Calibration) -> Calibration:
        """Of each shape, the line based on more responses."""
        merged = Calibration(self.text.merged(other.text), self.tools.merged(other.tools))
        return self if merged == self else merged


@dataclass(frozen=True, slots=True)
class Vote:
    """One caller's line: `taught` is the largest prompt that taught it, `count` the number of its responses."""

    offset: int
    ratio: float | None
    taught: int
    count: int


Votes = Mapping[bytes, Vote]  # by the caller's keyed digest


@dataclass(frozen=True, slots=True)
class Consensus:
    """The callers' votes on one model's counts, for each shape of prompt."""

    text: Votes = field(default_factory=dict)
    tools: Votes = field(default_factory=dict)

    def of(self, shape: Shape) -> Votes:
        """The votes on prompts of a shape."""
        return self.tools if shape is Shape.TOOLS else self.text

    def with_vote(self, caller: bytes, shape: Shape, line: Line) -> Consensus:
        """The consensus with a caller's line as its vote; the same object if that changes no vote."""
        known = self.of(shape).get(caller)
        if line.count < MIN_SAMPLES or (known is not None and known.count >= line.count):
            return self
        vote = Vote(line.offset, line.ratio, max(line.latest)[0], line.count)
        if known is not None and (known.offset, known.ratio) == (vote.offset, vote.ratio):
            if vote.taught < RENEWED * known.taught:
                return self
        votes = {caller: vote}
        return self.merged(Consensus(tools=votes) if shape is Shape.TOOLS else Consensus(votes))

    def merged(self, other: Consensus) -> Consensus:
        """The votes of both replicas."""
        merged = Consensus(_merged(self.text, other.text), _merged(self.tools, other.tools))
        return self if merged == self else merged

    def correction(self, shape: Shape, start: Correction | None) -> Correction | None:
        """The correction for a tenant without a line; None if there are too few votes to change the family's, whose
        figures are `start` (None: counts are exact)."""
        votes = self.of(shape).values()
        missing = QUORUM - len(votes)
        if len(votes) <= QUORUM // 2:
            return None
        offset = round(median([*(vote.offset for vote in votes), *[0] * missing]))
        taught = round(median([vote.taught for vote in votes]))
        if start is None or start.ratio is None:
            return Correction(None, None, offset, taught=taught) if offset else None
        family = start.ratio
        low, high = family * (1 - MAX_DEVIATION), family * (1 + MAX_DEVIATION)
        ratios = [min(high, max(low, vote.ratio or family)) for vote in votes]
        return Correction(median([*ratios, *[family] * missing]), None, offset, taught=taught)


def _merged(ours: Votes, theirs: Votes) -> Votes:
    """Of one caller's two votes the one based on more responses. If there are more than `MAX_VOTES`, those based on the
    fewest are dropped, so that new callers cannot displace established ones."""
    votes = dict(ours)
    for caller, vote in theirs.items():
        if caller not in votes or vote.count > votes[caller].count:
            votes[caller] = vote
    kept = sorted(votes.items(), key=lambda item: (-item[1].count, item[0]))[:MAX_VOTES]
    return dict(sorted(kept))


def corrections(own: Calibration, agreed: Consensus | None, start: Correction | None) -> Corrections | None:
    """The corrections for a tenant: by its own lines from the third response on, else by the consensus, else by the
    first responses; None if there is nothing. `agreed`: None where callers agree on nothing."""
    text = _correction(Shape.TEXT, own.text, agreed, start)
    tools = _correction(Shape.TOOLS, own.tools, agreed, start)
    return None if text is None and tools is None else Corrections(text, tools)


def _correction(shape: Shape, line: Line, agreed: Consensus | None, start: Correction | None) -> Correction | None:
    if agreed is None or line.count >= MARGIN_SAMPLES:
        return line.correction
    return agreed.correction(shape, start) or line.correction


class _Line(msgspec.Struct, frozen=True, array_like=True):
    latest: Annotated[list[tuple[Tokens, Tokens]], msgspec.Meta(max_length=MAX_SAMPLES)]
    count: Count
    offset: Offset
    ratio: Ratio | None
    share: Share | None


class _Vote(msgspec.Struct, frozen=True, array_like=True):
    offset: Offset
    ratio: Ratio | None
    taught: Tokens
    count: Count


_CALIBRATION = msgspec.msgpack.Decoder(tuple[_Line, _Line])
_Votes = Annotated[dict[Caller, _Vote], msgspec.Meta(max_length=MAX_VOTES)]
_VOTES = msgspec.msgpack.Decoder(tuple[_Votes, _Votes])


def pack(calibration: Calibration) -> bytes:
    """A calibration as msgpack: figures, at most 500 bytes."""
    lines = (calibration.text, calibration.tools)
    return msgspec.msgpack.encode([[line.latest, line.count, line.offset, line.ratio, line.share] for line in lines])


def unpack(payload: bytes) -> Calibration | None:
    """The calibration in a payload; None if it is malformed or a figure is out of range. Never raises."""
    try:
        found = _CALIBRATION.decode(payload)
    except msgspec.MsgspecError:
        return None
    lines = (Line(tuple(one.latest), one.count, one.offset, one.ratio, one.share) for one in found)
    return Calibration(*lines)


def pack_votes(consensus: Consensus) -> bytes:
    """A consensus as msgpack: figures and keyed digests, at most 4 KB."""
    both = (consensus.text, consensus.tools)
    rows = [{who: (v.offset, v.ratio, v.taught, v.count) for who, v in votes.items()} for votes in both]
    return msgspec.msgpack.encode(rows)


def unpack_votes(payload: bytes) -> Consensus | None:
    """The consensus in a payload; None if it is malformed or a figure is out of range. Never raises."""
    try:
        found = _VOTES.decode(payload)
    except msgspec.MsgspecError:
        return None
    text, tools = ({caller: Vote(v.offset, v.ratio, v.taught, v.count) for caller, v in one.items()} for one in found)
    return Consensus(text, tools)
