"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for the disk. What it does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.

Theory of operation. The event loop makes a line at once and appends it to a batch; the thread compresses and writes the
batch, and before that adds those bodies that have to be searched for keys or redacted. A thread that works makes the
event loop wait for the interpreter again and again, so it gets much at a time.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from proxy.config.settings import BODIES, META
from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.recorded_bodies import END, MAX_BODY_BYTES, Headers, KnownBodies, plain
from proxy.observe.recording_files import Packed, Piece, RecordingFiles
from proxy.wire.controls import NOTHING_ASKED, Controls

VERSION = 1  # of the lines
MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and of what is to be written; more is dropped
REQUEST_BYTES = 1024  # of a request that the thread has to finish, without its body
WRITE_BYTES = 1 << 19  # of a batch, ...
WRITE_DELAY_S = 0.5  # ... which is written at the latest after this time
FLUSH_S = 3.0  # what an exit waits at most

MAX_NAME = 120
MODEL = re.compile(r"[\w.:/@+-]+")


class Sender(NamedTuple):
    """Who sends requests: a keyed hash, empty for nobody, and the credentials that no line may have."""

    name: str
    keys: tuple[bytes, ...] = ()


class Request(msgspec.Struct, gc=False):
    """A request that has ended. `fitted`: it has a body, which is `body`, None if it is not held. `finish`: the reason
    that the upstream reported, where the answer was relayed as it came."""

    outcome: Outcome
    headers: Headers = ()
    fitted: bool = False
    controls: Controls = NOTHING_ASKED
    body: bytes | None = b""
    finish: str | None = None


class _Step(msgspec.Struct):
    step: str
    tokens_before: int
    tokens_after: int


class _Usage(msgspec.Struct, omit_defaults=True, gc=False):
    prompt: int
    completion: int = 0
    cached: int = 0
    written: int = 0


class _Times(msgspec.Struct, omit_defaults=True, gc=False):
    """Milliseconds."""

    own: float
    upstream: float = 0.0
    first_byte: float | None = None


class _Controls(msgspec.Struct, omit_defaults=True):
    mode: str = ""
    window: int | None = None
    pins: tuple[int, ...] = ()
    ladder: str = ""


class _Line(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a line; deploy/README.md describes them. Fields with their default value are omitted."""

    v: int | None
    time: float
    api: str
    path: str = ""
    model: str = ""
    model_sent: str = ""
    upstream: str = ""
    caller: str = ""
    result: str = ""
    status: int = 0
    stream: bool = False
    mode: str = ""
    ladder: str = ""
    attempts: int = 0
    window: int = 0
    window_source: str = ""
    count: str = ""
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    max_tokens: int | None = None
    max_tokens_sent: int | None = None
    messages: int = 0
    messages_sent: int = 0
    steps: list[_Step] = []
    planned: list[_Step] = []
    refused: tuple[str, ...] = ()
    healed: bool = False
    truncated: bool = False
    controls: _Controls | None = None
    usage: _Usage | None = None
    finish: str | None = None
    ms: _Times | None = None


_ENCODER = msgspec.json.Encoder()


class _Unfinished(NamedTuple):
    """A line that lacks its body. `head`: all before it."""

    head: bytes
    request: Request
    sender: Sender


class _Batch(msgspec.Struct, gc=False):
    """Lines that are written together: `pieces`, and at their end `text`. `weight`: what they hold of
    `MAX_HELD_BYTES`."""

    pieces: list[Piece | _Unfinished]
    text: bytearray
    lines: int = 0
    weight: int = 0


class Recorder:
    """Records the requests that it gets. The thread starts with the first one.

    `content`: what is recorded of a body, one of `proxy.config.settings`. `sender` says who sent headers. `redact`
    makes of a body and its model's name a body without content, and raises ValueError if it cannot.
    """

    def __init__(
        self,
        files: RecordingFiles,
        content: str,
        sender: Callable[[Headers], Sender],
        redact: Callable[[bytes, str], bytes],
        event: Callable[..., None],
    ) -> None:
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

    def add(self, request: Request) -> None:
        """Makes the line of a request, or leaves its end to the thread. Never raises."""
        batch = self._batch or self._begin()
        if batch is None:
            self._given_up += 1
            return
        try:
            weight = self._add(batch, request)
        except Exception as error:  # a bug of ours loses this line, and nothing else
            self._broken += 1
            self._event("a request is not recorded", reason=type(error).__name__)
            return
        batch.lines += 1
        batch.weight += weight
        if batch.weight >= WRITE_BYTES:
            self._hand_over()

    def _add(self, batch: _Batch, request: Request) -> int:
        """Adds a line to a batch. Returns about how many bytes it holds."""
        sender, text = self._sender(request.headers), batch.text
        line, ending = figures(request, sender.name), self._ending(request, sender)
        if ending is None:
            return self._leave(batch, _Unfinished(_ENCODER.encode(line)[:-1], request, sender))
        weight = -len(text)
        try:
            _ENCODER.encode_into(line, text, -1)
        except Exception:
            del text[-weight:]
            raise
        del text[-1:]  # the brace, which the ending has
        weight += len(text)
        for piece in ending:
            weight += len(piece)
            if type(piece) is Packed:
                batch.pieces += (text, piece)
                text = batch.text = bytearray()
            else:
                text += piece
        return weight

    def _leave(self, batch: _Batch, line: _Unfinished) -> int:
        """Adds a line that the thread finishes. Returns about how many bytes it holds."""
        body = line.request.body
        if body and not self._has_room(body):
            body = line.request.body = None
        batch.pieces += (batch.text, line)
        batch.text = bytearray()
        return REQUEST_BYTES + len(body or b"")

    def _ending(self, request: Request, sender: Sender) -> Sequence[Piece] | None:
        """The end of a line, from the fields of the body; None if that takes long."""
        if not request.fitted or self._content == META:
            return (END,)
        return self._bodies.known(request.body, sender.keys) if request.body and self._content == BODIES else None

    def _begin(self) -> _Batch | None:
        """Begins a batch; None if the disk has not taken enough of those before it."""
        if self._held - self._returned >= MAX_HELD_BYTES:
            return None
        self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._hand_over)
        self._batch = _Batch([], bytearray())
        return self._batch

    def _hand_over(self) -> None:
        """Gives the batch to the thread, if there is one."""
        if self._batch is None or self._timer is None:
            return
        self._timer.cancel()
        batch, self._batch = self._batch, None
        batch.pieces.append(batch.text)
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
        self._hand_over()
        if self._thread is not None:
            self._queue.put(None)
            until = time.monotonic() + FLUSH_S
            while self._thread.is_alive() and time.monotonic() < until:
                await asyncio.sleep(0.01)

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._write(batch)
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
        body = None if request.body is None else plain(request.body, request.headers)
        if not body:
            return (END,) if body is not None else (b',"content":"dropped"}\n',)
        if self._content == BODIES:
            return self._bodies.fields(body, sender.keys)
        try:
            redacted = self._redact(body, _named(request.outcome.model))
        except Exception:  # no JSON, or none that can be read
            return (b',"bytes":%d,"content":"dropped"}\n' % len(body),)
        return (b',"bytes":%d,"content":"redacted","request":' % len(body), redacted, END)


def figures(request: Request, caller: str) -> _Line:
    """The line of a request without its body. It ended now."""
    o, usage = request.outcome, request.outcome.usage
    return _Line(
        VERSION,
        int(1000 * time.time()) / 1000,
        o.endpoint,
        o.path,
        _named(o.model),
        _named(o.model_sent) if o.model_sent != o.model else "",
        o.upstream,
        caller,
        o.result,
        o.status,
        o.stream,
        o.mode,
        o.ladder,
        o.attempts,
        o.window,
        o.window_source,
        o.quality,
        o.prompt,
        o.prompt_sent,
        o.reserve,
        o.reply_asked,
        o.reply_sent,
        o.messages_in,
        o.messages_sent,
        _steps(o.notes) if o.notes else [],
        _steps(o.planned) if o.planned else [],
        o.refusals,
        o.healed,
        o.truncated,
        None if request.controls is NOTHING_ASKED else _controls(request.controls, o.ladder),
        None if usage is None else _Usage(usage.prompt, usage.completion, usage.cached, usage.written),
        None if request.finish is None else printable(request.finish),
        _Times(
            int(100_000 * o.own_seconds) / 100,  # `round` takes three times as long
            int(10_000 * o.upstream_seconds) / 10,
            None if o.first_byte_seconds is None else int(10_000 * o.first_byte_seconds) / 10,
        ),
    )


def _named(model: str) -> str:
    """A model's name; what is no name is a text of the client, which nothing may show."""
    return model if len(model) <= MAX_NAME and _is_name(model) else "?"


@lru_cache(1024)  # clients choose the texts
def _is_name(text: str) -> bool:
    return not text or MODEL.fullmatch(text) is not None


def _steps(notes: Sequence[Note]) -> list[_Step]:
    return [_Step(note.step, note.tokens_before, note.tokens_after) for note in notes]


def _controls(asked: Controls, ladder: str) -> _Controls:
    """The control headers whose values are not the client's own words."""
    named = asked.ladder if asked.ladder == ladder else None
    return _Controls(asked.mode or "", asked.window, tuple(sorted(asked.pins)), named or "")
