"""The client's side of one request: its body in, an answer out, and whether it is still there; it knows no endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

from proxy.errors import ClientError, over_budget, overloaded, too_large
from proxy.http.callbacks import Event, ignore
from proxy.http.cancellation import ClientDisconnected as ClientDisconnected
from proxy.http.cancellation import Interrupt, OnDisconnect, ProgressTimeout, leaving
from proxy.http.cancellation import Message as Message
from proxy.http.cancellation import Receive as Receive
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.memory_budget import FIRST, PATIENCE_S, Room
from proxy.http.server.cycle import Cycle
from proxy.wire.headers import NOTHING, Header, to_client, value_of

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Watch = Callable[[bytes], None]
T = TypeVar("T")

LINGER = 0.5  # seconds that the upstream has to end a stream whose client left, so that its connection is kept
TAIL = 32  # bytes of a stream's end that are remembered, at least
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")  # HTML standard, 9.2.5: a blank line dispatches an event
FRAMELESS = frozenset((204, 304))  # RFC 9110, 8.6: here a length is that of another answer
LENGTH = frozenset((b"content-length",))


class StreamFormat(Protocol):
    """How the client's API reports an error in a stream of events, and what ends one."""

    def error_event(self, error: ClientError) -> bytes:
        """The event that reports an error in a stream that has begun."""

    def is_end_of_stream(self, tail: bytes) -> bool:
        """Whether a stream's last bytes (`TAIL` are enough) are its last event."""


class BrokenOff(Exception):
    """The upstream failed in the middle of its answer; the client has been made to see it, nothing more may be sent."""

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.error = error


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive, cycle: Cycle | None = None) -> T:
    """Returns what `work` returns. Raises ClientDisconnected, with `work` cancelled, if the client disconnects first.
    The request's body must have been received before, unless there is a `cycle` of our own server."""
    try:
        with leaving(receive, cycle):
            return await work
    finally:
        work.close()


def cycle_of(scope: Scope) -> Cycle | None:
    """Our own server's view of a request; None under any other server."""
    return scope.get("plimsoll.cycle")


def target_of(scope: Scope) -> bytes:
    """The request's target as the client sent it: path and query, byte for byte."""
    target: bytes = scope.get("plimsoll.target") or b""
    if target.startswith(b"/"):
        return target
    # Another server, or the absolute form (RFC 9112, 3.2.2), whose host is none of our business.
    query = scope["query_string"]
    return bytes(scope["raw_path"] + b"?" + query if query else scope["raw_path"])


def slow_body(seconds: float) -> ClientError:
    """The client stopped sending in the middle of its request, or nearly so."""
    text = f"No byte of the request's body came for {seconds:g} seconds, or too few."
    return ClientError(408, text, code="body_timeout", retry=True)


async def receive_body(
    receive: Receive, seconds: float, cycle: Cycle | None = None, rate: float = 0.0, room: Room | None = None
) -> tuple[bytes, bool]:
    """Returns the next bytes of the request's body, and whether more follow. Raises ClientDisconnected, or ClientError
    408 after `seconds` without a byte. With a `cycle` that gathers, the wait may be longer as long as `rate` bytes a
    second arrive, and more if other requests wait for `room`."""
    late = partial(slow_body, seconds)
    pressed = None if room is None else lambda: room.pressed
    with (
        Interrupt(seconds, late)
        if cycle is None
        else ProgressTimeout(seconds, late, lambda: cycle.arrived, rate, pressed)
    ):
        message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


def body_here(cycle: Cycle | None, limit: int, room: Room) -> bytes | None:
    """The whole body, where all of it has come and there is room for it at once, as for short ones mostly; else
    `read_body` must be asked. Raises ClientError as that does."""
    if cycle is None or cycle.more_body or cycle.disconnected:
        return None
    if cycle.arrived > limit:
        raise too_large(limit)
    return cycle.body_at_hand() if room.now(cycle.arrived) else None


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float, room: Room, rate: float = 0.0) -> bytes:
    """The whole body; `room` holds as much as it needs before it is read. Raises ClientError where it has more than
    `limit` bytes or than could ever be held (413), where there is no room in time (503), or where for so many seconds
    none comes, or fewer than `rate` bytes a second (408); and ClientDisconnected."""
    cycle = cycle_of(scope)
    whole = body_here(cycle, limit, room)
    if whole is not None:
        return whole
    declared = value_of(scope["headers"], b"content-length")
    here = 0 if cycle is None else cycle.arrived
    size = max(here, min(FIRST, limit)) if declared is None else int(declared)
    if size > limit:
        raise too_large(limit)
    await admitted(room, size, here, cycle)
    if cycle is not None:
        cycle.gather(limit, room.grow if declared is None else None)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part, more = await receive_body(receive, seconds, cycle, rate, room)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if not room.grow(size):
            await enlarged(room, size, cycle)
        if more and cycle is not None:  # it stopped where there was no room
            cycle.gather(limit - size, partial(_grows, room, size))
    room.settle(size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _grows(room: Room, before: int, came: int) -> bool:
    return room.grow(before + came)


async def enlarged(room: Room, size: int, cycle: Cycle | None) -> None:
    """Waits until `room` holds a body that has grown to `size` bytes. Raises ClientError and ClientDisconnected as
    `admitted` does."""
    with nullcontext() if cycle is None else OnDisconnect(cycle):
        if not await room.grown(size):
            raise overloaded() if room.fits(size) else over_budget()


async def admitted(room: Room, size: int, here: int, cycle: Cycle | None) -> None:
    """Waits until the room holds so many bytes, `here` of which came already; nothing is read meanwhile. Raises
    ClientError where they could never be held (413) or cannot in time (503), and ClientDisconnected."""
    if not room.fits(size):
        room.refuse("size")
        raise over_budget()
    if room.now(size):
        return
    if cycle is not None:
        cycle.pause()
    try:
        with Interrupt(PATIENCE_S, overloaded), nullcontext() if cycle is None else OnDisconnect(cycle):
            if not await room.wait(size, here):
                raise overloaded()
    except ClientError:
        room.refuse("wait")
        raise


class Upload:
    """A body on its way through, after its first bytes: `chunks` for the upstream, and `receive` for whoever watches
    whether the client is still there, which begins when the body has been received."""

    __slots__ = ("_came", "_first", "_rate", "_received", "_seconds", "_take", "_waited")

    def __init__(self, first: bytes, receive: Receive, seconds: float, rate: float = 0.0) -> None:
        self._first, self._take, self._seconds, self._rate = first, receive, seconds, rate
        self._received = asyncio.Event()
        self._came, self._waited = 0, 0.0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come. Raises as `receive_body` does, and 408 where fewer than `rate` bytes a second
        come in the time in which the client, and not the upstream, is waited for."""
        clock = asyncio.get_running_loop().time
        try:
            yield self._first
            more = True
            while more:
                began = clock()
                part, more = await receive_body(self._take, self._seconds)
                self._weigh(len(part), clock() - began)
                yield part
        finally:
            self._received.set()

    def _weigh(self, size: int, waited: float) -> None:
        self._came += size
        self._waited += waited
        if self._waited >= self._seconds:
            if self._came < self._rate * self._waited:
                raise slow_body(self._seconds)
            self._came, self._waited = 0, 0.0

    async def receive(self) -> Message:
        """The next message behind the body."""
        await self._received.wait()
        return await self._take()


async def send_error(send: Send, error: ClientError, body: bytes, extra: Iterable[Header] = ()) -> None:
    """Sends an error of ours with its JSON body; OpenAI's clients repeat a request where x-should-retry says so."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-should-retry", b"true" if error.retry else b"false"),
        *extra,
    ]
    if error.after:
        headers.append((b"retry-after", b"%d" % error.after))
    if error.status == 408:
        headers.append((b"connection", b"close"))  # RFC 9110, 15.5.9: the rest of the request is not waited for
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def handed_on(cycle: Cycle, answer: Answer, body: bytes, extra: Sequence[Header]) -> bool:
    """Hands on an answer all of whose body is here. False, and nothing is written, where `relay` must do it."""
    headers = to_client(answer.headers)
    headers += extra
    return cycle.answered_at_once(answer.status, headers, body)


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
    """Hands an answer on, every byte as soon as it comes and no faster than the client takes them, and closes it.

    `first` are bytes of its body that were read already, `extra` headers of ours. `watch` sees every chunk after it
    went out; its failure is reported to `event`. `started` is called at the first chunk. With `cycle`, our own
    server's, no task need wake up for a chunk. An event stream that breaks ends with `stream_format.error_event`. A
    client that leaves after the last event of a stream has the whole answer. Raises ClientDisconnected, or BrokenOff
    once the client has the error; the caller must return then, for an answer that is not completed closes the
    connection.
    """
    out = _Out(answer, send, stream_format, watch, started, cycle, event)
    try:
        with leaving(receive, cycle):
            await out.start(extra)
            for chunk in filter(None, first):
                await out.pass_on(chunk)
            while chunk := await answer.next():
                await out.pass_on(chunk)
                if cycle is not None and cycle.flows:
                    await answer.flow_into(out.flows)
            await out.end()
    except UpstreamError as error:
        await out.break_off(error)
        raise BrokenOff(error) from error
    except ClientDisconnected:
        if not out.done:
            raise
        await out.linger()
    finally:
        await answer.close()


class _Out:
    """An answer on its way to the client."""

    __slots__ = (
        "_answer",
        "_cycle",
        "_ended",
        "_event",
        "_format",
        "_left",
        "_send",
        "_started",
        "_tail",
        "_watch",
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
        self._answer, self._send, self._watch, self._cycle = answer, send, watch, cycle
        self._started, self._format, self._event = started, stream_format, event
        self._left = -1  # bytes to come, where the answer says how many
        self._tail = b""
        self._ended = False

    async def start(self, extra: Sequence[Header]) -> None:
        status = self._answer.status
        headers = to_client(self._answer.headers, LENGTH if status in FRAMELESS else NOTHING)
        length = value_of(headers, b"content-length")
        if length is not None:
            self._left = int(length)
        headers += extra
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, chunk: bytes) -> None:
        if not self._tail and self._started is not None:
            self._started()
        self._left -= len(chunk)
        self._ended = self._left == 0  # the last byte goes out as the last, not as one that an empty one follows
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not self._ended})
        self._seen(chunk)

    def flows(self, chunk: bytes) -> bool:
        """Passes a chunk on at once; whether the client takes more."""
        assert self._cycle is not None
        more = self._cycle.flow_on(chunk)
        self._seen(chunk)
        return more

    def _seen(self, chunk: bytes) -> None:
        self._tail = chunk if len(chunk) >= TAIL else (self._tail + chunk)[-TAIL:]
        try:
            if self._watch is not None:
                self._watch(chunk)
        except Exception as error:  # what watches is ours, and our bug must not be the client's broken answer
            self._event("a watcher of answers failed", error=type(error).__name__)
            self._watch = None

    async def end(self) -> None:
        if not self._ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._ended = True

    @property
    def done(self) -> bool:
        """Whether the client has all that it waits for."""
        return self._ended or self._answer.whole or self._format.is_end_of_stream(self._tail)

    async def linger(self) -> None:
        """Reads the end of a stream that nobody waits for: then its connection serves the next request."""
        try:
            async with asyncio.timeout(LINGER):
                while chunk := await self._answer.next():
                    self._seen(chunk)
        except (TimeoutError, UpstreamError):
            pass

    async def break_off(self, error: UpstreamError) -> None:
        """A stream of events gets the error as one; what aborts it follows (a plain end would be taken for its end)."""
        headers = self._answer.headers
        kind = value_of(headers, b"content-type") or b""
        if (
            not kind.lower().startswith(b"text/event-stream")
            or value_of(headers, b"content-encoding")
            or self._left >= 0
        ):
            return
        if self._tail and not self._tail.endswith(b"\n"):
            return  # in the middle of a line: whatever follows would become a part of it
        gap = b"" if not self._tail or self._tail.endswith(EVENT_ENDS) else b"\n"
        event = gap + self._format.error_event(ClientError(error.status, error.message, code="upstream_error"))
        await self._send({"type": "http.response.body", "body": event, "more_body": True})
