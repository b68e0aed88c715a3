"""A shared store that may be slow, wrong or gone: asked within a budget, left alone while it fails, probed aside.

It knows bytes under names, not what they mean, and no library: a backend does what is asked of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from proxy.cache.breaker import Breaker

BUDGET = 0.020  # seconds that a request waits; the answer may come later, for the next request
PROBE_SECONDS = 0.050  # an answer to a probe that takes longer is none
MOST_ASKING = 32  # questions under way; further requests go on alone rather than wait for a connection
GATHER = 0.05  # seconds in which writes are gathered into one batch
BATCH = 50  # writes of one round trip: redis-py takes 50 us for each, in which the event loop stands still
WRITE_PAUSE_S = 0.005  # seconds between two batches of a longer queue
MOST_QUEUED = 10_000  # writes that wait; further ones are forgotten
LARGEST = 64 * 1024  # bytes of a value that can be ours; one of 100 MB would stop every question that meets it
QUIET = 60.0  # seconds between two lines about trouble

Values = Sequence[bytes | None]
Event = Callable[..., None]  # takes a message, and figures as keywords; never raises
T = TypeVar("T")


def ignore(message: str, **figures: object) -> None:
    """Reports nothing."""


class BackendError(Exception):
    """A backend did not do what it was asked; its text is the kind of trouble alone: no key, value or password."""


class Backend(Protocol):
    """Where bytes are kept under names. Every method may raise BackendError, and nothing else."""

    @property
    def place(self) -> str:
        """Host and port, for logs; no user, no password."""

    async def get(self, names: Sequence[bytes]) -> Values:
        """The values of names, None for what is not there: one question, however many."""

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """Keeps values under names for so many seconds."""

    async def agree(self, name: bytes, value: bytes) -> bytes | None:
        """Keeps a value for good if there is none, and tells what is there now."""

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        """The sizes of values in bytes."""

    async def drop(self, names: Sequence[bytes]) -> None:
        """Forgets names."""

    async def close(self) -> None:
        """Ends all connections."""


@dataclass(slots=True)
class Tally:
    """What happened so far. `skipped` questions were not asked (open breaker, too many under way), `late` ones not
    answered within the budget; `lost` writes were not kept; `oversize` values were removed."""

    asked: int = 0
    skipped: int = 0
    late: int = 0
    errors: int = 0
    lost: int = 0
    oversize: int = 0


class Remote:
    """One backend, with a breaker for reading and one for writing: a full Redis refuses writes and still answers."""

    def __init__(
        self, backend: Backend, probe: bytes, event: Event = ignore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.backend = backend
        self.reading = Breaker(clock)
        self.writing = Breaker(clock)
        self.tally = Tally()
        self._clock = clock
        self._event = event
        self._probe = probe
        self._asking = 0
        self._suspects: Sequence[bytes] = ()
        self._queue: dict[bytes, tuple[bytes, float]] = {}
        self._queued = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._probing = False
        self._told = -QUIET
        self._ended = False

    @property
    def usable(self) -> bool:
        """Whether a question would be asked now."""
        return self.reading.closed and self._asking < MOST_ASKING and not self._ended

    def start(self) -> None:
        """Begins to write and to probe: the first connection is made before a request needs it."""
        self.spawn(self._write_on())
        self._watch()

    async def close(self) -> None:
        """Writes what waits, if that can be done soon, and ends: nothing is asked any more."""
        self._ended = True
        while self._tasks:  # again, if need be: a library may lose a cancellation that meets it while it connects
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=PROBE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                while self._queue and self.writing.closed:
                    await self._write()
        with contextlib.suppress(BackendError):
            await self.backend.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs something beside the requests, until it ends or `close` is called."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ask(self, names: Sequence[bytes], take: Callable[[Values], None]) -> None:
        """Reads names and hands the values to `take`, within the budget of a request. An answer that comes later is
        still taken, for the next request. The question is a task of its own: a client that goes away cancels the
        waiting, never a command half read from a connection that others will use."""
        if not self.usable:
            self.tally.skipped += 1
            return
        self._asking += 1
        task = self.spawn(self._asked(names, take))
        await asyncio.wait({task}, timeout=BUDGET)
        for _ in range(4):  # a busy event loop may have the answer and not have handed it on yet
            if task.done():
                return
            await asyncio.sleep(0)
        self.tally.late += 1
        self._suspects = names
        self._trouble(self.reading, "slow")

    async def _asked(self, names: Sequence[bytes], take: Callable[[Values], None]) -> None:
        self.tally.asked += 1
        began = self._clock()
        try:
            values = await self.backend.get(names)
        except BackendError as error:
            self._trouble(self.reading, str(error))
            return
        finally:
            self._asking -= 1
        if self._clock() - began <= BUDGET and self.reading.closed:
            self.reading.succeed()
        take(values)

    async def aside(self, work: Callable[[Backend], Awaitable[T]]) -> T | None:
        """Does something that no request waits for; None where it cannot be done now."""
        if not self.reading.closed or self._ended:
            return None
        try:
            return await work(self.backend)
        except BackendError as error:
            self._trouble(self.reading, str(error))
            return None

    def write(self, name: bytes, value: bytes, seconds: float) -> None:
        """Keeps a value, soon and without anybody waiting for it; one that cannot be kept is forgotten."""
        if len(value) > LARGEST or (len(self._queue) >= MOST_QUEUED and name not in self._queue):
            self.tally.lost += 1
            return
        self._queue[name] = (value, seconds)
        self._queued.set()

    async def _write_on(self) -> None:
        while True:
            await self._queued.wait()
            await asyncio.sleep(max(WRITE_PAUSE_S if len(self._queue) > BATCH else GATHER, self.writing.remaining))
            await self._write()

    async def _write(self) -> None:
        batch = [(name, *self._queue.pop(name)) for name in list(self._queue)[:BATCH]]
        if not self._queue:
            self._queued.clear()
        try:
            await self.backend.put(batch)
            self.writing.succeed()
        except BackendError as error:
            self.tally.lost += len(batch)
            self._trouble(self.writing, str(error))

    def _trouble(self, breaker: Breaker, kind: str) -> None:
        breaker.fail()
        self.tally.errors += 1
        if self._clock() - self._told >= QUIET:
            self._told = self._clock()
            self._event("the shared cache fails; requests go on without it", server=self.backend.place, trouble=kind)
        if breaker is self.reading:
            self._watch()

    def _watch(self) -> None:
        if not self._probing:
            self._probing = True
            self.spawn(self._probe_on())

    async def _probe_on(self) -> None:
        """Probes until an answer comes in time; no request ever pays for a probe."""
        try:
            while True:
                await asyncio.sleep(self.reading.remaining)
                if await self._answers():
                    self.reading.close()
                    return
                self.reading.fail()
        finally:
            self._probing = False

    async def _answers(self) -> bool:
        began = self._clock()
        try:
            await self._purge()
            began = self._clock()
            await self.backend.get([self._probe])
        except BackendError as error:
            self._trouble(self.reading, str(error))
            return False
        return self._clock() - began <= PROBE_SECONDS

    async def _purge(self) -> None:
        """Removes what nobody could read in time: a value far larger than any of ours, put there by somebody else."""
        names, self._suspects = self._suspects, ()
        if not names:
            return
        sizes = await self.backend.sizes(names)
        large = [name for name, size in zip(names, sizes, strict=True) if size > LARGEST]
        if large:
            await self.backend.drop(large)
            self.tally.oversize += len(large)
