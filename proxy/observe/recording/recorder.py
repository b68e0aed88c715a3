"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for the disk. What it does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.

Theory of operation. The event loop makes the figures of each line. The thread adds the bodies, compresses and writes:
half a megabyte at a time, because the event loop waits for the interpreter whenever it works.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from proxy.config.settings import BODIES, META
from proxy.observe.recording.recorded_bodies import END, Headers, Keys, KnownBodies
from proxy.observe.recording.recorded_lines import Request, figures
from proxy.observe.recording.recording_files import RecordingFiles
from proxy.wire.coding import coding_of, decoded

MAX_BODY_BYTES = 8 << 20  # of one body, also without its content-encoding: making its line takes four times as much
MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and of what is to be written; more is dropped
LINE_BYTES = 512  # of a line in memory, besides its text
WRITE_BYTES = 1 << 19  # of a batch, ...
WRITE_DELAY_S = 0.5  # ... which is written at the latest after this time
FLUSH_S = 3.0  # what an exit waits at most

_ENCODER = msgspec.json.Encoder()


class Sender(NamedTuple):
    """Who sends requests: a keyed hash, empty for nobody, the credentials that no line may have, and hashes of these,
    as callers.toml has them."""

    name: str
    keys: Keys = ()
    hashes: tuple[str, ...] = ()


class _Line(NamedTuple):
    """A line that lacks its end. `figures`: all before it. `body`: empty for none, None if it was not held."""

    figures: bytes
    body: bytes | None
    coding: str
    model: str
    sender: Sender


class _Batch(msgspec.Struct, gc=False):
    """Lines that are written together. `weight`: what they hold of `MAX_HELD_BYTES`."""

    lines: list[_Line]
    weight: int = 0


class Recorder:
    """Records the requests that it gets. The thread starts with the first one.

    `content`: what is recorded of a body, one of `proxy.config.settings`. `sender` says who sent headers. `redact`
    makes of a body, its model's name and its sender's a body without content, and raises ValueError if it cannot.
    `name` is what a model is called in lines of a sender; None: as the client called it. `answered` is what the model
    is called that an answer names; None: such a name is not recorded.
    """

    def __init__(
        self,
        files: RecordingFiles,
        content: str,
        *,
        sender: Callable[[Headers], Sender],
        redact: Callable[[bytes, str, str], bytes],
        event: Callable[..., None],
        name: Callable[[str, str], str] | None = None,
        answered: Callable[[str, str], str] | None = None,
    ) -> None:
        self._name, self._answered = name, answered
        self._files, self._content, self._sender, self._redact, self._event = files, content, sender, redact, event
        self._bodies = KnownBodies()
        self._batch: _Batch | None = None
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()  # None: it was the last one
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        # Each counter is changed by one side only, so that no lock is needed.
        self._held = 0  # bytes that were taken, by the event loop
        self._returned = 0  # bytes that were taken and are free again, by the thread
        self._given_up = 0  # requests for which there was no room, by the event loop
        self._broken = 0  # requests of which no line could be made, by the event loop
        self._results = Counter(written=0, failed=0)  # by the thread

    def hold(self, body: bytes) -> bytes | None:
        """Counts a body that its request no longer keeps, until `drop`. None if too much is held already."""
        if self._content == META:
            return b""
        if not self._has_room(body):
            return None
        self._held += len(body)
        return body

    def drop(self, body: bytes | None) -> None:
        """Releases a body that `hold` returned."""
        self._held -= len(body or b"")

    def _has_room(self, body: bytes) -> bool:
        return len(body) <= MAX_BODY_BYTES and self._held - self._returned + len(body) <= MAX_HELD_BYTES

    def add(self, requests: Sequence[Request]) -> None:
        """Records requests that have just ended. Never raises."""
        at = round(time.time(), 3)
        for request in requests:
            batch = self._open_batch()
            if batch is None:
                self._given_up += 1
                continue
            try:
                line = self._line(request, at)
            except Exception as error:  # a bug of ours loses this line, and nothing else
                self._broken += 1
                self._event("a request is not recorded", reason=type(error).__name__)
                continue
            batch.lines.append(line)
            batch.weight += LINE_BYTES + len(line.figures) + len(line.body or b"")
            if batch.weight >= WRITE_BYTES:
                self._hand_over(batch)

    def _line(self, request: Request, at: float) -> _Line:
        sender = self._sender(request.headers)
        made = figures(request, sender.name, at, self._name, self._answered)
        if sender.hashes:
            made.caller_keys = sender.hashes
        text = _ENCODER.encode(made)
        text = text[:-1]  # the brace is a part of what follows
        body = request.body if request.fitted and self._content != META else b""
        if not body or not self._has_room(body):
            return _Line(text, body and None, "", "", sender)
        return _Line(text, body, coding_of(request.headers), request.outcome.model, sender)

    def _open_batch(self) -> _Batch | None:
        """The batch for further lines; None if the disk has not taken enough of those before."""
        if self._batch is None and self._held - self._returned < MAX_HELD_BYTES:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._finish)
            self._batch = _Batch([])
        return self._batch

    def _finish(self) -> None:
        """Writes what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._batch is not None:
            self._hand_over(self._batch)

    def _hand_over(self, batch: _Batch) -> None:
        """Gives the batch to the thread."""
        self._batch = None
        self._held += batch.weight
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
            self._thread.start()
        self._queue.put(batch)

    def results(self) -> Mapping[tuple[str], int]:
        """Requests since the start, by what became of their lines: written, dropped because there was no room, or
        failed at the disk."""
        written, failed = self._results["written"], self._results["failed"] + self._broken
        return {("dropped",): self._given_up, ("written",): written, ("failed",): failed}

    async def close(self) -> None:
        """Writes what there is, within `FLUSH_S`."""
        self._finish()
        if self._thread is not None:
            self._queue.put(None)
            until = time.monotonic() + FLUSH_S
            while self._thread.is_alive() and time.monotonic() < until:
                await asyncio.sleep(0.01)

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            try:
                self._write(batch)
            except Exception as error:  # a bug of ours: it loses this batch, and nothing else
                self._results["failed"] += len(batch.lines)
                with suppress(Exception):
                    self._event("requests are not recorded", reason=type(error).__name__)
            self._returned += batch.weight
        self._files.close()

    def _write(self, batch: _Batch) -> None:
        texts: list[bytes] = []
        for line in batch.lines:
            try:
                texts.append(line.figures + self._end(line))
            except Exception as error:  # a bug of ours loses this line, and nothing else
                self._count(type(error).__name__, 1)
        try:
            self._files.append(b"".join(texts))
            problem = ""
        except Exception as error:  # the disk, as a rule
            problem = getattr(error, "strerror", None) or type(error).__name__
        self._count(problem, len(texts))

    def _count(self, problem: str, lines: int) -> None:
        """Counts lines that were written, or had a problem; an event says when problems begin and end."""
        self._results["failed" if problem else "written"] += lines
        if problem and not self._failing:
            self._event("requests are not recorded", reason=problem, folder=self._files.folder)
        elif self._failing and not problem:
            self._event("requests are recorded again")
        self._failing = bool(problem)

    def _end(self, line: _Line) -> bytes:
        """The end of a line, from the fields of the body."""
        body = line.body and decoded(line.body, line.coding, MAX_BODY_BYTES)
        if not body:
            return END if body is not None else b',"content":"dropped"}\n'
        if self._content == BODIES:
            return self._bodies.fields(body, line.sender.keys)
        try:
            redacted = self._redact(body, line.model, line.sender.name)
        except Exception:  # no JSON, or none that can be read
            return b',"bytes":%d,"content":"dropped"}\n' % len(body)
        return b',"bytes":%d,"content":"redacted","request":%b}\n' % (len(body), redacted)
