"""Several processes behind one port: a parent that starts them, replaces those that die, and passes a stop on.

It serves nothing itself; workers share listening sockets, so that no connection is refused while one is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from proxy.http.callbacks import Event, ignore

CRASH_LOOP_S = 5.0  # seconds; a worker that dies sooner may well die again
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds until such a one is replaced: doubled each time
Done = Callable[[], None]
WorkerExit = Callable[[int], None]
Work = Callable[[int, Done], None]
Born = dict[int, tuple[int, float]]  # by process id: a worker's number, and when it began
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)


def run(count: int, work: Work, gone: WorkerExit, stopping: Done = lambda: None, event: Event = ignore) -> int:
    """Does `work` in so many processes until SIGTERM or SIGINT, which each of them gets; a second one kills them.

    `work` is given its worker's number, from 0 on, and what it calls once it is ready. A worker that dies is replaced
    by one of the same number, and `gone` told its process id; one that dies young is replaced after a pause, but before
    the first of all was ready it takes the others with it. None outlives this process. `stopping` is called once the
    end has begun: what this process holds open keeps the workers from closing it. Returns the exit code. Must be called
    before this process has threads.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # they are waited for, not handled: nothing can come between
    alive, ready = os.pipe(), os.pipe()
    for end in ready:
        os.set_blocking(end, False)
    try:
        return _Crew(count, partial(_start, work, alive, ready[1], event), gone, stopping, ready[0], event).watch()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.SIGALRM in signal.sigpending():
            signal.sigwait((signal.SIGALRM,))
        for end in (*alive, *ready):
            os.close(end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


class _Crew:
    """The workers that live, and when those that died young are replaced; times are `time.monotonic`'s."""

    def __init__(
        self,
        count: int,
        start: Callable[[int], int],
        gone: WorkerExit,
        stopping: Done,
        ready: int,
        event: Event,
    ) -> None:
        self._event = event
        self._start, self._gone, self._stopping, self._ready = start, gone, stopping, ready
        self._born = {start(number): (number, time.monotonic()) for number in range(count)}
        self._due: list[tuple[float, int]] = []
        self._young = 0  # deaths of young ones, one after the other
        self._was_ready = False
        self._code, self._stop = 0, 0

    def watch(self) -> int:
        """Returns the exit code when all have ended."""
        while self._born or self._due:
            heard = signal.sigwait(WATCHED)
            if heard in (signal.SIGTERM, signal.SIGINT):
                self._end(signal.SIGKILL if self._stop else signal.SIGTERM)
                self._stopping()
            for pid, (number, born), status in _ended(self._born):
                self._gone(pid)
                self._bury(number, time.monotonic() - born, status)
            self._replace()
        return self._code

    def _end(self, stop: signal.Signals) -> None:
        self._stop = stop
        self._due.clear()
        _tell(self._born, stop)

    def _bury(self, number: int, age: float, status: int) -> None:
        if self._stop:
            self._code = self._code or max(0, status)
            return
        self._was_ready = self._was_ready or _was_told(self._ready)
        if age < CRASH_LOOP_S and not self._was_ready:
            self._event("a worker ended as soon as it began; so do all", status=status)
            self._code = 1
            self._end(signal.SIGTERM)
            return
        self._young = self._young + 1 if age < CRASH_LOOP_S else 0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._young - 1, 16)) if self._young else 0.0
        told = {"pause_seconds": pause} if pause else {}
        self._event("a worker ended; another one takes its place", status=status, **told)
        self._due.append((time.monotonic() + pause, number))

    def _replace(self) -> None:
        """Starts those that are due, and has the system say when the next one is."""
        now = time.monotonic()
        later = [one for one in self._due if one[0] > now]
        for number in [number for at, number in self._due if at <= now]:
            self._born[self._start(number)] = number, now
        self._due = later
        if self._due:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, min(self._due)[0] - now))


def _was_told(ready: int) -> bool:
    try:
        return bool(os.read(ready, 4096))
    except BlockingIOError:
        return False


def _tell(crew: Born, stop: int) -> None:
    for pid in crew:
        os.kill(pid, stop)


def _ended(crew: Born) -> list[tuple[int, tuple[int, float], int]]:
    """Takes from the crew the workers that have ended: each one's number and birth, and its exit code, or its signal
    below zero.

    All of them at once, before anything is done about any: their process ids are nobody's now, and get no signal.
    """
    found = [(pid, status) for pid in crew for ended, status in [os.waitpid(pid, os.WNOHANG)] if ended]
    return [(pid, crew.pop(pid), os.waitstatus_to_exitcode(status)) for pid, status in found]


def _start(work: Work, alive: tuple[int, int], ready: int, event: Event, number: int) -> int:
    pid = os.fork()
    if not pid:
        _be_worker(partial(work, number), alive, ready, event)
    return pid


def _be_worker(work: Callable[[Done], None], alive: tuple[int, int], ready: int, event: Event) -> NoReturn:
    """Does the work and leaves at once: what the parent has to clean up at its end is not the worker's."""
    code = 1
    try:
        os.close(alive[1])
        threading.Thread(target=_stop_with_parent, args=(alive[0],), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        work(partial(_say_ready, ready))
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException as error:
        event("a worker failed", kind=type(error).__name__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)


def _say_ready(ready: int) -> None:
    with contextlib.suppress(BlockingIOError):  # enough of us have said so
        os.write(ready, b".")


def _stop_with_parent(alive: int) -> None:
    """The other end is the parent's alone: there is something to read, namely the end, once it is gone."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
