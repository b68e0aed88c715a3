"""How far estimates agree with what was reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

CLOSE_SHARE = 0.01  # an error of no more than this is close


@dataclass(slots=True)
class Errors:
    """Errors of estimates against what was reported, as shares: a histogram in steps of 0.1 %, up to 100 %."""

    count: int = 0
    estimated: int = 0
    reported: int = 0
    within: int = 0
    _shares: Counter[int] = field(default_factory=Counter)

    def add(self, estimated: int, reported: int, whole: int) -> None:
        """Adds an estimate. Its error is a share of `whole`."""
        share = abs(estimated - reported) / whole if whole else 0.0
        self.count += 1
        self.estimated += estimated
        self.reported += reported
        self.within += share <= CLOSE_SHARE
        self._shares[min(1000, round(1000 * share))] += 1

    def quantile(self, part: float) -> float | None:
        """The error that a part of all errors does not exceed; None without any."""
        seen = 0
        for share in sorted(self._shares):
            seen += self._shares[share]
            if seen >= part * self.count:
                return share / 1000
        return None

    @property
    def mean(self) -> float | None:
        """The mean of the errors' sizes."""
        return sum(share * n for share, n in self._shares.items()) / 1000 / self.count if self.count else None
