"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for the disk. What it does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.

Theory of operation. The event loop makes the lines of some requests at a time, which takes half of what each takes
between other work, and compresses the short ones together while they are in the caches. The thread writes them, half a
megabyte at a time, because the event loop waits for the interpreter whenever it works. Before that it adds the bodies
that take long to be searched for keys, redacted or compressed.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.config.settings import BODIES, META
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.recorded_bodies import END, MAX_BODY_BYTES, SHORT, Headers, Keys, KnownBodies, plain
from proxy.observe.recording_files import LEAST, Piece, RecordingFiles, packed
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.headers import value_of

VERSION = 1  # of the lines
MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and of what is to be written; more is dropped
REQUEST_BYTES = 1024  # of a request that the thread has to finish, without its body
WAITING = 64  # requests whose lines are made at a time, ...
WAITING_BYTES = 1 << 15  # ... and at once after one with so much of a body
PACK_BYTES = 1 << 16  # of lines that are compressed together
WRITE_BYTES = 1 << 19  # of a batch, ...
WRITE_DELAY_S = 0.5  # ... which is written at the latest after this time
FLUSH_S = 3.0  # what an exit waits at most

LINE_END = (END,)
MAX_NAME = 120
NAME = re.compile(r"[\w.:/@+-]*")
MAX_NAMES = 1024
_names: dict[str, str] = {}  # of models, that were matched with the pattern


class Sender(NamedTuple):
    """Who sends requests: a keyed hash, empty for nobody, and the credentials that no line may have."""

    name: str
    keys: Keys = ()


class Request(msgspec.Struct, gc=False):
    """A request that has ended. `fitted`: it has a body, which is `body`, None if it is not held. `finish`: the reason
    that the upstream reported, where the answer was relayed as it came. `at`: seconds since 1970."""

    outcome: Outcome
    headers: Headers = ()
    fitted: bool = False
    controls: Controls = NOTHING_ASKED
    body: bytes | None = b""
    finish: str | None = None
    at: float = msgspec.field(default_factory=time.time)


class _Step(msgspec.Struct):
    step: str
    tokens_before: int
    tokens_after: int


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


class _Line(msgspec.Struct, omit_defaults=True, gc=False, tag_field="v", tag=VERSION):
    """The fields of a line; deploy/README.md describes them. Fields with their default value are omitted."""

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
    refused: tuple[str, ...] = ()
    healed: bool = False
    truncated: bool = False
    usage: Usage | None = None
    ms: _Times | None = None
    steps: list[_Step] = []
    planned: list[_Step] = []
    controls: _Controls | None = None
    finish: str | None = None


_ENCODER = msgspec.json.Encoder()


class _Unfinished(NamedTuple):
    """A line that lacks its body. `head`: all before it."""

    head: bytes
    request: Request
    sender: Sender


class _Batch(msgspec.Struct, gc=False):
    """Lines that are written together. `pieces` from `packed` on are texts of `unpacked` bytes that are to be
    compressed together. `weight`: what all hold of `MAX_HELD_BYTES`."""

    pieces: list[Piece | _Unfinished]
    packed: int = 0
    unpacked: int = 0
    lines: int = 0
    weight: int = 0

    def add(self, line: bytes, ending: Sequence[Piece]) -> None:
        """Adds a line in pieces."""
        self.pieces.append(line)
        self.pieces += ending
        self.lines += 1
        if len(ending) == 1:
            size = len(line) + len(ending[0])
            self.unpacked += size
        else:  # it may have a gzip member already
            size = len(line) + sum(map(len, ending))
            self.packed, self.unpacked = len(self.pieces), 0
        self.weight += size

    def leave(self, line: _Unfinished) -> None:
        """Adds a line that the thread finishes."""
        self.pieces.append(line)
        self.lines += 1
        self.weight += REQUEST_BYTES + len(line.request.body or b"")
        self.packed, self.unpacked = len(self.pieces), 0

    def pack(self) -> None:
        """Compresses the newest lines, if they are worth it."""
        if self.unpacked < PACK_BYTES:
            return
        member = packed(b"".join(self.pieces[self.packed :]), LEAST)  # type: ignore[arg-type]
        self.pieces[self.packed :] = (member,)
        self.weight += len(member) - self.unpacked
        self.packed, self.unpacked = len(self.pieces), 0


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
        self._waiting: list[Request] = []  # for their lines
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
        """Records a request. Never raises."""
        waiting = self._waiting
        waiting.append(request)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._finish)
        if len(waiting) >= WAITING or len(request.body or b"") >= WAITING_BYTES:
            self._make_lines()

    def _make_lines(self) -> None:
        """Makes the lines of the requests that wait, or leaves their ends to the thread."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            batch = self._batch or self._begin()
            if batch is None:
                self._given_up += 1
                continue
            try:
                sender = self._sender(request.headers)
                line = _ENCODER.encode(figures(request, sender.name))[:-1]  # the brace is a part of what follows
                ending = self._ending(request, sender.keys)
            except Exception as error:  # a bug of ours loses this line, and nothing else
                self._broken += 1
                self._event("a request is not recorded", reason=type(error).__name__)
                continue
            if ending is not None:
                batch.add(line, ending)
            else:
                if request.body and not self._has_room(request.body):
                    request.body = None
                batch.leave(_Unfinished(line, request, sender))
            if batch.weight >= WRITE_BYTES:
                self._hand_over(batch)
        if self._batch is not None:
            self._batch.pack()

    def _ending(self, request: Request, keys: Keys) -> Sequence[Piece] | None:
        """The end of a line, from the fields of the body; None if that takes long."""
        if not request.fitted or self._content == META:
            return LINE_END
        body = request.body
        if not body or self._content != BODIES:
            return None
        known = self._bodies.known(body, keys)
        if known is None and len(body) <= SHORT and value_of(request.headers, b"content-encoding") is None:
            return self._bodies.fields(body, keys)  # the thread takes several times as long, as it has to be woken
        return known

    def _begin(self) -> _Batch | None:
        """Begins a batch; None if the disk has not taken enough of those before it."""
        if self._held - self._returned >= MAX_HELD_BYTES:
            return None
        self._batch = _Batch([])
        return self._batch

    def _finish(self) -> None:
        """Writes what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._make_lines()
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
    o, controls, finish = request.outcome, request.controls, request.finish
    usage = o.usage
    if usage is not None and usage.stored_as:
        usage = replace(usage, stored_as="")
    line = _Line(  # with at most 30 arguments, as Python takes twice as long with more
        request.at * 1000 // 1 / 1000,
        o.endpoint,
        o.path,
        _names.get(o.model) or _named(o.model),
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
        o.refusals,
        o.healed,
        o.truncated,
        usage,
        _Times(
            100_000 * o.own_seconds // 1 / 100,  # `round` takes three times as long
            10_000 * o.upstream_seconds // 1 / 10,
            None if o.first_byte_seconds is None else 10_000 * o.first_byte_seconds // 1 / 10,
        ),
    )
    if o.notes or o.planned:
        line.steps, line.planned = _steps(o.notes), _steps(o.planned)
    if controls is not NOTHING_ASKED:
        line.controls = _controls(controls, o.ladder)
    if finish is not None:
        line.finish = printable(finish)
    return line


def _named(model: str) -> str:
    """A model's name; what is no name is a text of the client, which nothing may show."""
    if len(model) > MAX_NAME or not NAME.fullmatch(model):
        return "?"
    if len(_names) >= MAX_NAMES:  # clients choose them
        _names.clear()
    return _names.setdefault(model, model)


def _steps(notes: Sequence[Note]) -> list[_Step]:
    return [_Step(note.step, note.tokens_before, note.tokens_after) for note in notes]


def _controls(asked: Controls, ladder: str) -> _Controls:
    """The control headers whose values are not the client's own words."""
    named = asked.ladder if asked.ladder == ladder else None
    return _Controls(asked.mode or "", asked.window, tuple(sorted(asked.pins)), named or "")
