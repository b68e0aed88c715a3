"""Several worker processes behind one port: the parent starts them, replaces those that exit, and forwards
signals.

The parent serves no requests. Workers share the listening sockets, so no connection is refused while one is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import NoReturn

from proxy.http.callbacks import Event, ignore

CRASH_LOOP_S = 5.0  # seconds; an earlier exit of a worker counts as part of a crash loop
MIN_BACKOFF, MAX_BACKOFF = 0.25, 30.0  # seconds of exponential backoff before such a worker is replaced
Callback = Callable[[], None]
WorkerExit = Callable[[int], None]
Work = Callable[[int, Callback], None]
Workers = dict[int, tuple[int, float]]  # by process id: a worker's number and start time
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)


def run(
    count: int,
    work: Work,
    on_exit: WorkerExit,
    on_stop: Callback = lambda: None,
    event: Event = ignore,
    hangup_stops: bool = False,
) -> int:
    """Runs `work` in `count` processes until SIGTERM or SIGINT, then sends them SIGTERM; a second signal kills them.
    SIGHUP is passed on to all of them, or is a stop too if `hangup_stops`.

    work: called with the worker's number, from 0 on, and a callback that the worker calls once it is ready.
    on_exit: called with the process id of each worker that has exited.
    on_stop: called on each stop signal. It must close the parent's copies of sockets: while they are open, the workers
    cannot close them.

    A worker that exits is replaced by one of the same number, after a backoff if it exits early. If one exits early
    before any was ready, all stop. No worker outlives this process. Returns the exit code. Must be called before
    this process has threads.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # `sigwait` receives them: no handler, so no race
    alive, ready = os.pipe(), os.pipe()
    for end in ready:
        os.set_blocking(end, False)
    try:
        start = partial(_start, work, alive, ready[1], event)
        stops = {signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangup_stops else [])}
        return _Supervisor(count, start, on_exit, on_stop, ready[0], event, stops).run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.SIGALRM in signal.sigpending():
            signal.sigwait((signal.SIGALRM,))
        for end in (*alive, *ready):
            os.close(end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


class _Supervisor:
    """The running workers, and the times at which exited ones are replaced. Times are of `time.monotonic`."""

    def __init__(
        self,
        count: int,
        start: Callable[[int], int],
        on_exit: WorkerExit,
        on_stop: Callback,
        ready: int,
        event: Event,
        stops: Collection[int],
    ) -> None:
        self._event, self._stops = event, stops
        self._start, self._on_exit, self._on_stop, self._ready = start, on_exit, on_stop, ready
        self._workers = {start(number): (number, time.monotonic()) for number in range(count)}
        self._due: list[tuple[float, int]] = []
        self._early_exits = 0  # consecutive early exits
        self._was_ready = False
        self._code, self._stop = 0, 0

    def run(self) -> int:
        """Handles signals until all workers have exited. Returns the exit code."""
        while self._workers or self._due:
            received = signal.sigwait(WATCHED)
            if received in self._stops:
                self._stop_all(signal.SIGKILL if self._stop else signal.SIGTERM)
                self._on_stop()
            elif received == signal.SIGHUP:
                _signal_all(self._workers, signal.SIGHUP)
            for pid, (number, started), status in _reap(self._workers):
                self._on_exit(pid)
                self._handle_exit(number, time.monotonic() - started, status)
            self._replace()
        return self._code

    def _stop_all(self, stop: signal.Signals) -> None:
        self._stop = stop
        self._due.clear()
        _signal_all(self._workers, stop)

    def _handle_exit(self, number: int, age: float, status: int) -> None:
        if self._stop:
            self._code = self._code or max(0, status)
            return
        self._was_ready = self._was_ready or _any_ready(self._ready)
        if age < CRASH_LOOP_S and not self._was_ready:
            self._event("a worker exited during startup; all workers are stopped", status=status)
            self._code = 1
            self._stop_all(signal.SIGTERM)
            return
        self._early_exits = self._early_exits + 1 if age < CRASH_LOOP_S else 0
        pause = min(MAX_BACKOFF, MIN_BACKOFF * 2 ** min(self._early_exits - 1, 16)) if self._early_exits else 0.0
        figures = {"pause_seconds": pause} if pause else {}
        self._event("a worker exited and is replaced", status=status, **figures)
        self._due.append((time.monotonic() + pause, number))

    def _replace(self) -> None:
        """Starts the workers that are due, and sets a timer for the next one."""
        now = time.monotonic()
        later = [one for one in self._due if one[0] > now]
        for number in [number for at, number in self._due if at <= now]:
            self._workers[self._start(number)] = number, now
        self._due = later
        if self._due:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, min(self._due)[0] - now))


def _any_ready(ready: int) -> bool:
    try:
        return bool(os.read(ready, 4096))
    except BlockingIOError:
        return False


def _signal_all(workers: Workers, stop: int) -> None:
    for pid in workers:
        os.kill(pid, stop)


def _reap(workers: Workers) -> list[tuple[int, tuple[int, float], int]]:
    """Removes the exited workers from `workers`. Returns for each its process id, its number and start time, and its
    exit code (the negated signal if a signal ended it).

    It reaps all before the caller handles any: the process ids may be reused, so they must get no signal.
    """
    found = [(pid, status) for pid in workers for ended, status in [os.waitpid(pid, os.WNOHANG)] if ended]
    return [(pid, workers.pop(pid), os.waitstatus_to_exitcode(status)) for pid, status in found]


def _start(work: Work, alive: tuple[int, int], ready: int, event: Event, number: int) -> int:
    pid = os.fork()
    if not pid:
        _run_worker(partial(work, number), alive, ready, event)
    return pid


def _run_worker(work: Callable[[Callback], None], alive: tuple[int, int], ready: int, event: Event) -> NoReturn:
    """Runs the work, then exits without the parent's cleanup handlers."""
    code = 1
    try:
        os.close(alive[1])
        threading.Thread(target=_exit_with_parent, args=(alive[0],), daemon=True).start()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the work handles it: by default it ends a process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        work(partial(_report_ready, ready))
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


def _report_ready(ready: int) -> None:
    with contextlib.suppress(BlockingIOError):  # the pipe is full: enough workers have reported
        os.write(ready, b".")


def _exit_with_parent(alive: int) -> None:
    """Stops this worker when the parent exits: only the parent has the pipe's write end, so the read returns then."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
