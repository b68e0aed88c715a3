"""Access to a shared key-value store that may be slow or down: reads within a time budget, writes in the background.

Theory of operation
===================

No request fails or waits long because of the backend. A read that a request waits for has a budget of `READ_BUDGET_S`;
if the response comes later, it is still delivered, for the next request. A failure or a late response opens the breaker
for reads: further reads are skipped until a probe in the background succeeds, so that no request pays for a probe.
Writes are queued and sent in batches by a background task. They have a breaker of their own, because a Redis that is
full or read-only rejects writes but still answers reads. So have the accounts of budgets, because an answer that is
late for a read is in time for them: without it each worker would decide alone.

This module handles bytes under names. It does not know what they mean, and it does not import the backend's library.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from proxy.cache.account_script import Found, Write
from proxy.cache.breaker import Breaker
from proxy.cache.sealing import MAX_VALUE_BYTES
from proxy.cache.stats import RemoteStats

READ_BUDGET_S = 0.020  # how long a request waits for a read
PROBE_TIMEOUT_S = 0.050  # a slower response to a probe is a failure
MAX_ACTIVE_READS = 32  # further requests continue without the cache instead of waiting for a connection
MAX_ACTIVE_EXCHANGES = 16  # further accounts wait for one of them: without a decision, each worker would decide alone
BATCH_DELAY_S = 0.05  # how long writes are collected into one batch
BATCH_SIZE = 50  # writes of one round trip: redis-py blocks the event loop for 50 us for each
WRITE_PAUSE_S = 0.005  # pause between two batches of a longer queue
MAX_QUEUED_WRITES = 10_000  # further writes are dropped
LATE = "TimeoutError"  # redis-py's, and asyncio's
# What a server says that answers others: it is full, or read-only, or does not permit the command.
REFUSED = frozenset(
    ("ResponseError", "NoPermissionError", "NoScriptError", "NoSuchAnswer", "ReadOnlyError", "OutOfMemoryError")
)
SLOW = "slow"  # the trouble of an answer that comes, but late for a read
LOG_INTERVAL_S = 60.0  # at most one log line about failures in this time

Values = Sequence[bytes | None]
Event = Callable[..., None]  # logs a message, with figures as keywords; never raises
T = TypeVar("T")


def ignore(message: str, **figures: object) -> None:
    """Discards an event: the default of `event` parameters."""


class BackendError(Exception):
    """An operation of the backend failed. Its text names the kind of failure only: no key, value or password."""


class Backend(Protocol):
    """A key-value store. Every method but `address` may raise BackendError, and nothing else."""

    @property
    def address(self) -> str:
        """Host and port, for the log; no user, no password."""

    async def get(self, names: Sequence[bytes]) -> Values:
        """The values of names in one round trip; None for a name that is absent."""

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """Stores (name, value, seconds to live) in one round trip."""

    async def set_default(self, name: bytes, value: bytes) -> bytes | None:
        """Stores a value without expiry if the name is absent. Returns the value that is stored then."""

    async def tally(self, name: bytes, field: bytes, amount: int, seconds: float) -> tuple[int, float]:
        """Sets one of the amounts under a name, in one atomic round trip. Returns their sum, and for how many seconds
        they stay: `seconds` from when the first was set. An amount of 0 is not stored where there is none."""

    async def account(self, name: bytes, write: Write) -> Found:
        """Writes to an account and reads it, in one atomic round trip."""

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        """The sizes of values in bytes; 0 for a name that is absent."""

    async def delete(self, names: Sequence[bytes]) -> None:
        """Deletes names."""

    async def close(self) -> None:
        """Closes all connections."""


class Remote:
    """One backend with its breakers, write queue and background tasks. `probe` is the name that a probe reads."""

    def __init__(
        self, backend: Backend, probe: bytes, event: Event = ignore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.backend = backend
        self.read_breaker = Breaker(clock)
        self.write_breaker = Breaker(clock)
        self.account_breaker = Breaker(clock)
        self.stats = RemoteStats()
        self._clock = clock
        self._event = event
        self._probe = probe
        self._active_reads = 0
        self._exchanges = asyncio.Semaphore(MAX_ACTIVE_EXCHANGES)
        self._late_names: Sequence[bytes] = ()  # of the last read that was late: one of its values may be too large
        self._queue: dict[bytes, tuple[bytes, float]] = {}
        self._queued = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._probing = False
        self._logged_at = self._told_at = -LOG_INTERVAL_S
        self._closed = False

    @property
    def available(self) -> bool:
        """Whether a read would be sent now."""
        return self.read_breaker.closed and self._active_reads < MAX_ACTIVE_READS and not self._closed

    @property
    def started(self) -> bool:
        """Whether background tasks run."""
        return bool(self._tasks)

    def start(self) -> None:
        """Starts the background tasks. The first probe connects, so that no request has to."""
        self.spawn(self._write_loop())
        self._start_probing()

    async def close(self) -> None:
        """Cancels all tasks, writes what is queued if that takes less than `PROBE_TIMEOUT_S`, and disconnects."""
        self._closed = True
        while self._tasks:  # repeated: redis-py may lose a cancellation that arrives while it connects
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=PROBE_TIMEOUT_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                while self._queue and self.write_breaker.closed:
                    await self._write_batch()
        with contextlib.suppress(BackendError):
            await self.backend.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a background task that `close` cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def read(self, names: Sequence[bytes], deliver: Callable[[Values], None]) -> None:
        """Reads names and passes their values to `deliver`. Waits at most `READ_BUDGET_S`; never raises BackendError.

        A late response is still delivered, for the next request. The read is a task of its own: a client that
        disconnects cancels the waiting, never a command whose response is half read on a shared connection.
        """
        if not self.available:
            self.stats.skipped += 1
            return
        self._active_reads += 1
        task = self.spawn(self._read(names, deliver))
        await asyncio.wait({task}, timeout=READ_BUDGET_S)
        for _ in range(4):  # a busy event loop may have received the response and not have run the task yet
            if task.done():
                return
            await asyncio.sleep(0)
        self.stats.late += 1
        self._late_names = names
        self._record_failure(self.read_breaker, SLOW)

    async def _read(self, names: Sequence[bytes], deliver: Callable[[Values], None]) -> None:
        self.stats.reads += 1
        started = self._clock()
        try:
            values = await self.backend.get(names)
        except BackendError as error:
            self._record_failure(self.read_breaker, str(error))
            return
        finally:
            self._active_reads -= 1
        if self._clock() - started <= READ_BUDGET_S and self.read_breaker.closed:
            self.read_breaker.record_success()
        deliver(values)

    async def attempt(self, operation: Callable[[Backend], Awaitable[T]]) -> T | None:
        """Runs an operation for which no request waits. None if the backend is unavailable or fails."""
        if not self.read_breaker.closed or self._closed:
            return None
        try:
            return await operation(self.backend)
        except BackendError as error:
            self._record_failure(self.read_breaker, str(error))
            return None

    async def attempt_apart(self, operation: Callable[[Backend], Awaitable[T]]) -> T | None:
        """As `attempt`, for a command that the backend may refuse while it serves all others: a failure opens no
        breaker."""
        if not self.read_breaker.closed or self._closed:
            return None
        try:
            return await operation(self.backend)
        except BackendError:
            return None

    async def exchange(self, operation: Callable[[Backend], Awaitable[T]]) -> T | None:
        """Runs an operation that a request waits for, as long as a command may take. None if the backend is not
        available or fails: of one that does not answer, no further request waits. A command that it refuses opens no
        breaker, and neither do reads that are late."""
        async with self._exchanges:
            if not self.account_breaker.closed or self._closed:
                self.stats.skipped += 1
                return None
            try:
                found = await self._twice(operation)
            except BackendError as error:
                if str(error) in REFUSED:
                    self._record_refusal(str(error))
                else:
                    self._record_failure(self.read_breaker, str(error))
                return None
        if self.account_breaker.closed:
            self.account_breaker.record_success()
        return found

    async def _twice(self, operation: Callable[[Backend], Awaitable[T]]) -> T:
        """The result of an operation that counts nothing twice. One that is late is repeated: a loop that was busy for
        longer than a command may take finds its timer due beside the answer that has come."""
        try:
            return await operation(self.backend)
        except BackendError as error:
            if str(error) != LATE:
                raise
        return await operation(self.backend)

    def write(self, name: bytes, value: bytes, seconds: float) -> None:
        """Queues a value with its time to live. A value that is too large or finds the queue full is dropped."""
        if len(value) > MAX_VALUE_BYTES or (len(self._queue) >= MAX_QUEUED_WRITES and name not in self._queue):
            self.stats.lost += 1
            return
        self._queue[name] = (value, seconds)
        self._queued.set()

    def write_last(self, name: bytes, value: bytes, seconds: float) -> None:
        """As `write`, behind all that is queued, even if the name is queued already."""
        self._queue.pop(name, None)
        self.write(name, value, seconds)

    async def _write_loop(self) -> None:
        while True:
            await self._queued.wait()
            delay = WRITE_PAUSE_S if len(self._queue) > BATCH_SIZE else BATCH_DELAY_S
            await asyncio.sleep(max(delay, self.write_breaker.remaining))
            await self._write_batch()

    async def _write_batch(self) -> None:
        batch = [(name, *self._queue.pop(name)) for name in list(self._queue)[:BATCH_SIZE]]
        if not self._queue:
            self._queued.clear()
        try:
            await self.backend.put(batch)
            self.write_breaker.record_success()
        except BackendError as error:
            self.stats.lost += len(batch)
            self._record_failure(self.write_breaker, str(error))
        except Exception as error:  # a bug of ours: it loses this batch, and nothing else
            self.stats.lost += len(batch)
            self._record_failure(self.write_breaker, type(error).__name__)

    def _record_failure(self, breaker: Breaker, kind: str) -> None:
        breaker.record_failure()
        if breaker is self.read_breaker and kind != SLOW:
            self.account_breaker.record_failure()
        self.stats.errors += 1
        if self._clock() - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = self._clock()
            self._event(
                "the shared cache fails; requests continue without it", server=self.backend.address, trouble=kind
            )
        if breaker is self.read_breaker:
            self._start_probing()

    def _record_refusal(self, kind: str) -> None:
        self.stats.errors += 1
        if self._clock() - self._told_at >= LOG_INTERVAL_S:
            self._told_at = self._clock()
            self._event(
                "the shared cache refuses the accounts of budgets: each worker counts alone",
                server=self.backend.address,
                trouble=kind,
            )

    def _start_probing(self) -> None:
        if not self._probing:
            self._probing = True
            self.spawn(self._probe_loop())

    async def _probe_loop(self) -> None:
        """Probes until an answer comes in time, then closes the breaker for reads; for accounts any answer does."""
        try:
            while True:
                opened = [one for one in (self.read_breaker, self.account_breaker) if not one.closed]
                await asyncio.sleep(min((one.remaining for one in opened), default=0.0))
                seconds = await self._probe_seconds()
                if seconds is None:
                    continue
                self.account_breaker.close()
                if seconds > PROBE_TIMEOUT_S:
                    self.read_breaker.record_failure()
                elif not self.read_breaker.remaining:
                    self.read_breaker.close()
                    return
        finally:
            self._probing = False

    async def _probe_seconds(self) -> float | None:
        """How long an answer took; None if none came."""
        try:
            await self._delete_oversize()
            started = self._clock()
            await self.backend.get([self._probe])
        except BackendError as error:
            self._record_failure(self.read_breaker, str(error))
            return None
        return self._clock() - started

    async def _delete_oversize(self) -> None:
        """Deletes values that are too large to be ours: one of 100 MB would delay every read of its name."""
        names, self._late_names = self._late_names, ()
        if not names:
            return
        sizes = await self.backend.sizes(names)
        oversize = [name for name, size in zip(names, sizes, strict=True) if size > MAX_VALUE_BYTES]
        if oversize:
            await self.backend.delete(oversize)
            self.stats.oversize += len(oversize)
