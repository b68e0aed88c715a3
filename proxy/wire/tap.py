"""A copy of a response's bytes as they pass, and what the API reads in them: usage, finish reason, content, an error.

It delays nothing, never raises, and gives up on what it cannot decode.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from proxy.model.api import Api, ResponseState
from proxy.model.outcome import Usage
from proxy.wire import ndjson
from proxy.wire.coding import CODED, IDENTITY, decompressor_of_answer
from proxy.wire.response_id import response_id
from proxy.wire.sse import END, events, with_lf

# Bytes of a response that are kept, its last ones. All that counts in a stream is at its end: finish reason, usage and
# the end event; an error is the last event, too. A plain response may report its usage before its content.
SEVERAL = 2  # tokens in an event, by its bytes: the words of one token each have less
KEEP_STREAM = 32_768
KEEP_JSON = 262_144
FIRST_EVENTS = 4  # of a stream, among which one names the response's id: the first of what is kept may be half an event
MAX_INFLATED = 1_048_576  # decoded bytes of one chunk: what decodes to more is a decompression bomb

# The fields of all APIs' events that have parts of a reply, and the events that have it all again.
TEXT = re.compile(
    rb'"(?:content|text|delta|thinking|partial_json|arguments|reasoning|reasoning_content|refusal|response)"'
    rb'\s*:\s*"((?:[^"\\]|\\.)*)"'
)
AGAIN = re.compile(rb'"type"\s*:\s*"[\w.]*\.(?:done|completed|incomplete|added|created|in_progress)"')
SHORT_EVENT, BYTES_PER_TOKEN = 48, 4

STREAM = "text/event-stream"
STREAMS = (STREAM, ndjson.MEDIA_TYPE)
JSON = ("application/json", "+json")
ERROR = b"error"  # in every API's errors; a quick test, for most streams have none and are not read
Framing = Callable[[bytes], Iterator[tuple[bytes, bytes]]]  # the events in a stream's bytes


class Tap:
    """One response, fed chunk by chunk as it arrives; `content_type` and `encoding` are the values of its headers.

    A chunk is only kept, and read when a property is used. A response that is neither a stream of events nor JSON, or
    that has an unknown content-encoding, is not read: every property keeps its first value.
    """

    __slots__ = (
        *("_api", "_coding", "_cut", "_encoded", "_inflate", "_kept", "_kind", "_max", "_size", "_stale", "_start"),
        *("_state", "_total"),
    )

    def __init__(self, api: Api, content_type: str = "", encoding: str = "") -> None:
        self._api = api
        self._coding = encoding.strip().lower()
        self._encoded = self._coding in CODED
        self._inflate: zlib._Decompress | None = None
        self._start = b""  # of an encoded body, until its first two bytes show how to decode it
        self._kind = kind_of(content_type) if self._encoded or self._coding in IDENTITY else ""
        self._max = KEEP_STREAM if self._kind in STREAMS else KEEP_JSON
        self._kept: deque[bytes] = deque()
        self._size = self._total = 0
        self._cut = self._stale = False
        self._state = ResponseState()

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body, as received."""
        if not self._kind:
            return
        if self._encoded:
            chunk = self._inflated(chunk)
        if not chunk:
            return
        self._kept.append(chunk)
        self._size += len(chunk)
        self._total += len(chunk)
        self._stale = True
        if self._size > self._max:
            self._drop()

    @property
    def usage(self) -> Usage | None:
        """What the upstream reports to have counted; None if it has not reported it yet."""
        if self._stale:  # the only property that most requests use
            data = b"".join(self._kept)
            if self._api.usage_key not in data:
                return self._state.usage
            found = self._api.response.complete_usage(data) if self._kind == JSON[0] and not self._cut else None
            if found is not None:
                return found
        return self._read_new().usage

    @property
    def finish(self) -> str | None:
        """The last finish reason."""
        return self._read_new().finish

    @property
    def response_id(self) -> str:
        """The id that the response has in what is kept of it; empty if that names none."""
        data = b"".join(self._kept)
        if self._kind == STREAM:
            payloads: Iterable[bytes] = (payload for _, payload in events(with_lf(data)))
        elif self._kind == ndjson.MEDIA_TYPE:
            payloads = (payload for _, payload in ndjson.objects(data))
        else:
            payloads = (data,)
        return next(filter(None, map(response_id, islice(payloads, FIRST_EVENTS))), "")

    @property
    def done(self) -> bool:
        """Whether a stream's last event came."""
        return self._read_new().ended

    @property
    def error(self) -> bytes | None:
        """The first error in a 200 response: an event's data, or the whole plain response."""
        if self._stale and ERROR not in b"".join(self._kept):
            return self._state.error
        return self._read_new().error

    @property
    def content_seen(self) -> bool:
        """Whether something of a reply came: text, reasoning, a tool call, a refusal to answer."""
        return self._state.content or self._read_new().content

    @property
    def came(self) -> int:
        """About how many tokens of a reply came in a stream: one in each of its events, as most servers send them, or
        as many as its text has, where that is several in each."""
        if self._kind not in STREAMS or not self._size:
            return 0
        data, end = b"".join(self._kept), ndjson.END
        if self._kind == STREAM:
            data, end = with_lf(data), END
        events = data.split(end)[:-1]
        texts = sum(map(_text_in, events)) // BYTES_PER_TOKEN
        return round((texts if texts > SEVERAL * len(events) else len(events)) * self._total / self._size)

    def _inflated(self, chunk: bytes) -> bytes:
        if self._inflate is None:
            self._start = chunk = self._start + chunk
            if len(chunk) < 2:
                return b""
            self._inflate = decompressor_of_answer(self._coding, chunk)
        try:
            plain = self._inflate.decompress(chunk, MAX_INFLATED)
        except zlib.error:
            plain = None
        if plain is None or self._inflate.unconsumed_tail:
            self._give_up()
            return b""
        return plain

    def _give_up(self) -> None:
        self._kind = ""
        self._kept.clear()
        self._size = 0

    def _drop(self) -> None:
        """Drops the oldest chunks, after reading what only the beginning reports (Anthropic's count of the prompt)."""
        if not self._cut:
            self._read_new()
            self._cut = True
            s = self._state
            self._state = ResponseState(s.usage, s.finish, s.error, True, s.ended)  # one so long has content
        while self._size - len(self._kept[0]) >= self._max:
            self._size -= len(self._kept.popleft())

    def _read_new(self) -> ResponseState:
        """The state, after reading what was fed since the last time."""
        if self._stale:
            self._stale = False
            data = b"".join(self._kept)
            if self._kind == STREAM:
                self._read_stream(with_lf(data), END, events)
            elif self._kind == ndjson.MEDIA_TYPE:
                self._read_stream(data, ndjson.END, ndjson.objects)
            elif self._cut:
                self._state = self._api.response.read_tail(data, self._state)
            else:
                self._state = self._api.response.read(data, self._state)
        return self._state

    def _read_stream(self, data: bytes, end: bytes, framed: Framing) -> None:
        if self._cut:
            tail, _, data = data.partition(end)
            self._state = self._api.response.read_tail(tail, self._state)
        for name, payload in framed(data):
            if self._state.content:
                break
            self._state = self._api.response.read(payload, self._state, name)
        for block in _around(data, self._api.response.landmarks(data), end):
            for name, payload in framed(block):
                self._state = self._api.response.read(payload, self._state, name)


def _text_in(event: bytes) -> int:
    """How many bytes of a reply an event has; none, if it says again what came."""
    if len(event) < SHORT_EVENT or AGAIN.search(event) is not None:
        return 0
    return sum(map(len, TEXT.findall(event)))


def kind_of(content_type: str) -> str:
    """How a body is read: as a stream of events or of lines, as JSON, or not at all (empty)."""
    media = content_type.partition(";")[0].strip().lower()
    if media in STREAMS:
        return media
    return JSON[0] if media.endswith(JSON) else ""


def _around(data: bytes, places: Iterable[int], end: bytes) -> Iterator[bytes]:
    """The events in which these offsets are, each once, in order. `end` is that of an event."""
    for start in sorted({data.rfind(end, 0, place) for place in places}):
        stop = data.find(end, start + len(end))
        yield data[max(start, 0) : stop if stop >= 0 else len(data)]
