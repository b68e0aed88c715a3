"""What one process remembers: bounded maps that forget what was not used for longest; nothing in them leaves it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

MOST_COUNTS = 200_000  # blocks: about 40 MB, the histories of some thousand conversations
V = TypeVar("V")


class LocalMemory:
    """Counts by key (a `types.Memory`): two generations of a dict, the older of which is dropped when the younger is
    full. What is used moves to the younger, so at least the last `most / 2` used are kept. Safe between threads: a race
    costs a count at most."""

    def __init__(self, most: int = MOST_COUNTS) -> None:
        self._half = max(1, most // 2)
        self._young: dict[bytes, tuple[int, ...]] = {}
        self._old: dict[bytes, tuple[int, ...]] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """What was remembered, or None."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        """Remember it; the oldest may go."""
        if len(self._young) >= self._half and key not in self._young:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class Recent(Generic[V]):
    """A map of at most `most` entries that weigh at most `limit` together; what was not used for longest goes first."""

    def __init__(self, most: int, limit: int = sys.maxsize) -> None:
        self._most = most
        self._limit = limit
        self._used = 0
        self._entries: OrderedDict[bytes, tuple[V, int]] = OrderedDict()

    def get(self, key: bytes) -> V | None:
        """What was remembered, or None; it now is the newest."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, value: V, weight: int = 0) -> None:
        """Remember it as the newest; not at all where it alone is over the limit."""
        self._used -= self._entries.pop(key, (None, 0))[1]
        if weight > self._limit:
            return
        while len(self._entries) >= self._most or self._used + weight > self._limit:
            self._used -= self._entries.popitem(last=False)[1][1]
        self._entries[key] = (value, weight)
        self._used += weight

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return ((key, value) for key, (value, _) in self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)
