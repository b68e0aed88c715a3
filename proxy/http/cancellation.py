"""Timeouts and client disconnects: they interrupt a task, and the task raises a specific error, not CancelledError."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

TICK = 0.1  # seconds between two checks of the pending timeouts
LOOK_AFTER = 0.1  # seconds until polling for a disconnect starts: most short requests end before and need no task


PRESSED_SECONDS = 5.0  # between two checks of the rate of a body while other requests may wait for memory
PRESSED_RATE = 64 * 1024  # bytes per second that such a body must reach then; otherwise the configured rate applies


class ClientDisconnected(Exception):
    """The client disconnected before its response was complete."""


class Timed(Protocol):
    """A callback that is due at a time of the loop's clock."""

    due: float

    def rouse(self) -> None:
        """Called once the time `due` is reached."""


class _Clock:
    """Checks all pending timeouts of one event loop with one timer. A timer for each would dominate the cost."""

    __slots__ = ("_ticking", "loop", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticking = False
        self.waiting: set[Timed] = set()

    def add(self, interrupt: Timed) -> None:
        self.waiting.add(interrupt)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        for interrupt in tuple(self.waiting):
            if now >= interrupt.due:
                self.waiting.discard(interrupt)
                interrupt.rouse()
        self._ticking = bool(self.waiting)
        if self._ticking:
            self.loop.call_later(TICK, self._tick)


_CLOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clock] = WeakKeyDictionary()
_LAST: list[_Clock] = []  # the clock of the last loop: a process has one, and a dictionary look-up costs more


def _clock(loop: asyncio.AbstractEventLoop) -> _Clock:
    if _LAST and _LAST[0].loop is loop:
        return _LAST[0]
    clock = _CLOCKS.get(loop)
    if clock is None:
        clock = _CLOCKS[loop] = _Clock(loop)
    _LAST[:] = [clock]
    return clock


class Interrupt:
    """Cancels the current task after `seconds`, up to one `TICK` late; the block then raises `error()`.

    It works like asyncio.timeout, at a tenth of its cost.
    """

    __slots__ = ("_cancelling", "_clock", "_error", "_task", "due", "struck")

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._error = error
        self.struck = False
        self.due = loop.time() + seconds
        self._clock = _clock(loop)
        self._clock.add(self)

    def rouse(self) -> None:
        """Cancels the task."""
        self.struck = True
        self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        self._clock.waiting.discard(self)
        self._settle(kind)

    def _settle(self, kind: type[BaseException] | None) -> None:
        if self.struck and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error() from None


class ProgressTimeout(Interrupt):
    """Interrupts its task if `progress()`, a count of bytes, does not rise for `seconds` (up to half as many more), or
    rises by fewer than `rate` bytes per second. A higher rate is required while `pressed()`."""

    __slots__ = ("_end", "_last", "_pace", "_pressed", "_progress", "_rate", "_seen", "_since")

    def __init__(
        self,
        seconds: float,
        error: Callable[[], Exception],
        progress: Callable[[], int],
        rate: float = 0.0,
        pressed: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(seconds, error)
        self._since, self._end, self._pace = self.due - seconds, self.due, seconds / 2
        self._progress, self._rate, self._pressed = progress, rate, pressed
        self._seen = self._last = progress()
        self.due = min(self.due, self._since + PRESSED_SECONDS)

    def rouse(self) -> None:
        """Checks the progress. Interrupts the task, or schedules the next check."""
        now, seen = self._clock.loop.time(), self._progress()
        least = PRESSED_RATE * PRESSED_SECONDS if self._pressed is not None and self._pressed() else 0
        enough = seen - self._last >= least
        self._last = seen
        if now >= self._end:
            enough = enough and seen - self._seen >= max(1.0, self._rate * (now - self._since))
            self._seen, self._since, self._end = seen, now, now + self._pace
        if not enough:
            super().rouse()
            return
        self.due = min(self._end, now + PRESSED_SECONDS)
        self._clock.add(self)


class Unread:
    """Calls `cut` if a client reads fewer than `rate` bytes per second over an interval of `seconds`. `left()` returns
    the number of unsent bytes. Runs from its creation until `stop`."""

    __slots__ = ("_clock", "_cut", "_least", "_left", "_seconds", "_seen", "due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        rate: float,
        left: Callable[[], int],
        cut: Callable[[], None],
    ) -> None:
        self._clock, self._left, self._cut = _clock(loop), left, cut
        self._seconds, self._least, self._seen = seconds, max(1.0, rate * seconds), left()
        self.due = loop.time() + seconds
        self._clock.add(self)

    def rouse(self) -> None:
        """Checks how much the client has read. Calls `cut`, or schedules the next check."""
        left = self._left()
        if self._seen - left < self._least:
            self._cut()
            return
        self._seen = left
        self.due = self._clock.loop.time() + self._seconds
        self._clock.add(self)

    def stop(self) -> None:
        """Stops the checks."""
        self._clock.waiting.discard(self)


class Hooked(Protocol):
    """A request that calls `left` as soon as its client disconnects: the cycle of this project's server."""

    disconnected: bool
    left: Callable[[], None] | None


class OnDisconnect(Interrupt):
    """Interrupts its task with ClientDisconnected as soon as the server detects a disconnect."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: Hooked) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._error = ClientDisconnected
        self.struck = False
        self._cycle = cycle

    def __enter__(self) -> None:
        if self._cycle.disconnected:
            raise ClientDisconnected
        self._cycle.left = self.rouse

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        self._cycle.left = None
        self._settle(kind)


class PollDisconnect(Interrupt):
    """The same for any other ASGI server, by polling `receive`. The request's body must have been received."""

    __slots__ = ("_receive", "_watcher")

    def __init__(self, receive: Receive) -> None:
        super().__init__(LOOK_AFTER, ClientDisconnected)
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    def rouse(self) -> None:
        """Starts polling for a disconnect."""
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        super().rouse()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        super().__exit__(kind, value, _)


def leaving(receive: Receive, cycle: Hooked | None) -> Interrupt:
    """Returns an interrupt that raises ClientDisconnected in its block when the client disconnects."""
    return PollDisconnect(receive) if cycle is None else OnDisconnect(cycle)
