"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for it. What the disk does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from proxy.config.settings import BODIES, META
from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.recorded_bodies import END, MAX_BODY_BYTES, Headers, KnownBodies, plain
from proxy.observe.recording_files import Piece, RecordingFiles
from proxy.wire.controls import NOTHING_ASKED, Controls

VERSION = 1  # of the lines
MAX_QUEUED = 10_000  # requests; further ones are dropped
MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and in the queue; further ones are recorded without
# Figures are written down at once, and all the rest soon after the request: with 10 and 50 ms requests cost more. Lines
# are compressed in batches, as that takes a third of the time, and by a thread: in the event loop it cost 12 us more.
FORMAT_DELAY_S = 0.004
WRITE_DELAY_S = 0.2
WRITE_LINES = 256
WRITE_BYTES = 1 << 18  # of bodies that are not known
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


class _Usage(msgspec.Struct, omit_defaults=True):
    prompt: int
    completion: int = 0
    cached: int = 0
    written: int = 0


class _Times(msgspec.Struct, omit_defaults=True):
    """Milliseconds."""

    own: float
    upstream: float = 0.0
    first_byte: float | None = None


class _Controls(msgspec.Struct, omit_defaults=True):
    mode: str = ""
    window: int | None = None
    pins: tuple[int, ...] = ()
    ladder: str = ""


class _Line(msgspec.Struct, omit_defaults=True):
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
_Queued = tuple[list[Piece], tuple[Request, Sender] | None]  # a line in pieces, and what is needed to complete it


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
        self._queue: deque[_Queued] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = self._failing = False
        self._pieces: list[Piece] = []  # of lines that are to be written
        self._lines = self._size = 0  # how many lines, and the bytes of their pieces
        self._due = 0.0  # when they are written at the latest
        # Each counter is changed by one side only, so that no lock is needed.
        self._held = 0  # bytes that were taken, by the event loop
        self._returned = 0  # bytes that were taken and are free again, by the thread
        self._given_up = 0  # requests that found the queue full, by the event loop
        self._broken = 0  # requests of which no line could be made, by the event loop
        self._results = Counter(written=0, failed=0)  # by the thread

    def hold(self, body: bytes) -> bytes | None:
        """What to give to `add` or `drop` when the request ends: its body, if it is to be recorded. None if too much is
        held already."""
        if self._content == META:
            return b""
        if len(body) > MAX_BODY_BYTES or self._held - self._returned + len(body) > MAX_HELD_BYTES:
            return None
        self._held += len(body)
        return body

    def drop(self, body: bytes | None) -> None:
        """Releases a body that `hold` returned, of a request that is not recorded."""
        self._held -= len(body or b"")

    def add(self, request: Request) -> None:
        """Queues a request and returns at once. Never raises."""
        if len(self._queue) >= MAX_QUEUED:
            self._given_up += 1
            self.drop(request.body)
            return
        try:
            self._queue.append(self._line(request))
        except Exception as error:  # a bug of ours loses this line, and nothing else
            self._broken += 1
            self.drop(request.body)
            self._event("a request is not recorded", reason=type(error).__name__)
        if not self._wake.is_set():
            self._wake_thread()

    def _line(self, request: Request) -> _Queued:
        """The line of a request, whole where that takes little time."""
        sender, body = self._sender(request.headers), request.body
        head = _ENCODER.encode(figures(request, sender.name))[:-1]
        if not request.fitted or self._content == META:
            return [head, END], None
        if body and self._content == BODIES:
            known = self._bodies.known(body, sender.keys)
            if known is not None:
                self._held -= len(body)
                return [head, *known], None
        return [head], (request, sender)

    def results(self) -> Mapping[tuple[str], int]:
        """Requests since the start, by what became of their lines: written, dropped because the queue was full, or
        failed at the disk."""
        written, failed = self._results["written"], self._results["failed"] + self._broken
        return {("dropped",): self._given_up, ("written",): written, ("failed",): failed}

    async def close(self) -> None:
        """Writes what is queued, within `FLUSH_S`."""
        self._closing = True
        if self._thread is not None:
            self._wake.set()
            until = time.monotonic() + FLUSH_S
            while self._thread.is_alive() and time.monotonic() < until:
                await asyncio.sleep(0.01)

    def _wake_thread(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not (self._closing and not self._queue and not self._lines):
            self._wake.wait(WRITE_DELAY_S if self._lines else None)
            if not self._closing:
                time.sleep(FORMAT_DELAY_S)
            self._wake.clear()
            self._format([self._queue.popleft() for _ in range(len(self._queue))])
            if self._lines and (self._closing or time.monotonic() >= self._due):
                self._write()
        self._files.close()

    def _format(self, batch: list[_Queued]) -> None:
        if not self._lines:
            self._due = time.monotonic() + WRITE_DELAY_S
        for pieces, rest in batch:
            if rest is not None and not self._complete(pieces, *rest):
                continue
            self._pieces += pieces
            self._lines += 1
            if self._lines >= WRITE_LINES or self._size >= WRITE_BYTES:
                self._write()

    def _complete(self, pieces: list[Piece], request: Request, sender: Sender) -> bool:
        """Adds the end of a line. Whether there is one."""
        try:
            fields = self._fields(request, sender)
        except Exception as error:  # a bug of ours loses this line, and nothing else
            self._tell(type(error).__name__, 1)
            return False
        finally:
            self._returned += len(request.body or b"")
        pieces += fields
        self._size += sum(map(len, fields))
        return True

    def _write(self) -> None:
        pieces, lines, self._pieces, self._lines, self._size = self._pieces, self._lines, [], 0, 0
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
