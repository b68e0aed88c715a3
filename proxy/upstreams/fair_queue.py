"""A semaphore that is fair between callers: waiting callers are served round-robin, so that a busy one delays no other.

It does not know what the work is, and it imposes no timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class QueueFull(Exception):
    """Too many tasks are waiting already."""


class FairQueue:
    """Limits concurrent work, in total and per caller.

    At most `max_active` tasks run at once, at most `max_active_each` of them for one caller. At most `max_waiting`
    tasks wait, at most `max_waiting_each` of one caller. Between callers the order is round-robin, within a caller it
    is first in, first out, but for an `urgent` task, which is the next of its caller.
    """

    def __init__(self, max_active: int, max_active_each: int, max_waiting: int, max_waiting_each: int) -> None:
        self._max_active, self._max_active_each = max_active, max_active_each
        self._max_waiting, self._max_waiting_each = max_waiting, max_waiting_each
        self._active: Counter[bytes] = Counter()
        self._queues: dict[bytes, deque[asyncio.Future[None]]] = {}  # by caller; the next caller to be served is first
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def slot(self, caller: bytes, urgent: bool = False) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the duration of the `with` block. Raises QueueFull without waiting."""
        await self._acquire(caller, urgent)
        try:
            yield
        finally:
            self._release(caller)

    async def _acquire(self, caller: bytes, urgent: bool) -> None:
        if self._has_slot(caller):
            self._active[caller] += 1
            return
        queue = self._queues.get(caller, ())
        if self._waiting >= self._max_waiting or len(queue) >= self._max_waiting_each:
            raise QueueFull
        ready = asyncio.get_running_loop().create_future()
        waiting = self._queues.setdefault(caller, deque())
        (waiting.appendleft if urgent else waiting.append)(ready)
        self._waiting += 1
        try:
            await ready
        except asyncio.CancelledError:
            if ready.cancelled():
                self._leave(caller, ready)
            else:  # the slot was granted just before the cancellation
                self._release(caller)
            raise

    def _leave(self, caller: bytes, ready: asyncio.Future[None]) -> None:
        """Gives up the place of a task that no longer waits, unless `_grant` has passed it over already."""
        queue = self._queues.get(caller) or deque()
        if ready in queue:
            queue.remove(ready)
            self._waiting -= 1
        if not queue:
            self._queues.pop(caller, None)

    def _has_slot(self, caller: bytes) -> bool:
        return self._active.total() < self._max_active and self._active[caller] < self._max_active_each

    def _release(self, caller: bytes) -> None:
        self._active[caller] -= 1
        if not self._active[caller]:
            del self._active[caller]
        while (following := next(filter(self._has_slot, self._queues), None)) is not None:
            self._grant(following)

    def _grant(self, caller: bytes) -> None:
        """Gives a slot to the caller's oldest waiting task, and moves the caller to the end of the rotation."""
        queue = self._queues.pop(caller)
        ready = queue.popleft()
        self._waiting -= 1
        if queue:
            self._queues[caller] = queue
        if not ready.cancelled():
            self._active[caller] += 1
            ready.set_result(None)
