"""What a model answered and what it refused without a figure, for one tenant or one of its conversations.

Theory of operation
===================

Some upstreams refuse a request for its length and name no figure (OpenAI's Responses, a gateway's 413). Such a refusal
shows only that the window is smaller than the request, and only if its length was the reason. The evidence for that is
an answer to the same request made smaller: until it comes, nothing is recorded. An upstream that refuses everything for
a while teaches nothing, however often it refuses.

An `Interval` has the largest request that was answered and the smallest that was refused; the true window lies between.
`window` is what the next requests are planned with: that of the plan that was answered after the refusal. It is no
window of the model: it holds for its tenant alone, expires, and is probed as every learned limit is (`limit_proofs`);
no error of ours rests on it.

Two levels. A conversation has an interval of its own, because what one conversation holds may be counted wrongly (an
image, a rare script) and another's not. The tenant's next conversations start from the tenant's interval. A refusal of
a request that is not larger than what the tenant was answered contradicts that answer: it says something of its own
conversation only. A second one that comes before another such answer says that the upstream changed; but not within a
minute, so that refusals at random do not add up.

Sizes are by our own count, in tokens: the prompt, and the reply that must fit with it where the reply counts.

This module is pure: no I/O and no clock.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import replace

from proxy.model.limits import LearnedLimits, Suspicion

KIND = "intervals:1"  # part of the name under which a record is stored; another format needs another number
CONTRADICTED_S = 60.0  # what was answered so lately is not contradicted by a refusal
LIFETIME_S = 21_600.0  # an interval that is not confirmed ends after this time

Tokens = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Text = Annotated[str, msgspec.Meta(max_length=64)]


class Interval(msgspec.Struct, frozen=True, gc=False):
    """The largest size that was `answered` and the smallest that was `refused` (0: none is known), the `window` to plan
    with, and when it was last confirmed, in seconds since 1970. `rule`: the row of refusals.toml that matched."""

    answered: int = 0
    refused: int = 0
    window: int = 0
    at: float = 0.0
    rule: str = ""

    def holds(self, now: float, since: float = 0.0) -> bool:
        """Whether it bounds requests at a time, if it was confirmed later than `since`."""
        return self.refused > 0 and self.at > since and abs(now - self.at) < LIFETIME_S

    def bound(self, learned: LearnedLimits) -> LearnedLimits:
        """The limits with this window. It bounds the prompt alone, too."""
        most = None if learned.max_input is None else min(learned.max_input, self.window)
        return replace(learned, window=self.window, max_input=most, supposed=True, refused=self.refused)

    def after_refusal(self, found: Suspicion, answered: int, now: float) -> Interval:
        """The interval after a refusal, and an answer to the same request of the size `answered`."""
        known = self if self.holds(now) else Interval(self.answered, at=self.at)
        at = max(now, self.at + 0.001)  # the clock of the one before may have been ahead of ours
        if known.answered >= found.size and now - self.at < CONTRADICTED_S:
            return self
        if known.answered >= found.size:
            return replace(known, answered=answered, at=at)
        refused = min(found.size, known.refused or found.size)
        largest = max(known.answered, min(answered, refused - 1))
        return Interval(largest, refused, max(largest, min(found.window, refused - 1)), at, found.rule)

    def after_answer(self, size: int, now: float) -> Interval:
        """The interval after an answer to a request of a size. It ends if as much was refused before."""
        if size <= self.answered:
            return self
        at = max(now, self.at + 0.001)
        if size >= self.refused:
            return Interval(size, at=at)
        return replace(self, answered=size, window=max(size, self.window), at=at)

    def merged(self, other: Interval) -> Interval:
        """The later of two replicas' intervals; of two at the same time the smaller."""
        return max((self, other), key=lambda one: (one.at, -one.window, -one.refused, -one.answered, one.rule))


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    answered: Tokens
    refused: Tokens
    window: Tokens
    at: Timestamp
    rule: Text


_PACKED = msgspec.msgpack.Decoder(_Packed)


def pack(interval: Interval) -> bytes:
    """An interval as msgpack: figures and the name of a rule, no content."""
    return msgspec.msgpack.encode((interval.answered, interval.refused, interval.window, interval.at, interval.rule))


def unpack(payload: bytes) -> Interval | None:
    """The interval in a payload; None if it is malformed or contradicts itself. Never raises."""
    try:
        found = Interval(*msgspec.structs.astuple(_PACKED.decode(payload)))
    except msgspec.MsgspecError:
        return None
    if found.refused and not (found.answered <= found.window < found.refused):
        return None
    return found
