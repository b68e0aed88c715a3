"""Records requests, for replay and for people: one line of JSON for each, written by a thread.

No request waits for it. What the disk does not take in time is dropped and counted. No key is in a line, and content
only where the settings ask for it.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.config.settings import BODIES, META, REDACTED
from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log import printable
from proxy.observe.recording_files import RecordingFiles
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.headers import Header, value_of

VERSION = 1  # of the lines
MAX_QUEUED = 10_000  # requests; further ones are dropped
MAX_HELD_BYTES = 32 << 20  # of bodies of requests in progress and in the queue; further ones are recorded without
MAX_BODY_BYTES = 8 << 20  # of one body, also without its content-encoding: making its line takes four times as much
# Lines are made soon after the requests, which are in the processor's cache then: later it takes twice as long. They
# are written in batches: a gzip member takes as long as ten lines.
FORMAT_DELAY_S = 0.01
WRITE_DELAY_S = 0.2
WRITE_BYTES = 1 << 18
FLUSH_S = 3.0  # what an exit waits at most
DROPPED = "dropped"  # the value of `content` where a body is missing
CODINGS = {b"": None, b"identity": None, b"gzip": 31, b"x-gzip": 31, b"deflate": 47}  # zlib's window bits
Headers = Sequence[Header]

# Credentials that some APIs take in the body: of MCP servers, of LiteLLM. Their values are never recorded.
MAY_HAVE_KEY = (b"uthorization", b'api_key"', b'"headers"')  # few, and no pattern: each body is searched for them
KEY_IN_BODY = re.compile(
    rb'("[\w.-]{0,40}(?:authorization|api[_-]?key|token|password|secret|cookie)[\w.-]{0,40}"\s{0,8}:\s{0,8}")'
    rb'(?:[^"\\]|\\.){1,4096}',  # all bounded: a client could make it search for minutes
    re.IGNORECASE,
)
HIDDEN = b"***"
MODEL = re.compile(r"[\w.:/@+-]{1,120}")


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
    at: float = 0.0


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
    bytes: int = 0
    content: str = ""
    request: msgspec.Raw | None = None
    request_text: str | None = None


_ENCODER = msgspec.json.Encoder()
_RAW = msgspec.json.Decoder(msgspec.Raw)  # checks that it is JSON


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
        self._queue: deque[Request] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = self._failing = False
        self._lines: list[bytes] = []  # that are to be written
        self._size, self._due = 0, 0.0  # their bytes; when they are written at the latest
        # Each counter is changed by one side only, so that no lock is needed.
        self._held = 0  # bytes that were taken, by the event loop
        self._returned = 0  # bytes that were taken and are free again, by the thread
        self._given_up = 0  # requests that found the queue full, by the event loop
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
        request.at = time.time()
        self._queue.append(request)
        if not self._wake.is_set():
            self._wake_thread()

    def results(self) -> Mapping[tuple[str], int]:
        """Requests since the start, by what became of their lines: written, dropped because the queue was full, or
        failed at the disk."""
        return {("dropped",): self._given_up, **{(name,): count for name, count in self._results.items()}}

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

    def _format(self, batch: list[Request]) -> None:
        if not self._lines:
            self._due = time.monotonic() + WRITE_DELAY_S
        for request in batch:
            try:
                line = self._line(request)
            except Exception as error:  # a bug of ours loses this line, and nothing else
                self._tell(type(error).__name__, 1)
            else:
                self._lines.append(line)
                self._size += len(line)
            self._returned += len(request.body or b"")
            if self._size >= WRITE_BYTES:
                self._write()

    def _write(self) -> None:
        lines, self._lines, self._size = self._lines, [], 0
        try:
            self._files.append(lines)
            problem = ""
        except Exception as error:  # the disk, as a rule
            problem = getattr(error, "strerror", None) or type(error).__name__
        self._tell(problem, len(lines))

    def _tell(self, problem: str, count: int) -> None:
        """Counts lines that were written, or had a problem; an event says when problems begin and end."""
        self._results["failed" if problem else "written"] += count
        if problem and not self._failing:
            self._event("requests are not recorded", reason=problem, folder=self._files.folder)
        elif self._failing and not problem:
            self._event("requests are recorded again")
        self._failing = bool(problem)

    def _line(self, request: Request) -> bytes:
        """The line of a request, with its newline."""
        line = figures(request)
        sender = self._sender(request.headers)
        line.caller = sender.name
        if self._content != META and request.fitted:
            self._add_body(line, request, sender.keys)
        return _ENCODER.encode(line) + b"\n"

    def _add_body(self, line: _Line, request: Request, keys: Sequence[bytes]) -> None:
        body = None if request.body is None else _plain(request.body, request.headers)
        line.content = self._content
        if not body:
            line.content = "" if body is not None else DROPPED
        elif self._content == BODIES:
            line.bytes = len(body)
            _add_original(line, without_keys(body, keys))
        elif self._content == REDACTED:
            line.bytes = len(body)
            try:
                line.request = msgspec.Raw(self._redact(body, line.model))
            except Exception:  # no JSON, or none that can be read
                line.content = DROPPED


def figures(request: Request) -> _Line:
    """The line of a request without its caller and its body."""
    o, usage = request.outcome, request.outcome.usage
    return _Line(
        VERSION,
        int(1000 * request.at) / 1000,
        o.endpoint,
        o.path,
        _named(o.model),
        _named(o.model_sent) if o.model_sent != o.model else "",
        o.upstream,
        "",
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
    return model if not model or MODEL.fullmatch(model) else "?"


def _steps(notes: Sequence[Note]) -> list[_Step]:
    return [_Step(note.step, note.tokens_before, note.tokens_after) for note in notes]


def _controls(asked: Controls, ladder: str) -> _Controls:
    """The control headers whose values are not the client's own words."""
    named = asked.ladder if asked.ladder == ladder else None
    return _Controls(asked.mode or "", asked.window, tuple(sorted(asked.pins)), named or "")


def _plain(body: bytes, headers: Headers) -> bytes | None:
    """The body without its content-encoding; None if it has one that cannot be removed."""
    coding = value_of(headers, b"content-encoding")
    bits = CODINGS.get(coding.strip().lower(), 0) if coding else None
    if bits is None:
        return body
    if not bits:
        return None
    machine = zlib.decompressobj(bits)
    try:
        plain = machine.decompress(body, MAX_BODY_BYTES)
    except zlib.error:
        return None
    return plain if machine.eof else None


def without_keys(body: bytes, keys: Sequence[bytes]) -> bytes:
    """The body without these credentials, and without those that APIs take in a body."""
    for key in keys:
        if key in body:
            body = body.replace(key, HIDDEN)
    for mark in MAY_HAVE_KEY:
        if mark in body:
            return KEY_IN_BODY.sub(rb"\1" + HIDDEN, body)
    return body


def _add_original(line: _Line, body: bytes) -> None:
    """Adds the body as it is, or as a text if it is no JSON."""
    try:
        raw = _RAW.decode(body)
        if not body.isascii():
            body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        line.request_text = body.decode(errors="replace")
        return
    if b"\n" in body or b"\r" in body:  # in JSON, white space between values: in a text they are escaped
        raw = msgspec.Raw(body.replace(b"\r", b" ").replace(b"\n", b" "))
    line.request = raw
