"""What all workers of all replicas spent of one budget in 24 hours.

Theory of operation
===================

The backend holds one hash for each 24 hours, which ends with them. Each worker writes all that it spent itself into a
field of its own and gets the sum of all fields. A command that is repeated, since nobody knows whether it arrived, so
counts nothing twice, and a backend that was emptied knows all again as soon as each worker has written once.

No request waits for that: a worker writes soon after it spent something, and reads while it is asked. Between, replicas
may together spend more than there is, by what they spend in that time. A sum that is too old is none: each worker then
has its own share of the budget. So it is, too, before a Redis whose access list does not permit the command.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.cache.replicated import ACTIVE_S, REFRESH_S, refresh_often

KIND = "spent:1"
DAY_S = 86_400.0
OLD_S = 5 * REFRESH_S  # an older sum is not used
PAUSE_S = 0.1  # between two writes of a worker that spends all the time


class SharedSpending:
    """What was spent of a budget that `name` identifies. Every method but `refresh` returns without I/O."""

    def __init__(
        self, name: str, remote: Remote, keyring: Keyring, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parts = name.encode()
        self._remote, self._keyring, self._clock = remote, keyring, clock
        self._field, self._pid = b"", 0
        self._own = 0
        self._others = 0
        self._ends_at = 0.0  # of the 24 hours
        self._heard_at = self._asked_at = -DAY_S
        self._changed = asyncio.Event()

    @property
    def total(self) -> int | None:
        """What all spent in the current 24 hours; None where that is not known now."""
        now = self._clock()
        self._asked_at = now
        if now - self._heard_at > OLD_S:
            if self._remote.available:
                self._changed.set()
            return None
        return self.known

    @property
    def known(self) -> int | None:
        """The same, however old it is; None before the first answer. To be shown: it asks for no newer one."""
        if self._heard_at < 0:
            return None
        return self._others + self._own if self._clock() < self._ends_at else 0

    def charge(self, amount: int) -> None:
        """Adds to what this worker spent; a negative number takes some back."""
        if self._clock() >= self._ends_at:
            self._own, self._others, self._ends_at = 0, 0, self._clock() + DAY_S
        self._own += amount
        self._asked_at = self._clock()
        self._changed.set()

    async def refresh_loop(self) -> None:
        """Shares what is spent here, and learns what others spend, until cancelled."""

        async def paced() -> None:
            await self.refresh()
            await asyncio.sleep(PAUSE_S)

        await refresh_often(paced, self._changed)

    async def refresh(self) -> None:
        """Writes what this worker spent and reads the sum, if there was a need of it within the last minute."""
        sealer, began = self._keyring.sealer, self._clock()
        if sealer is None or began - self._asked_at > ACTIVE_S:
            return
        if self._pid != os.getpid():
            self._pid, self._field = os.getpid(), os.urandom(8).hex().encode()
        if began >= self._ends_at:
            self._own = self._others = 0
        own, rest = self._own, self._ends_at - began if self._own else DAY_S
        name, field = sealer.name(KIND, self._parts), self._field
        found = await self._remote.attempt_apart(lambda backend: backend.tally(name, field, own, rest))
        if found is None:
            return
        total, seconds = found
        self._heard_at = self._clock()
        self._others = max(0, total - own)
        if total:
            self._ends_at = self._heard_at + seconds
