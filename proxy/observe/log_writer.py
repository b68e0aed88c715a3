"""Lines on their way to whoever reads them: a thread writes them, so that a slow or closed reader holds nobody up."""

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

MOST_WAITING = 10_000  # lines, some 4 MB; further ones are lost rather than kept
GATHER = 0.05  # seconds in which lines are gathered: to make and write many at once costs a third
Line = str | Callable[[], str]
GONE = (BrokenPipeError, ValueError)  # nobody will ever read there again; a full disk, for one, may be emptied


class Lines:
    """Writes lines to a stream (None: nowhere) in a thread that starts with the first of them.

    `lost` makes the line that tells how many were lost, once one can be written again.
    """

    def __init__(self, stream: TextIO | None, lost: Callable[[int], str] = "{} lines were lost\n".format) -> None:
        self._put = None if stream is None else putting(stream)
        self._told = lost
        self._dropped = 0  # by those who write, so that no two threads count in one number
        self._failed = 0
        self._confessed = 0
        self._waiting: deque[Line] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False

    def write(self, line: Line) -> None:
        """Takes a line, its end included, or what makes one, and returns at once."""
        if self._put is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(line)
        if not self._wake.is_set():
            self._rouse()

    def _rouse(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
            self._thread.start()

    def close(self, seconds: float = 1.0) -> None:
        """Waits until all lines are written, but no longer than so many seconds: the reader may be stuck."""
        self._closing = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join(seconds)

    def _run(self) -> None:
        while self._put is not None:
            self._wake.wait()
            if not self._closing:
                time.sleep(GATHER)
            self._wake.clear()
            self._write(self._put)
            if self._closing and not self._waiting:
                return

    def _write(self, put: Callable[[str], object]) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        lost = self._dropped + self._failed - self._confessed
        try:
            put("".join(filter(None, map(self._made, batch))) + (self._told(lost) if lost else ""))
            self._confessed += lost
        except GONE:
            self._put = None
        except OSError:
            self._failed += len(batch)

    def _made(self, line: Line) -> str:
        if isinstance(line, str):
            return line
        try:
            return line()
        except Exception:  # a bug of ours must not end the log
            self._failed += 1
            return ""


def putting(stream: TextIO) -> Callable[[str], object]:
    """Past the stream's own buffer, where there is a file below: what stays in it would be tried again at the exit."""
    try:
        return partial(_put_all, stream.fileno())
    except (OSError, ValueError, io.UnsupportedOperation):
        return stream.write


def _put_all(file: int, text: str) -> None:
    data = memoryview(text.encode(errors="replace"))
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:  # whoever started us made it so
            select.select((), (file,), ())
