"""Counters of the shared cache, read by the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class LookupStats:
    """Results of lookups in the backend. A `foreign` value is one under our name that we did not write; it is also a
    miss."""

    hits: int = 0
    misses: int = 0
    foreign: int = 0

    def record(self, value: bytes | None, decoded: T | None) -> T | None:
        """Counts one lookup: the value that the backend returned and what it decodes to. Returns `decoded`."""
        self.hits += decoded is not None
        self.misses += decoded is None
        self.foreign += value is not None and decoded is None
        return decoded


@dataclass(slots=True)
class RemoteStats:
    """Operations on the backend. `skipped` reads were not sent (open breaker, too many in progress), `late` reads
    exceeded the budget of a request, `lost` writes were not stored, `oversize` values were deleted."""

    reads: int = 0
    skipped: int = 0
    late: int = 0
    errors: int = 0
    lost: int = 0
    oversize: int = 0
