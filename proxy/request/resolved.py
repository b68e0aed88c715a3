"""What is remembered of a model, so that most requests look its facts up instead of working them out."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from proxy.model.bounded import Bounded
from proxy.model.limits import LearnedLimits, Window

MOST_CAPS = 64  # of one model: clients choose them


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What follows from one `version` of the upstream's model list, if nothing was learned: a model's window under the
    operator's limit, and a hash of everything that its counts depend on besides the request. `capped`: the same under
    caps of clients and of their rules, by these."""

    listed: int
    window: Window
    counted_as: int
    capped: Bounded[int, Window] = field(default_factory=lambda: Bounded(MOST_CAPS), compare=False)


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """What usage taught about a model's counts for a tenant, as it holds for bodies of at most `most` bytes: at one
    `version` of the records, and while it was known that the upstream checks keys, or was not (`keyed`)."""

    version: tuple[int, float]
    keyed: bool
    learned: LearnedLimits
    most: int
