"""When an operator invalidated the records of a model, in memory that all worker processes share."""

from __future__ import annotations

import mmap
import struct

from xxhash import xxh3_64_intdigest

SLOTS = 1_024  # models may share a slot: a model invalidated with another one costs one refused round trip
LATEST = SLOTS  # the slot of the time that was set last
TIMESTAMP = struct.Struct("=d")


class InvalidationTimes:
    """A time for each model, in seconds since 1970. Must be created before the workers are forked, which inherit it."""

    def __init__(self) -> None:
        # Behind the times: the one that was set last. The last byte is 1 if any is set: every request reads that first.
        self._memory = mmap.mmap(-1, (SLOTS + 1) * TIMESTAMP.size + 1)

    def get(self, model: str) -> float:
        """Records of a model that are older than this are invalid; 0 if none were invalidated."""
        if not self._memory[-1]:
            return 0.0
        time: float = TIMESTAMP.unpack_from(self._memory, self._offset(model))[0]
        return time

    @property
    def latest(self) -> float:
        """The time that was set last, of whichever model: it changes with every invalidation. 0 before the first."""
        if not self._memory[-1]:
            return 0.0
        time: float = TIMESTAMP.unpack_from(self._memory, LATEST * TIMESTAMP.size)[0]
        return time

    def set(self, model: str, now: float) -> None:
        """Invalidates the records that any worker has of a model up to now."""
        TIMESTAMP.pack_into(self._memory, self._offset(model), now)
        TIMESTAMP.pack_into(self._memory, LATEST * TIMESTAMP.size, now)
        self._memory[-1] = 1

    def _offset(self, model: str) -> int:
        return TIMESTAMP.size * (xxh3_64_intdigest(model.encode("utf-8", "surrogatepass")) % SLOTS)
