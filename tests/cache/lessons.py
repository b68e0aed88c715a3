"""What usage taught of counts, in tests: prompts of 10,000 tokens of the encoding, of a family whose ratio is 1."""

from __future__ import annotations

from typing import Protocol

from proxy.cache.calibration import MIN_SAMPLES, Pair
from proxy.model.limits import Correction, Corrections, Shape

SIZE = 10_000
FAMILY = Correction(1.0, 0.25)


class Teachable(Protocol):
    """A `Cache`, or its `ModelRecords`."""

    def record_sample(
        self,
        model: str,
        tenant: bytes,
        shape: Shape,
        pair: Pair,
        start: Correction | None = None,
        caller: bytes | None = None,
    ) -> None:
        """Records one."""


def teach(records: Teachable, model: str, tenant: bytes, ratio: float, times: int = 1, *, votes: bool = False) -> None:
    """Records answers whose usage is so many times our count. With `votes` the tenant is a caller with a vote."""
    for _ in range(times):
        pair = SIZE, round(SIZE * ratio)
        records.record_sample(model, tenant, Shape.TEXT, pair, FAMILY, tenant if votes else None)


def counts_as(found: Corrections | None, ratio: float) -> bool:
    """Whether prompts of that size are counted about so many times as large; one answer is not believed wholly."""
    if found is None or found.text is None:
        return False
    counted = found.text.offset + (found.text.ratio or 1.0) * SIZE
    return abs(counted / SIZE - ratio) <= 0.1 * abs(ratio - 1) + 0.01


VOTE = MIN_SAMPLES  # answers after which a caller has a vote
