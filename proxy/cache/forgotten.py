"""When an operator had something forgotten, in memory that all workers of one service share."""

from __future__ import annotations

import mmap
import struct

from xxhash import xxh3_64_intdigest

PLACES = 1_024  # models share them: one that is forgotten with another learns again for a round trip
TIME = struct.Struct("=d")


class Forgotten:
    """Times by model, in seconds since 1970. Must be made before the workers are: each of them inherits it."""

    def __init__(self) -> None:
        self._times = mmap.mmap(-1, PLACES * TIME.size + 1)  # the last byte: whether there is any; each request asks

    def at(self, model: str) -> float:
        """What is older than this of a model counts as never learned; 0 where nothing was forgotten."""
        if not self._times[-1]:
            return 0.0
        time: float = TIME.unpack_from(self._times, self._place(model))[0]
        return time

    def forget(self, model: str, now: float) -> None:
        """What was learned of a model until now is forgotten, by every worker."""
        TIME.pack_into(self._times, self._place(model), now)
        self._times[-1] = 1

    def _place(self, model: str) -> int:
        return TIME.size * (xxh3_64_intdigest(model.encode("utf-8", "surrogatepass")) % PLACES)
