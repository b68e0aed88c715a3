"""Turns at something that only few may do at once: callers take turns, so that one who wants much delays no other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class Busy(Exception):
    """Too many wait already."""


class Turns:
    """At most `at_once` work at the same time, `each` of them for one caller. At most `most` wait, and `most_each` of
    one caller: first come, first served among its own, and one of each caller after the other."""

    def __init__(self, at_once: int, each: int, most: int, most_each: int) -> None:
        self._at_once, self._each, self._most, self._most_each = at_once, each, most, most_each
        self._working: Counter[bytes] = Counter()
        self._waiting: dict[bytes, deque[asyncio.Future[None]]] = {}  # in the order of whose turn is next
        self._queued = 0

    @contextlib.asynccontextmanager
    async def turn(self, caller: bytes) -> AsyncIterator[None]:
        """Waits for a turn of this caller's and holds it. Raises Busy at once where too many wait."""
        await self._begin(caller)
        try:
            yield
        finally:
            self._end(caller)

    async def _begin(self, caller: bytes) -> None:
        if self._free(caller):
            self._working[caller] += 1
            return
        queue = self._waiting.get(caller, ())
        if self._queued >= self._most or len(queue) >= self._most_each:
            raise Busy
        ready = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(ready)
        self._queued += 1
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():  # its turn had come just then
                self._end(caller)
            raise

    def _free(self, caller: bytes) -> bool:
        return self._working.total() < self._at_once and self._working[caller] < self._each

    def _end(self, caller: bytes) -> None:
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]
        while (next_ := next(filter(self._free, self._waiting), None)) is not None:
            self._call(next_)

    def _call(self, caller: bytes) -> None:
        """Gives the oldest that waits of a caller its turn, and lets all other callers go before the next."""
        queue = self._waiting.pop(caller)
        ready = queue.popleft()
        self._queued -= 1
        if queue:
            self._waiting[caller] = queue
        if not ready.cancelled():
            self._working[caller] += 1
            ready.set_result(None)
