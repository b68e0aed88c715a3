"""What one process remembers of counts; nothing in it leaves it."""

from __future__ import annotations

from proxy.model.bounded import SMALL, Bounded

COUNTS, COUNTS_BYTES = 200_000, 48 << 20  # blocks: the histories of some thousand conversations
FIGURE = 40  # bytes of one message's cost


class LocalMemory(Bounded[bytes, tuple[int, ...]]):
    """Counts by key: a `types.Memory`."""

    __slots__ = ()

    def __init__(self, most: int = COUNTS, limit: int = COUNTS_BYTES) -> None:
        super().__init__(most, limit)

    def put(self, key: bytes, value: tuple[int, ...], weight: int = SMALL) -> tuple[int, ...]:
        """Remembers it; the oldest may go."""
        return Bounded.put(self, key, value, weight if len(value) <= 2 else SMALL + FIGURE * len(value))
