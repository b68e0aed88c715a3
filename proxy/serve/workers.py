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

from proxy.serve import log

YOUNG = 5.0  # seconds; a worker that dies sooner will die again
Done = Callable[[], None]
Gone = Callable[[int], None]
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def run(count: int, work: Done, gone: Gone, stopping: Done = lambda: None) -> int:
    """Does `work` in so many processes until SIGTERM or SIGINT, which each of them gets; a second one kills them.

    A worker that dies is replaced, and `gone` told its process id; one that dies young takes all others with it, and
    none outlives this process. `stopping` is called once the end has begun: what this process holds open keeps the
    workers from closing it. Returns the exit code. Must be called before this process has threads.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # they are waited for, not handled: nothing can come between
    alive = os.pipe()
    try:
        return _watch(count, partial(_start, work, alive), gone, stopping)
    finally:
        for end in alive:
            os.close(end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


def _watch(count: int, start: Callable[[], int], gone: Gone, stopping: Done) -> int:
    crew = {start(): time.monotonic() for _ in range(count)}
    code, stop = 0, 0
    while crew:
        if signal.sigwait(WATCHED) is not signal.SIGCHLD:
            stop = signal.SIGKILL if stop else signal.SIGTERM
            _tell(crew, stop)
            stopping()
            continue
        for pid, born, status in _ended(crew):
            gone(pid)
            if stop:
                code = code or max(0, status)
            elif time.monotonic() - born < YOUNG:
                log.event("a worker ended as soon as it began; so do all", status=status)
                code, stop = 1, signal.SIGTERM
                _tell(crew, stop)
            else:
                log.event("a worker ended; another one takes its place", status=status)
                crew[start()] = time.monotonic()
    return code


def _tell(crew: dict[int, float], stop: int) -> None:
    for pid in crew:
        os.kill(pid, stop)


def _ended(crew: dict[int, float]) -> list[tuple[int, float, int]]:
    """Takes from the crew the workers that have ended: each one's birth and its exit code, or its signal below zero.

    All of them at once, before anything is done about any: their process ids are nobody's now, and get no signal.
    """
    found = [(pid, status) for pid in crew for ended, status in [os.waitpid(pid, os.WNOHANG)] if ended]
    return [(pid, crew.pop(pid), os.waitstatus_to_exitcode(status)) for pid, status in found]


def _start(work: Done, alive: tuple[int, int]) -> int:
    pid = os.fork()
    if not pid:
        _be_worker(work, alive)
    return pid


def _be_worker(work: Done, alive: tuple[int, int]) -> NoReturn:
    """Does the work and leaves at once: what the parent has to clean up at its end is not the worker's."""
    code = 1
    try:
        os.close(alive[1])
        threading.Thread(target=_stop_with_parent, args=(alive[0],), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        work()
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException as error:
        log.event("a worker failed", kind=type(error).__name__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)


def _stop_with_parent(alive: int) -> None:
    """The other end is the parent's alone: there is something to read, namely the end, once it is gone."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
