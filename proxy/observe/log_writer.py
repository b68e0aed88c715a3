"""Writes log lines to a stream from a thread, so that a slow or closed reader never blocks a request."""

from __future__ import annotations

import io
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TextIO

MAX_QUEUED = 10_000  # lines, about 4 MB; further ones are dropped
BATCH_DELAY_S = 0.05  # lines are written in batches: that costs a third less than one by one
Line = str | Callable[[], str]  # a line with its newline, or a function that formats it in the thread
CLOSED_ERRORS = (BrokenPipeError, ValueError)  # final; other errors, such as a full disk, may pass


class LogWriter:
    """Writes lines to a stream (None: discards them). The thread starts with the first line.

    Lines that could not be written are counted; `lost` formats a line with their number, which is written as soon as
    the stream works again.
    """

    def __init__(self, stream: TextIO | None, lost: Callable[[int], str] = "{} lines were lost\n".format) -> None:
        self._put = None if stream is None else unbuffered_write(stream)
        self._format_lost = lost
        # Each counter is changed by one side only, so that no lock is needed.
        self._dropped = 0  # by callers of `write`
        self._failed = 0  # by the thread
        self._reported = 0
        self._queue: deque[Line] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False

    def write(self, line: Line) -> None:
        """Queues a line and returns at once. Never raises; drops the line if the queue is full."""
        if self._put is None:
            return
        if len(self._queue) >= MAX_QUEUED:
            self._dropped += 1
            return
        self._queue.append(line)
        if not self._wake.is_set():
            self._wake_thread()

    def _wake_thread(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Waits until all lines are written, but at most `timeout` seconds: the reader may be stuck."""
        self._closing = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._put is not None:
            self._wake.wait()
            if not self._closing:
                time.sleep(BATCH_DELAY_S)
            self._wake.clear()
            self._write_batch(self._put)
            if self._closing and not self._queue:
                return

    def _write_batch(self, put: Callable[[str], object]) -> None:
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        lost = self._dropped + self._failed - self._reported
        try:
            put("".join(filter(None, map(self._formatted, batch))) + (self._format_lost(lost) if lost else ""))
            self._reported += lost
        except CLOSED_ERRORS:
            self._put = None
        except OSError:
            self._failed += len(batch)

    def _formatted(self, line: Line) -> str:
        if isinstance(line, str):
            return line
        try:
            return line()
        except Exception:  # a bug in a formatter loses its line, not the log
            self._failed += 1
            return ""


def unbuffered_write(stream: TextIO) -> Callable[[str], object]:
    """A function that writes to a stream's file descriptor, or to the stream itself if it has none.

    Text in the stream's own buffer would be written again at exit after an error.
    """
    try:
        return partial(_put_all, stream.fileno())
    except (OSError, ValueError, io.UnsupportedOperation):
        return stream.write


def _put_all(file: int, text: str) -> None:
    data = memoryview(text.encode(errors="replace"))
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:  # the parent process made the pipe non-blocking
            select.select((), (file,), ())
