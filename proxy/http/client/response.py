"""One response as it arrives on an upstream connection: the parser's callbacks, and the task that reads the response.

It neither delays nor changes bytes. The pool enforces the read timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from proxy.http.tunnel import Taken

Header = tuple[bytes, bytes]
Sink = Callable[[bytes], bool]

HIGH_WATER = 64 * 1024  # bytes of a response buffered before reading pauses
MAX_HEAD = 64 * 1024  # bytes of a response's head; providers send 1 to 4 KB
MAX_FRAMING = 1 << 20  # consecutive bytes without body data: trailers, chunk extensions, leading zeros
LAST_STATUS = 599  # RFC 9110, 15: codes outside 100 to 599 are invalid
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the response ends with its head
WEBSOCKET = b"websocket"  # the only supported protocol of an upgrade (RFC 6455)


class Fault(Enum):
    """The kinds of failure of a request to an upstream."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "no connection in time"
    FULL = "no connection to be had"
    CLOSED = "closed before a byte of the answer came"
    LOST = "lost in the middle of the answer"
    SILENT = "silent for too long"
    STALLED = "takes no more of the body"
    ILLEGAL = "not legal HTTP"


class LinkError(Exception):
    """A request got no response, or an incomplete one. The message contains no header and no content."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class ConnectionPort(Protocol):
    """The connection of a response, with its parser."""

    def status(self) -> int:
        """The status code of the head that was just parsed."""

    def goes_on(self) -> bool:
        """Whether the connection stays open after the response that was just parsed."""

    def taken(self) -> Taken:
        """Detaches the connection for use with another protocol."""

    def pause(self) -> None:
        """Pauses reading."""

    def resume(self, reader: ResponseReader) -> None:
        """Resumes reading, if `reader` is still the current one."""

    def close(self) -> None:
        """Closes immediately."""


class ResponseReader:
    """The response to one request. The parser calls the `on_` methods; one task reads the response.

    status, headers: valid once `head()` has returned. Names are in lower case.
    sent: the whole request has been sent.
    silent_since: the loop time since which the task waits without receiving a byte; None while it does not wait.
    answered: the head is complete.
    chunked: the body has chunked coding.
    ended: the whole response has been received. A part of it may still be buffered.
    switched: the response was 101 to a request that `upgrades`. The bytes after it are not HTTP.
    """

    __slots__ = (
        "_error", "_framing", "_head", "_head_bytes", "_keep", "_line", "_loop", "_sink", "_to_eof", "_upgrades",
        "_waiter", "_waiting", "_waiting_bytes", "answered", "chunked", "ended", "headers", "sent",
        "silent_since", "status", "switched", "upload",
    )  # fmt: skip

    def __init__(
        self, line: ConnectionPort, loop: asyncio.AbstractEventLoop, method: str, upgrades: bool = False
    ) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.sent = False
        self.silent_since: float | None = None
        self.upload: asyncio.Task[None] | None = None
        self._line = line
        self._loop = loop
        self._head = method == "HEAD"
        self._upgrades, self.switched = upgrades, False
        self._head_bytes = 0
        self._framing = 0  # bytes since the last body data
        self.ended = self.answered = self.chunked = self._to_eof = self._keep = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._sink: Sink | None = None

    @property
    def reusable(self) -> bool:
        """Whether the connection can be reused for another request."""
        return self._keep and self.sent

    @property
    def overlong(self) -> bool:
        """Whether an incomplete head exceeds `MAX_HEAD`, or framing without body data exceeds `MAX_FRAMING`. The parser
        buffers incomplete elements without a limit of its own."""
        return self._framing > MAX_FRAMING if self.answered else self._head_bytes > MAX_HEAD

    async def head(self) -> None:
        """Waits for the response's head. Raises LinkError, or the error that stopped the upload of the request's body.
        Closes the reader on an error."""
        try:
            while not self.answered:
                if self._error is not None:
                    raise self._error
                await self._wait()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """Returns the bytes of the body received since the last call, waiting for at least one; b"" at the end. Raises
        as `head` does."""
        while not self._waiting:
            if self.ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        waiting, self._waiting = self._waiting, []
        if self._waiting_bytes > HIGH_WATER:
            self._line.resume(self)
        self._waiting_bytes = 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    def take(self) -> Taken:
        """Detaches the connection after it has `switched`. Raises LinkError if it is lost."""
        if self._error is not None or not self.switched:
            raise self._error or LinkError(Fault.ILLEGAL, "The upstream did not switch protocols.")
        return self._line.taken()

    def at_hand(self) -> bytes | None:
        """Returns the buffered body if the whole response has been received, else None. Never waits."""
        if not self.ended or self._error is not None:
            return None
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    async def flow_into(self, sink: Sink) -> None:
        """Passes received bytes of the body directly to `sink`, without waking a task for each part. Returns when the
        sink applies backpressure (returns False), or at the end or an error, which `read` then reports."""
        if self._waiting or self.ended or self._error is not None:
            return
        self._sink = sink
        try:
            await self._wait()
        finally:
            self._sink = None

    def poured(self) -> None:
        """Passes the body data that was just parsed to the sink, if one is set."""
        sink = self._sink
        if sink is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        if self._waiting_bytes > HIGH_WATER:
            self._line.resume(self)
        self._waiting_bytes = 0
        if not sink(waiting[0] if len(waiting) == 1 else b"".join(waiting)):
            self._sink = None
            self._wake()

    def _wait(self) -> asyncio.Future[None]:
        self._waiter = self._loop.create_future()
        self.silent_since = self._loop.time()
        return self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self.silent_since = None
            if not waiter.done():  # the waiting task may have been cancelled
                waiter.set_result(None)

    def all_sent(self) -> None:
        """Marks the request as sent. The read timeout runs from now on."""
        self.sent = True
        if self.silent_since is not None:
            self.silent_since = self._loop.time()

    def fail(self, error: Exception) -> None:
        """Fails the response: `read` returns the buffered bytes, then raises this error. Closes the connection."""
        if not self.ended and self._error is None:
            self._error = error
            self._wake()
            self._line.close()

    def close(self) -> None:
        """Discards the rest of the response. Closes the connection if the response is incomplete."""
        self.fail(LinkError(Fault.LOST, "The answer was given up."))
        self._waiting.clear()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def comes(self, size: int) -> None:
        """Counts `size` received bytes before they are parsed, and restarts the read timeout."""
        if self.silent_since is not None:
            self.silent_since = self._loop.time()
        if self.answered:
            self._framing += size
        else:
            self._head_bytes += size

    def cut(self, error: Exception | None) -> None:
        """Handles the loss of the connection. It completes only a response without framing (RFC 9112, 6.3)."""
        if self._to_eof and error is None and self._error is None:
            self.ended = True
            self._wake()
        else:
            fault = Fault.LOST if self._head_bytes else Fault.CLOSED
            self.fail(LinkError(fault, "The upstream closed the connection before its answer was complete."))

    # Callbacks of the parser. `feed_data` raises HttpParserError when a callback raises.

    def on_message_begin(self) -> None:
        """Rejects a second response to one request."""
        if self.ended:
            raise ValueError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collects a header. Trailers are dropped (RFC 9110, 6.5.1)."""
        if not self.answered:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Validates a final head and wakes the reading task. Skips an interim response (1xx)."""
        self.status = self._line.status()
        if 100 <= self.status < 200:
            self._interim()
            return
        too_large = self._head_bytes > MAX_HEAD and self._head_size() > MAX_HEAD
        if too_large or not 200 <= self.status <= LAST_STATUS:
            raise ValueError("a head that may not be passed on")
        self._to_eof = self._framed_by_end()
        self.answered = True
        self.ended = self._head  # not reused: bytes sent after this head could be taken for the next response
        if self._waiter is not None:
            self._wake()

    def _interim(self) -> None:
        if self.status != 101:
            self.headers.clear()
            return
        protocols = [value.lower() for name, value in self.headers if name == b"upgrade"]
        if not self._upgrades or protocols != [WEBSOCKET] or self.overlong:
            raise ValueError("another protocol than the one asked for")
        self.switched = self.answered = True
        self._wake()

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _framed_by_end(self) -> bool:
        framed = self._head or self.status in NO_BODY
        for name, value in self.headers:
            if name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise ValueError("a transfer coding that nobody asked for")  # RFC 9112, 7.4: the request has no TE
                self.chunked = True
            framed = framed or self.chunked or name == b"content-length"
        return not framed

    def on_body(self, body: bytes) -> None:
        """Buffers bytes of the body. Pauses reading above `HIGH_WATER`, which applies backpressure to the upstream."""
        if self.ended:
            raise ValueError("a body where none may be")
        self._framing = 0
        if self._waiting_bytes <= HIGH_WATER < self._waiting_bytes + len(body):
            self._line.pause()
        self._waiting.append(body)
        self._waiting_bytes += len(body)
        if self._waiter is not None and self._sink is None:
            self._wake()

    def on_message_complete(self) -> None:
        """Marks the response as complete. Ignores the end of an interim response."""
        if self.answered and not self.switched:
            self._keep = self._line.goes_on()
            self.ended = True
            if self._waiter is not None:
                self._wake()
