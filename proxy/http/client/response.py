"""One response as it arrives on an upstream connection: the parser's callbacks, and the task that reads the response.

It neither delays nor changes bytes. The pool enforces the read timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from proxy.http.tunnel import Detached

Header = tuple[bytes, bytes]
Sink = Callable[[bytes], bool]

HIGH_WATER = 64 * 1024  # bytes of a response buffered before reading pauses
MAX_HEAD = 64 * 1024  # bytes of a response's head; providers send 1 to 4 KB
MAX_FRAMING = 1 << 20  # consecutive bytes without body data: trailers, chunk extensions, leading zeros
LAST_STATUS = 599  # RFC 9110, 15: codes outside 100 to 599 are invalid
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the response ends with its head
TRANSFER_ENCODING = b"transfer-encoding"
FRAMING = frozenset((TRANSFER_ENCODING, b"content-length"))  # headers that say where the body ends
WEBSOCKET = b"websocket"  # the only supported protocol of an upgrade (RFC 6455)


class Fault(Enum):
    """The kinds of failure of a request to an upstream."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "timeout of the connection"
    OVERLOADED = "no free connection or file descriptor"
    CLOSED = "closed before the first byte of the response"
    INCOMPLETE = "closed in the middle of the response"
    READ_TIMEOUT = "timeout of a read"
    WRITE_TIMEOUT = "timeout of a write"
    PROTOCOL_ERROR = "protocol error"


class TransportError(Exception):
    """A request got no response, or an incomplete one. The message contains no header and no content."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class ConnectionPort(Protocol):
    """The connection of a response, with its parser."""

    def status(self) -> int:
        """The status code of the head that was just parsed."""

    def should_keep_alive(self) -> bool:
        """Whether the connection stays open after the response that was just parsed."""

    def detach(self) -> Detached:
        """Detaches the connection for use with another protocol."""

    def pause_reading(self) -> None:
        """Pauses reading."""

    def resume_reading(self, reader: ResponseReader) -> None:
        """Resumes reading, if `reader` is still the current one."""

    def close(self) -> None:
        """Closes immediately."""


class ResponseReader:
    """The response to one request. The parser calls the `on_` methods; one task reads the response.

    status, headers: valid once `head()` has returned. Names are in lower case.
    sent: the whole request has been sent.
    read_waits_since: the loop time since which the task waits without receiving a byte; None while it does not wait.
    head_received: the head is complete.
    chunked: the body has chunked coding.
    complete: the whole response has been received. A part of it may still be buffered.
    sink: takes the parts of the body as they are parsed, while it is set.
    switched: the response was 101 to a request that `upgrades`. The bytes after it are not HTTP.
    """

    __slots__ = (
        "_buffer",
        "_buffered_bytes",
        "_connection",
        "_error",
        "_framing_bytes",
        "_head_bytes",
        "_is_head_request",
        "_keep_alive",
        "_loop",
        "_read_to_eof",
        "_upgrades",
        "_waiter",
        "chunked",
        "complete",
        "head_received",
        "headers",
        "read_waits_since",
        "sent",
        "sink",
        "status",
        "switched",
        "upload",
    )  # fmt: skip

    def __init__(
        self, connection: ConnectionPort, loop: asyncio.AbstractEventLoop, method: str, upgrades: bool = False
    ) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.sent = False
        self.read_waits_since: float | None = None
        self.upload: asyncio.Task[None] | None = None
        self._connection = connection
        self._loop = loop
        self._is_head_request = method == "HEAD"
        self._upgrades, self.switched = upgrades, False
        self._head_bytes = 0
        self._framing_bytes = 0  # bytes since the last body data
        self.complete = self.head_received = self.chunked = self._read_to_eof = self._keep_alive = False
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.sink: Sink | None = None

    @property
    def reusable(self) -> bool:
        """Whether the connection can be reused for another request."""
        return self._keep_alive and self.sent

    @property
    def overlong(self) -> bool:
        """Whether an incomplete head exceeds `MAX_HEAD`, or framing without body data exceeds `MAX_FRAMING`. The parser
        buffers incomplete elements without a limit of its own."""
        return self._framing_bytes > MAX_FRAMING if self.head_received else self._head_bytes > MAX_HEAD

    async def head(self) -> None:
        """Waits for the response's head. Raises TransportError, or the error that stopped the upload of the request's
        body. Closes the reader on an error."""
        try:
            while not self.head_received:
                if self._error is not None:
                    raise self._error
                await self._wait()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """Returns the bytes of the body received since the last call, waiting for at least one; b"" at the end. Raises
        as `head` does."""
        while not self._buffer:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        buffered, self._buffer = self._buffer, []
        if self._buffered_bytes > HIGH_WATER:
            self._connection.resume_reading(self)
        self._buffered_bytes = 0
        return buffered[0] if len(buffered) == 1 else b"".join(buffered)

    def detach(self) -> Detached:
        """Detaches the connection after it has `switched`. Raises TransportError if it is lost."""
        if self._error is not None or not self.switched:
            raise self._error or TransportError(Fault.PROTOCOL_ERROR, "The upstream did not switch protocols.")
        return self._connection.detach()

    def buffered_body(self) -> bytes | None:
        """Returns the buffered body if the whole response has been received, else None. Never waits."""
        if not self.complete or self._error is not None:
            return None
        buffered, self._buffer = self._buffer, []
        self._buffered_bytes = 0
        return buffered[0] if len(buffered) == 1 else b"".join(buffered)

    async def pipe_to(self, sink: Sink) -> None:
        """Passes received bytes of the body directly to `sink`, without waking a task for each part. Returns when the
        sink applies backpressure (returns False), or at the end or an error, which `read` then reports."""
        if self._buffer or self.complete or self._error is not None:
            return
        self.sink = sink
        try:
            await self._wait()
        finally:
            self.sink = None

    def flush_to_sink(self) -> None:
        """Passes the body data that was just parsed to the sink, if one is set."""
        sink = self.sink
        if sink is None or not self._buffer:
            return
        buffered, self._buffer = self._buffer, []
        if self._buffered_bytes > HIGH_WATER:
            self._connection.resume_reading(self)
        self._buffered_bytes = 0
        if not sink(buffered[0] if len(buffered) == 1 else b"".join(buffered)):
            self.sink = None
            self._wake()

    def _wait(self) -> asyncio.Future[None]:
        self._waiter = self._loop.create_future()
        self.read_waits_since = self._loop.time()
        return self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self.read_waits_since = None
            if not waiter.done():  # the waiting task may have been cancelled
                waiter.set_result(None)

    def request_sent(self) -> None:
        """Marks the request as sent. The read timeout runs from now on."""
        self.sent = True
        if self.read_waits_since is not None:
            self.read_waits_since = self._loop.time()

    def fail(self, error: Exception) -> None:
        """Fails the response: `read` returns the buffered bytes, then raises this error. Closes the connection."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()
            self._connection.close()

    def close(self) -> None:
        """Discards the rest of the response. Closes the connection if the response is incomplete."""
        self.fail(TransportError(Fault.INCOMPLETE, "The response was cancelled."))
        self._buffer.clear()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def bytes_received(self, size: int) -> None:
        """Counts `size` received bytes before they are parsed, and restarts the read timeout."""
        if self.read_waits_since is not None:
            self.read_waits_since = self._loop.time()
        if self.head_received:
            self._framing_bytes += size
        else:
            self._head_bytes += size

    def connection_lost(self, error: Exception | None) -> None:
        """Handles the loss of the connection. It completes only a response without framing (RFC 9112, 6.3)."""
        if self._read_to_eof and error is None and self._error is None:
            self.complete = True
            self._wake()
        else:
            fault = Fault.INCOMPLETE if self._head_bytes else Fault.CLOSED
            self.fail(TransportError(fault, "The upstream closed the connection before its response was complete."))

    # Callbacks of the parser. `feed_data` raises HttpParserError when a callback raises.

    def on_message_begin(self) -> None:
        """Rejects a second response to one request."""
        if self.complete:
            raise ValueError("bytes after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collects a header. Trailers are dropped (RFC 9110, 6.5.1)."""
        if not self.head_received:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Validates a final head and wakes the reading task. Skips an interim response (1xx)."""
        self.status = self._connection.status()
        if 100 <= self.status < 200:
            self._on_interim_response()
            return
        if not 200 <= self.status <= LAST_STATUS or (self._head_bytes > MAX_HEAD and self._is_head_too_large()):
            raise ValueError("an invalid status, or a head that is too large")
        self._read_to_eof = self._ends_with_connection()
        self.head_received = True
        # A connection is not reused after HEAD: bytes sent after this head could be taken for the next response.
        self.complete = self._is_head_request
        if self._waiter is not None:
            self._wake()

    def _on_interim_response(self) -> None:
        if self.status != 101:
            self.headers.clear()
            return
        protocols = [value.lower() for name, value in self.headers if name == b"upgrade"]
        if not self._upgrades or protocols != [WEBSOCKET] or self._is_head_too_large():
            raise ValueError("an upgrade to a protocol that was not requested")
        self.switched = self.head_received = True
        self._wake()

    def _is_head_too_large(self) -> bool:
        """Whether a complete head exceeds `MAX_HEAD`: what came with it, in the same packet, is no part of it."""
        return sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD

    def _ends_with_connection(self) -> bool:
        framed = self._is_head_request or self.status in NO_BODY
        for name, value in self.headers:
            if name in FRAMING:
                framed = True
                if name == TRANSFER_ENCODING:
                    if value.lower() != b"chunked":  # RFC 9112, 7.4: the request has no TE
                        raise ValueError("a transfer coding that was not requested")
                    self.chunked = True
        return not framed

    def on_body(self, body: bytes) -> None:
        """Buffers bytes of the body. Pauses reading above `HIGH_WATER`, which applies backpressure to the upstream."""
        if self.complete:
            raise ValueError("a body after the end of the response")
        self._framing_bytes = 0
        before = self._buffered_bytes
        self._buffered_bytes = after = before + len(body)
        if before <= HIGH_WATER < after:
            self._connection.pause_reading()
        self._buffer.append(body)
        if self._waiter is not None and self.sink is None:
            self._wake()

    def on_message_complete(self) -> None:
        """Marks the response as complete. Ignores the end of an interim response."""
        if self.head_received and not self.switched:
            self._keep_alive = self._connection.should_keep_alive()
            self.complete = True
            if self._waiter is not None:
                self._wake()
