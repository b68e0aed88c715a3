"""The intervals of conversations, found by the longest of a request's prefixes that is known; in this process alone.

Only conversations that met a refusal without figures have one. Digests are those of `proxy.wire.scan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.cache.intervals import Interval
from proxy.model.bounded import Bounded

MAX_CONVERSATIONS, MAX_TENANTS = 4_096, 4_096
Prefix = tuple[str, bytes, int]  # a model, a tenant, the digest of a prefix


@dataclass(frozen=True, slots=True)
class Conversations:
    """Intervals by the last prefix of their conversation that was answered."""

    _intervals: Bounded[Prefix, Interval] = field(default_factory=lambda: Bounded(MAX_CONVERSATIONS))

    _tenants: Bounded[tuple[str, bytes], bool] = field(default_factory=lambda: Bounded(MAX_TENANTS))

    @property
    def filled(self) -> bool:
        """Whether there ever was an interval."""
        return self._tenants.filled

    def has(self, model: str, tenant: bytes) -> bool:
        """Whether a conversation of a tenant may have an interval."""
        return self._tenants.filled and self._tenants.get((model, tenant)) is not None

    def find(self, model: str, tenant: bytes, digests: Sequence[int]) -> Interval | None:
        """The interval of the conversation that has these prefixes, shortest first; None if it has none."""
        for digest in reversed(digests if self._intervals.filled else ()):
            found = self._intervals.get((model, tenant, digest))
            if found is not None:
                return found
        return None

    def put(self, model: str, tenant: bytes, digests: Sequence[int], interval: Interval) -> None:
        """The conversation has come to the last of these prefixes."""
        if digests:
            self._tenants.put((model, tenant), True)
            self._intervals.put((model, tenant, digests[-1]), interval)
