"""Timeouts and client disconnects: they interrupt a task, and the task raises a specific error, not CancelledError."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

TICK = 0.1  # seconds between two checks of the pending timeouts
DISCONNECT_POLL_DELAY = 0.1  # seconds until polling for a disconnect starts: most short requests end before
PRESSURE_SECONDS = 0.25  # between two questions which rate is needed now
RATE_SAMPLES = 20  # such questions, over which that rate is measured: 5 seconds


class ClientDisconnected(Exception):
    """The client disconnected before its response was complete."""


class Timed(Protocol):
    """A callback that is due at a time of the loop's clock."""

    due: float

    def on_due(self) -> None:
        """Called once the time `due` is reached, up to one `TICK` late."""


class _TimeoutSweep:
    """Checks all pending timeouts of one event loop with one timer. A timer for each would dominate the cost."""

    __slots__ = ("_ticking", "loop", "pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticking = False
        self.pending: set[Timed] = set()

    def add(self, interrupt: Timed) -> None:
        self.pending.add(interrupt)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        for interrupt in tuple(self.pending):
            if now >= interrupt.due:
                self.pending.discard(interrupt)
                interrupt.on_due()
        self._ticking = bool(self.pending)
        if self._ticking:
            self.loop.call_later(TICK, self._tick)


_SWEEPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _TimeoutSweep] = WeakKeyDictionary()
_NEWEST: list[_TimeoutSweep] = []  # the sweep of the last loop: a process has one, and a dictionary look-up costs more


def _sweep_of(loop: asyncio.AbstractEventLoop) -> _TimeoutSweep:
    if _NEWEST and _NEWEST[0].loop is loop:
        return _NEWEST[0]
    sweep = _SWEEPS.get(loop)
    if sweep is None:
        sweep = _SWEEPS[loop] = _TimeoutSweep(loop)
    _NEWEST[:] = [sweep]
    return sweep


class Interrupt:
    """Cancels the current task after `seconds`, up to one `TICK` late; the block then raises `error()`.

    It works like asyncio.timeout, at a tenth of its cost.
    """

    __slots__ = ("_cancelling", "_error", "_sweep", "_task", "due", "fired")

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._error = error
        self.fired = False
        self.due = loop.time() + seconds
        self._sweep = _sweep_of(loop)
        self._sweep.add(self)

    def on_due(self) -> None:
        """Cancels the task."""
        self.fired = True
        self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        self._sweep.pending.discard(self)
        self._settle(kind)

    def _settle(self, kind: type[BaseException] | None) -> None:
        if self.fired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error() from None


class ProgressTimeout(Interrupt):
    """Interrupts its task if `progress()`, a count of bytes, does not rise for `seconds` (up to half as many more), or
    rises by fewer than `rate` bytes per second. `pressure()` returns a further rate, needed just now; infinity
    interrupts at once."""

    __slots__ = ("_end", "_pace", "_pressure", "_progress", "_rate", "_samples", "_seen", "_since")

    def __init__(
        self,
        seconds: float,
        error: Callable[[], Exception],
        progress: Callable[[], int],
        rate: float = 0.0,
        pressure: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(seconds, error)
        self._since, self._end, self._pace = self.due - seconds, self.due, seconds / 2
        self._progress, self._rate, self._pressure = progress, rate, pressure
        self._seen = progress()
        self._samples = deque(((self._since, self._seen),), RATE_SAMPLES)
        if pressure is not None:
            self.due = min(self.due, self._since + PRESSURE_SECONDS)

    def on_due(self) -> None:
        """Checks the progress. Interrupts the task, or schedules the next check."""
        now, seen = self._sweep.loop.time(), self._progress()
        pressure = 0.0 if self._pressure is None else self._pressure()
        enough = pressure < math.inf
        if enough and pressure and len(self._samples) == RATE_SAMPLES:
            began, before = self._samples[0]
            enough = seen - before >= pressure * (now - began)
        self._samples.append((now, seen))
        if now >= self._end:
            enough = enough and seen - self._seen >= max(1.0, self._rate * (now - self._since))
            self._seen, self._since, self._end = seen, now, now + self._pace
        if not enough:
            super().on_due()
            return
        self.due = self._end if self._pressure is None else min(self._end, now + PRESSURE_SECONDS)
        self._sweep.add(self)


class MinReadRate:
    """Calls `abort` if a client reads fewer than `rate` bytes per second over an interval of `seconds`. `unsent()`
    returns the number of unsent bytes. Runs from its creation until `stop`."""

    __slots__ = ("_abort", "_least", "_seconds", "_seen", "_sweep", "_unsent", "due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        rate: float,
        unsent: Callable[[], int],
        abort: Callable[[], None],
    ) -> None:
        self._sweep, self._unsent, self._abort = _sweep_of(loop), unsent, abort
        self._seconds, self._least, self._seen = seconds, max(1.0, rate * seconds), unsent()
        self.due = loop.time() + seconds
        self._sweep.add(self)

    def on_due(self) -> None:
        """Checks how much the client has read. Calls `abort`, or schedules the next check."""
        unsent = self._unsent()
        if self._seen - unsent < self._least:
            self._abort()
            return
        self._seen = unsent
        self.due = self._sweep.loop.time() + self._seconds
        self._sweep.add(self)

    def stop(self) -> None:
        """Stops the checks."""
        self._sweep.pending.discard(self)


class DisconnectNotifier(Protocol):
    """A request that calls `on_disconnect` as soon as its client disconnects: the cycle of this project's server."""

    disconnected: bool
    on_disconnect: Callable[[], None] | None


class OnDisconnect(Interrupt):
    """Interrupts its task with ClientDisconnected as soon as the server detects a disconnect."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: DisconnectNotifier) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._error = ClientDisconnected
        self.fired = False
        self._cycle = cycle

    def __enter__(self) -> None:
        if self._cycle.disconnected:
            raise ClientDisconnected
        self._cycle.on_disconnect = self.on_due

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        self._cycle.on_disconnect = None
        if self.fired:
            self._settle(kind)


class PollDisconnect(Interrupt):
    """The same for any other ASGI server, by polling `receive`. The request's body must have been received."""

    __slots__ = ("_receive", "_watcher")

    def __init__(self, receive: Receive) -> None:
        super().__init__(DISCONNECT_POLL_DELAY, ClientDisconnected)
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    def on_due(self) -> None:
        """Starts polling for a disconnect."""
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        super().on_due()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        super().__exit__(kind, value, _)


def interrupt_on_disconnect(receive: Receive, cycle: DisconnectNotifier | None) -> Interrupt:
    """Returns an interrupt that raises ClientDisconnected in its block when the client disconnects."""
    return PollDisconnect(receive) if cycle is None else OnDisconnect(cycle)
