"""The client side of one request: receives its body, relays a response, and detects a disconnect.

It is independent of the endpoint.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

from proxy.errors import ClientError, over_budget, overloaded, too_large
from proxy.http.callbacks import Event, ignore
from proxy.http.cancellation import ClientDisconnected as ClientDisconnected
from proxy.http.cancellation import Interrupt, OnDisconnect, ProgressTimeout, interrupt_on_disconnect
from proxy.http.cancellation import Message as Message
from proxy.http.cancellation import Receive as Receive
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.memory_budget import ASSUMED_BODY, WAIT_TIMEOUT_S, Room
from proxy.http.server.cycle import Cycle
from proxy.wire.headers import NOTHING, Header, to_client, value_of

Scope = MutableMapping[str, Any]
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


def cycle_of(scope: Scope) -> Cycle | None:
    """Returns the request's cycle, or None under another ASGI server."""
    return scope.get("plimsoll.cycle")


def target_of(scope: Scope) -> bytes:
    """Returns the request's target as the client sent it: path and query, byte for byte."""
    target: bytes = scope.get("plimsoll.target") or b""
    if target.startswith(b"/"):
        return target
    # Another ASGI server, or the absolute form (RFC 9112, 3.2.2), whose scheme and host are dropped.
    query = scope["query_string"]
    return bytes(scope["raw_path"] + b"?" + query if query else scope["raw_path"])


def body_timeout(seconds: float) -> ClientError:
    """Returns the error for a body that stalled, or arrived below the minimum rate."""
    text = f"The request's body stalled for {seconds:g} seconds, or arrived too slowly."
    return ClientError(408, text, code="body_timeout", retry=True)


class Arrival:
    """A body that arrives, in `room`. While others wait for room it must be fast enough for its size, or give way.

    size: bytes that are declared, or were received before. seconds: as of `receive_body`.
    """

    __slots__ = ("_cycle", "_gives_way", "_room", "_seconds", "_size")

    def __init__(self, room: Room, cycle: Cycle, size: int, seconds: float) -> None:
        self._room, self._cycle, self._size, self._seconds = room, cycle, size, seconds
        self._gives_way = False

    def progress(self) -> int:
        """Returns the number of received bytes."""
        return self._cycle.received

    def pressure(self) -> float:
        """Returns the bytes per second that it must reach now; infinity if it must give way."""
        received = self._cycle.received
        self._gives_way = not self._room.keep(received)
        return math.inf if self._gives_way else self._room.rate(max(self._size, received))

    def error(self) -> ClientError:
        """Returns why it was refused."""
        return overloaded() if self._gives_way else body_timeout(self._seconds)


async def receive_body(
    receive: Receive, seconds: float, arrival: Arrival | None = None, rate: float = 0.0
) -> tuple[bytes, bool]:
    """Returns the next bytes of the request's body, and whether more follow. Raises ClientDisconnected, or ClientError
    408 after `seconds` without a byte. With an `arrival` the wait may be longer while `rate` bytes per second arrive;
    then raises ClientError also as that says."""
    with (
        Interrupt(seconds, partial(body_timeout, seconds))
        if arrival is None
        else ProgressTimeout(seconds, arrival.error, arrival.progress, rate, arrival.pressure)
    ):
        message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


def body_if_received(cycle: Cycle | None, limit: int, room: Room) -> bytes | None:
    """Returns the whole body if it has been received and there is room for it, the common case for a short one. Else
    returns None, and `read_body` must be used. Raises ClientError as `read_body` does."""
    if cycle is None or cycle.more_body or cycle.disconnected:
        return None
    if cycle.received > limit:
        raise too_large(limit)
    return cycle.received_body() if room.try_reserve(cycle.received) else None


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float, room: Room, rate: float = 0.0) -> bytes:
    """Returns the whole body. Reserves memory in `room` before it reads.

    Raises ClientDisconnected, or ClientError:
    413: the body exceeds `limit` bytes or the whole memory budget.
    503: there is no room in time, or others have waited for it while this caller held more than half.
    408: no byte arrives for `seconds`, or fewer than `rate` bytes per second, or than its size needs while others wait.
    """
    cycle = cycle_of(scope)
    whole = body_if_received(cycle, limit, room)
    if whole is not None:
        return whole
    declared = value_of(scope["headers"], b"content-length")
    received = 0 if cycle is None else cycle.received
    size = max(received, min(ASSUMED_BODY, limit)) if declared is None else int(declared)
    if size > limit:
        raise too_large(limit)
    await reserve(room, size, received, cycle)
    arrival = None if cycle is None else Arrival(room, cycle, size, seconds)
    with room:
        return await _read_parts(receive, limit, seconds, room, rate, cycle, arrival)


async def _read_parts(
    receive: Receive,
    limit: int,
    seconds: float,
    room: Room,
    rate: float,
    cycle: Cycle | None,
    arrival: Arrival | None,
) -> bytes:
    if cycle is not None:
        cycle.read_whole(limit, room.grow)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part, more = await receive_body(receive, seconds, arrival, rate)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if not room.grow(size):
            await extend_reservation(room, size, cycle)
        if more and cycle is not None:  # gathering stopped for lack of room
            cycle.read_whole(limit - size, partial(_grows, room, size))
    room.trim(size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _grows(room: Room, before: int, received: int) -> bool:
    return room.grow(before + received)


async def extend_reservation(room: Room, size: int, cycle: Cycle | None) -> None:
    """Waits until `room` has reserved memory for a body that has grown to `size` bytes. Raises ClientError and
    ClientDisconnected as `reserve` does."""
    with nullcontext() if cycle is None else OnDisconnect(cycle):
        if not await room.wait_to_grow(size):
            raise overloaded() if room.fits(size) else over_budget()


async def reserve(room: Room, size: int, received: int, cycle: Cycle | None) -> None:
    """Waits until `room` has reserved memory for a body of `size` bytes, of which `received` bytes are here. Reading
    is paused during the wait. Raises ClientError if the body exceeds the whole budget (413) or there is no room in time
    (503). Raises ClientDisconnected."""
    if not room.fits(size):
        room.refuse("size")
        raise over_budget()
    if room.try_reserve(size):
        return
    if cycle is not None:
        cycle.pause()
    try:
        with Interrupt(WAIT_TIMEOUT_S, overloaded), nullcontext() if cycle is None else OnDisconnect(cycle):
            if not await room.wait(size, received):
                raise overloaded()
    except ClientError:
        room.refuse("wait")
        raise


class Upload:
    """A streamed body after its first bytes. `chunks` yields it for the upstream. `receive` serves the detection of a
    disconnect, which starts once the body has been received."""

    __slots__ = ("_first", "_rate", "_received", "_received_bytes", "_seconds", "_take", "_waited")

    def __init__(self, first: bytes, receive: Receive, seconds: float, rate: float = 0.0) -> None:
        self._first, self._take, self._seconds, self._rate = first, receive, seconds, rate
        self._received = asyncio.Event()
        self._received_bytes, self._waited = 0, 0.0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body's bytes as they arrive. Raises as `receive_body` does, and ClientError 408 if fewer than
        `rate` bytes per second arrive. Only the time spent waiting for the client counts, not for the upstream."""
        clock = asyncio.get_running_loop().time
        try:
            yield self._first
            more = True
            while more:
                began = clock()
                part, more = await receive_body(self._take, self._seconds)
                self._check_rate(len(part), clock() - began)
                yield part
        finally:
            self._received.set()

    def _check_rate(self, size: int, waited: float) -> None:
        self._received_bytes += size
        self._waited += waited
        if self._waited >= self._seconds:
            if self._received_bytes < self._rate * self._waited:
                raise body_timeout(self._seconds)
            self._received_bytes, self._waited = 0, 0.0

    async def receive(self) -> Message:
        """Waits for the end of the body, then returns the next ASGI message."""
        await self._received.wait()
        return await self._take()


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
