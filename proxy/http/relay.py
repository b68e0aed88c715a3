"""What a client gets: an error of the proxy, or an upstream's response part by part, until the client disconnects.

It is independent of the endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from proxy.errors import ClientError
from proxy.http.callbacks import Event, ignore
from proxy.http.cancellation import ClientDisconnected as ClientDisconnected
from proxy.http.cancellation import Message, Receive, interrupt_on_disconnect
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.server.cycle import Cycle
from proxy.wire.headers import NOTHING, Header, to_client, value_of

Send = Callable[[Message], Awaitable[None]]
Watch = Callable[[bytes], None]
T = TypeVar("T")

DRAIN_SECONDS = 0.5  # to drain a stream after the client disconnected, so that the upstream connection is reusable
TAIL = 32  # bytes of a stream's end that are kept, at least
LINES = b"application/x-ndjson"  # the media type of a stream whose lines are its events
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # HTML standard, 9.2.5: a blank line dispatches an event
NO_BODY = frozenset((204, 304))  # RFC 9110, 8.6: their content-length does not frame a body
LENGTH = frozenset((b"content-length",))


class StreamFormat(Protocol):
    """How the client's API reports an error in an event stream, and how such a stream ends."""

    def error_event(self, error: ClientError) -> bytes:
        """Returns the event that reports an error in a stream that has started, or the line."""

    def is_end_of_stream(self, tail: bytes) -> bool:
        """Whether the last bytes of a stream (at least `TAIL`) end its final event."""


class BrokenOff(Exception):
    """The upstream failed in the middle of its response. The client has the error; nothing more may be sent."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def until_disconnect(work: Coroutine[Any, Any, T], receive: Receive, cycle: Cycle | None = None) -> T:
    """Returns what `work` returns. Raises ClientDisconnected, with `work` cancelled, if the client disconnects first.
    The request's body must have been received before, unless `cycle` is set."""
    try:
        with interrupt_on_disconnect(receive, cycle):
            return await work
    finally:
        work.close()


async def send_error(send: Send, error: ClientError, body: bytes, extra: Iterable[Header] = ()) -> None:
    """Sends an error of the proxy with its JSON body. OpenAI's clients retry a request if x-should-retry is true."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-should-retry", b"true" if error.retry else b"false"),
        *extra,
    ]
    if error.after:
        headers.append((b"retry-after", b"%d" % error.after))
    if error.status == 408:
        headers.append((b"connection", b"close"))  # RFC 9110, 15.5.9: the rest of the request is not read
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def relay_at_once(cycle: Cycle, answer: Answer, body: bytes, extra: Sequence[Header]) -> bool:
    """Sends a response whose whole body has been received. Returns False and writes nothing if `relay` must be used."""
    headers = to_client(answer.headers)
    headers += extra
    return cycle.send_at_once(answer.status, headers, body)


async def relay(
    answer: Answer,
    receive: Receive,
    send: Send,
    stream_format: StreamFormat,
    first: Sequence[bytes] = (),
    extra: Sequence[Header] = (),
    watch: Watch | None = None,
    started: Callable[[], None] | None = None,
    cycle: Cycle | None = None,
    event: Event = ignore,
) -> None:
    """Relays a response and closes it. Sends each part as it arrives, with backpressure from the client.

    first: bytes of the body that were read before.
    extra: headers that the proxy adds.
    watch: called with each part after it is sent. Its errors are reported to `event`.
    started: called before the first part is sent.
    cycle: writes parts without waking a task for each.
    stream_format: `error_event` ends an event stream that breaks. A client that disconnects after the final event of a
    stream has the whole response, and causes no error.

    Raises ClientDisconnected. Raises BrokenOff once the client has the error of the upstream. The caller must then
    return: an incomplete response closes the connection.
    """
    writer = _ResponseWriter(answer, send, stream_format, watch, started, cycle, event)
    try:
        with interrupt_on_disconnect(receive, cycle):
            await writer.start(extra)
            for chunk in filter(None, first):
                await writer.pass_on(chunk)
            while chunk := await answer.next():
                await writer.pass_on(chunk)
                if cycle is not None and cycle.is_chunked:
                    await answer.pipe_to(writer.write_chunk)
            await writer.end()
    except UpstreamError as error:
        await writer.break_off(error)
        raise BrokenOff(error) from error
    except ClientDisconnected:
        if not writer.done:
            raise
        await writer.linger()
    finally:
        await answer.close()


class _ResponseWriter:
    """A response in transit to the client."""

    __slots__ = (
        "_answer",
        "_complete",
        "_cycle",
        "_event",
        "_format",
        "_last_bytes",
        "_observer",
        "_remaining",
        "_send",
        "_started",
    )

    def __init__(
        self,
        answer: Answer,
        send: Send,
        stream_format: StreamFormat,
        watch: Watch | None,
        started: Callable[[], None] | None,
        cycle: Cycle | None,
        event: Event,
    ) -> None:
        self._answer, self._send, self._observer, self._cycle = answer, send, watch, cycle
        self._started, self._format, self._event = started, stream_format, event
        self._remaining = -1  # remaining bytes of a response with a content-length
        self._last_bytes = b""
        self._complete = False

    async def start(self, extra: Sequence[Header]) -> None:
        status = self._answer.status
        headers = to_client(self._answer.headers, LENGTH if status in NO_BODY else NOTHING)
        length = value_of(headers, b"content-length")
        if length is not None:
            self._remaining = int(length)
        headers += extra
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, chunk: bytes) -> None:
        if not self._last_bytes and self._started is not None:
            self._started()
        self._remaining -= len(chunk)
        self._complete = self._remaining == 0  # the last part ends the body, so no empty message follows
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not self._complete})
        self._observe(chunk)

    def write_chunk(self, chunk: bytes) -> bool:
        """Writes a part immediately. Returns False under backpressure."""
        assert self._cycle is not None
        more = self._cycle.send_chunk(chunk)
        self._observe(chunk)
        return more

    def _observe(self, chunk: bytes) -> None:
        self._last_bytes = chunk if len(chunk) >= TAIL else (self._last_bytes + chunk)[-TAIL:]
        try:
            if self._observer is not None:
                self._observer(chunk)
        except Exception as error:  # a bug in the proxy's own callback must not break the response
            self._event("a callback that observes responses failed", error=type(error).__name__)
            self._observer = None

    async def end(self) -> None:
        if not self._complete:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._complete = True

    @property
    def done(self) -> bool:
        """Whether the client has the whole response."""
        return self._complete or self._answer.whole or self._format.is_end_of_stream(self._last_bytes)

    async def linger(self) -> None:
        """Drains the stream after a disconnect, so that the upstream connection can be reused."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while chunk := await self._answer.next():
                    self._observe(chunk)
        except (TimeoutError, UpstreamError):
            pass

    async def break_off(self, error: UpstreamError) -> None:
        """Sends the error as an event if the response is an event stream. The stream is not completed: the client would
        take that for a normal end."""
        headers = self._answer.headers
        kind = value_of(headers, b"content-type") or b""
        lines = kind.lower().startswith(LINES)
        if (
            not (lines or kind.lower().startswith(b"text/event-stream"))
            or value_of(headers, b"content-encoding")
            or self._remaining >= 0
        ):
            return
        if self._last_bytes and not self._last_bytes.endswith(b"\n"):
            return  # in the middle of a line: an event would be appended to it
        gap = b"" if lines or not self._last_bytes or self._last_bytes.endswith(EVENT_ENDS) else b"\n"
        event = gap + self._format.error_event(ClientError(error.status, error.message, code="upstream_error"))
        await self._send({"type": "http.response.body", "body": event, "more_body": True})
