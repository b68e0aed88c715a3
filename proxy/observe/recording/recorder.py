"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for the disk. What it does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.

Theory of operation. The event loop makes the lines of the requests that end together, and compresses the short ones
while they are in the caches. The thread writes them, half a megabyte at a time, because the event loop waits for the
interpreter whenever it works. Before that it adds the bodies that take long to be searched for keys, redacted or
compressed.
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
from proxy.observe.recording.recorded_bodies import END, MAX_BODY_BYTES, SHORT, Headers, Keys, KnownBodies
from proxy.observe.recording.recorded_lines import Line, Request, figures
from proxy.observe.recording.recording_files import LEAST, LEVEL, Piece, RecordingFiles, packed
from proxy.wire.coding import coding_of, decoded

MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and of what is to be written; more is dropped
REQUEST_BYTES = 1024  # of a request that the thread has to finish, without its body
PACK_BYTES = 1 << 16  # of lines that are compressed together
WRITE_BYTES = 1 << 19  # of a batch, ...
WRITE_DELAY_S = 0.5  # ... which is written at the latest after this time
FLUSH_S = 3.0  # what an exit waits at most

_ENCODER = msgspec.json.Encoder()


class Sender(NamedTuple):
    """Who sends requests: a keyed hash, empty for nobody, and the credentials that no line may have."""

    name: str
    keys: Keys = ()


class _Unfinished(NamedTuple):
    """A line that lacks its body. `head`: all before it."""

    head: bytes
    request: Request
    sender: Sender


class _Batch(msgspec.Struct, gc=False):
    """So many lines, which are written together. `weight`: what all hold of `MAX_HELD_BYTES`."""

    pieces: list[Piece | _Unfinished]
    lines: int = 0
    weight: int = 0

    def add(self, *pieces: Piece) -> None:
        """Adds pieces of whole lines."""
        self.pieces += pieces
        self.weight += sum(map(len, pieces))

    def leave(self, line: _Unfinished) -> None:
        """Adds a line that the thread finishes."""
        self.pieces.append(line)
        self.weight += REQUEST_BYTES + len(line.request.body or b"")


class _Text:
    """Lines that are to be compressed together. Their place is always the same, so it is likely to be in a cache."""

    def __init__(self) -> None:
        self._place = memoryview(bytearray(PACK_BYTES))
        self._size = 0

    def add(self, lines: bytes) -> bool:
        """Adds lines; False if there is no room for them."""
        size = self._size + len(lines)
        if size > PACK_BYTES:
            return False
        self._place[self._size : size] = lines
        self._size = size
        return True

    def take(self) -> memoryview:
        """Removes what there is, and returns it; it is valid until something is added."""
        size, self._size = self._size, 0
        return self._place[:size]


class Recorder:
    """Records the requests that it gets. The thread starts with the first one.

    `content`: what is recorded of a body, one of `proxy.config.settings`. `sender` says who sent headers. `redact`
    makes of a body, its model's name and its sender's a body without content, and raises ValueError if it cannot.
    `name` is what a model is called in lines of a sender; None: as the client called it.
    """

    def __init__(
        self,
        files: RecordingFiles,
        content: str,
        sender: Callable[[Headers], Sender],
        redact: Callable[[bytes, str, str], bytes],
        event: Callable[..., None],
        name: Callable[[str, str], str] | None = None,
    ) -> None:
        self._name = name
        self._files, self._content, self._sender, self._redact, self._event = files, content, sender, redact, event
        self._bodies = KnownBodies()
        self._batch: _Batch | None = None
        self._text = _Text()  # of the batch
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
        at = time.time() * 1000 // 1 / 1000  # `round` takes three times as long
        with_bodies = self._content != META
        lines: list[Line] = []
        for request in requests:
            try:
                sender = self._sender(request.headers)
                line = figures(request, sender.name, at, self._name)
                if with_bodies and request.fitted and not self._completed(line, request, sender.keys):
                    self._add_long(line, request, sender)
                else:
                    lines.append(line)
            except Exception as error:
                self._lose(error)
        if lines:
            self._add_lines(lines)

    def _completed(self, line: Line, request: Request, keys: Keys) -> bool:
        """Gives a line the fields of a short body that can be recorded as it is."""
        body = request.body
        if not body or len(body) > SHORT or self._content != BODIES:
            return False
        if not self._bodies.is_ready(body, keys, request.headers):
            return False
        line.bytes, line.content, line.request = len(body), BODIES, msgspec.Raw(body)
        return True

    def _add_lines(self, lines: Sequence[Line]) -> None:
        """Adds whole lines."""
        batch = self._room_for(len(lines))
        if batch is None:
            return
        try:
            text = _ENCODER.encode_lines(lines)
        except Exception as error:
            if len(lines) == 1:
                self._lose(error)
            else:
                for line in lines:
                    self._add_lines((line,))
            return
        batch.lines += len(lines)
        if not self._text.add(text):
            level = LEAST if self._content == BODIES else LEVEL  # figures alone take two fifths more without
            batch.add(packed(self._text.take(), level))
            if not self._text.add(text):
                batch.add(packed(text, level))
        if batch.weight >= WRITE_BYTES:
            self._hand_over(batch)

    def _add_long(self, line: Line, request: Request, sender: Sender) -> None:
        """Adds a line whose body is known, or leaves its end to the thread."""
        batch = self._room_for(1)
        if batch is None:
            return
        head = _ENCODER.encode(line)[:-1]  # the brace is a part of what follows
        known = self._bodies.known(request.body, sender.keys) if request.body and self._content == BODIES else None
        if known is not None:
            batch.add(head, *known)
        else:
            if request.body and not self._has_room(request.body):
                request.body = None
            batch.leave(_Unfinished(head, request, sender))
        batch.lines += 1
        if batch.weight >= WRITE_BYTES:
            self._hand_over(batch)

    def _lose(self, error: Exception) -> None:
        """A bug of ours loses this line, and nothing else."""
        self._broken += 1
        self._event("a request is not recorded", reason=type(error).__name__)

    def _room_for(self, lines: int) -> _Batch | None:
        """The batch for so many lines; None, and they are counted, if the disk has not taken enough of those before."""
        if self._batch is not None:
            return self._batch
        if self._held - self._returned >= MAX_HELD_BYTES:
            self._given_up += lines
            return None
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
        batch.add(bytes(self._text.take()))
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
            except Exception as error:  # a bug of ours, or of what is told: it loses this batch, and nothing else
                self._results["failed"] += batch.lines
                with suppress(Exception):
                    self._event("requests are not recorded", reason=type(error).__name__)
            self._returned += batch.weight
        self._files.close()

    def _write(self, batch: _Batch) -> None:
        pieces: list[Piece] = []
        lines = batch.lines
        for piece in batch.pieces:
            if not isinstance(piece, _Unfinished):
                pieces.append(piece)
                continue
            try:
                pieces += (piece.head, *self._fields(piece.request, piece.sender))
            except Exception as error:  # a bug of ours loses this line, and nothing else
                lines -= 1
                self._tell(type(error).__name__, 1)
        try:
            self._files.append(pieces)
            problem = ""
        except Exception as error:  # the disk, as a rule
            problem = getattr(error, "strerror", None) or type(error).__name__
        self._tell(problem, lines)

    def _tell(self, problem: str, count: int) -> None:
        """Counts lines that were written, or had a problem; an event says when problems begin and end."""
        self._results["failed" if problem else "written"] += count
        if problem and not self._failing:
            self._event("requests are not recorded", reason=problem, folder=self._files.folder)
        elif self._failing and not problem:
            self._event("requests are recorded again")
        self._failing = bool(problem)

    def _fields(self, request: Request, sender: Sender) -> Sequence[Piece]:
        """The end of a line, from the fields of the body."""
        body = None if request.body is None else decoded(request.body, coding_of(request.headers), MAX_BODY_BYTES)
        if not body:
            return (END,) if body is not None else (b',"content":"dropped"}\n',)
        if self._content == BODIES:
            return self._bodies.fields(body, sender.keys)
        try:
            redacted = self._redact(body, request.outcome.model, sender.name)
        except Exception:  # no JSON, or none that can be read
            return (b',"bytes":%d,"content":"dropped"}\n' % len(body),)
        return (b',"bytes":%d,"content":"redacted","request":' % len(body), redacted, END)
