"""One HTTP/1.1 connection to an upstream: sends a request's bytes as they are and hands on its answer as it comes.

It dials nothing, repeats nothing and changes nothing; how long a silence may last its pool decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import cast

import httptools

Header = tuple[bytes, bytes]

HIGH_WATER = 64 * 1024  # bytes of an answer that wait for their reader before the socket is left alone
MAX_HEAD = 64 * 1024  # bytes of an answer's head; providers send 1 to 4 KB
LAST_STATUS = 599  # RFC 9110, 15: codes outside 100 to 599 are invalid
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the answer ends with its head


class Fault(Enum):
    """What can go wrong between us and an upstream."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "no connection in time"
    CLOSED = "closed before a byte of the answer came"
    LOST = "lost in the middle of the answer"
    SILENT = "silent for too long"
    STALLED = "takes no more of the body"
    ILLEGAL = "not legal HTTP"


class LinkError(Exception):
    """A request got no answer, or only a part of one. Its text names no header and no content."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class Exchange:
    """One request's answer as it arrives: the parser calls its `on_` methods, one task waits for the rest.

    `status` and `headers` (names in lower case) stand once `head()` has returned; `sent` says that the request is
    out; `silent_since` is the loop's time since which somebody waits for the upstream's bytes, None if nobody does.
    """

    __slots__ = (
        "_answered", "_connection", "_ended", "_error", "_head", "_head_bytes", "_keep", "_loop", "_parser", "_to_eof",
        "_waiter", "_waiting", "_waiting_bytes", "headers", "sent", "silent_since", "status", "upload",
    )  # fmt: skip

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, method: str) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.sent = False
        self.silent_since: float | None = None
        self.upload: asyncio.Task[None] | None = None
        self._connection = connection
        self._loop = loop
        self._head = method == "HEAD"
        self._head_bytes = 0
        self._answered = self._ended = self._to_eof = self._keep = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    @property
    def ended(self) -> bool:
        """Whether the whole answer has come (it may still wait to be read)."""
        return self._ended

    async def head(self) -> None:
        """Waits for the answer's head. Raises LinkError, or what the sender of the body raised."""
        while not self._answered:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """All bytes of the body that have come since the last call, b"" at its end. Raises as `head` does."""
        while not self._waiting:
            if self._ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        waiting, self._waiting = self._waiting, []
        if self._waiting_bytes > HIGH_WATER:
            self._connection.resume(self)
        self._waiting_bytes = 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        self.silent_since = self._loop.time()
        try:
            await self._waiter
        finally:
            self._waiter = self.silent_since = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def all_sent(self) -> None:
        """The whole request is out: from now on the upstream owes an answer."""
        self.sent = True
        if self.silent_since is not None:
            self.silent_since = self._loop.time()

    def fail(self, error: Exception) -> None:
        """Ends the exchange: its reader gets what has come so far, and then this error."""
        if not self._ended and self._error is None:
            self._error = error
            self._wake()
            self._connection.close()

    def close(self) -> None:
        """Nobody reads on: what has not come by now is not wanted, and the connection goes with it."""
        self.fail(LinkError(Fault.LOST, "The answer was given up."))
        self._waiting.clear()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def feed(self, data: bytes) -> None:
        """Takes bytes off the wire."""
        parser = self._parser
        if parser is None:
            return
        if self.silent_since is not None:
            self.silent_since = self._loop.time()
        if not self._answered:
            self._head_bytes += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.fail(LinkError(Fault.ILLEGAL, "The upstream's answer is not legal HTTP."))
            self._end(reusable=False)
        else:
            if self._ended:
                self._end(self._keep and self.sent)
            elif not self._answered and self._head_bytes > MAX_HEAD:
                self.fail(LinkError(Fault.ILLEGAL, "The head of the upstream's answer is too large."))

    def cut(self, error: Exception | None) -> None:
        """The connection is lost. Only an answer without a length of its own ends properly so (RFC 9112, 6.3)."""
        if self._to_eof and error is None and self._error is None:
            self._ended = True
            self._wake()
        else:
            fault = Fault.LOST if self._head_bytes else Fault.CLOSED
            self.fail(LinkError(fault, "The upstream closed the connection before its answer was complete."))
        self._end(reusable=False)

    def _end(self, reusable: bool) -> None:
        if self._parser is not None:
            self._parser = None  # parser and exchange hold each other
            if self.upload is not None and not self.upload.done():
                self.upload.cancel()
            self._connection.release(reusable)

    # What the parser calls. What is raised here comes out of feed_data as HttpParserError.

    def on_message_begin(self) -> None:
        """A second answer to one request is none."""
        if self._ended:
            raise ValueError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those after the body (trailers) are not passed on (RFC 9110, 6.5.1)."""
        if not self._answered:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: an interim answer (1xx) is left out, a final one is checked and handed over."""
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200:
            self._interim()
            return
        too_large = self._head_bytes > MAX_HEAD and self._head_size() > MAX_HEAD
        if too_large or not 200 <= self.status <= LAST_STATUS:
            raise ValueError("a head that may not be passed on")
        self._to_eof = self._framed_by_end()
        self._answered = True
        self._ended = self._head  # not kept then: what a confused upstream sends behind it must not begin the next one
        self._wake()

    def _interim(self) -> None:
        if self.status == 101:
            raise ValueError("another protocol than the one asked for")
        self.headers.clear()

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _framed_by_end(self) -> bool:
        framed = self._head or self.status in NO_BODY
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                raise ValueError("a transfer coding that nobody asked for")  # RFC 9112, 7.4: we sent no TE
            framed = framed or name in (b"content-length", b"transfer-encoding")
        return not framed

    def on_body(self, body: bytes) -> None:
        """Bytes of the body. With many unread the socket is left alone, so that the upstream waits."""
        if self._ended:
            raise ValueError("a body where none may be")
        if self._waiting_bytes <= HIGH_WATER < self._waiting_bytes + len(body):
            self._connection.pause()
        self._waiting.append(body)
        self._waiting_bytes += len(body)
        self._wake()

    def on_message_complete(self) -> None:
        """The end of the answer, or of an interim one."""
        if self._answered:
            assert self._parser is not None
            self._keep = self._parser.should_keep_alive()
            self._ended = True
            self._wake()


class Connection(asyncio.Protocol):
    """A socket to an upstream, at most one exchange at a time on it.

    `idle_since` and `stalled_since` are the loop's times since which nobody uses it, or the upstream takes no bytes.
    """

    __slots__ = ("_loop", "_lost", "_on_end", "_transport", "_writable", "exchange", "idle_since", "stalled_since")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[Connection, bool], None]) -> None:
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self.stalled_since: float | None = None
        self._loop = loop
        self._on_end = on_end
        self._lost = False
        self._transport: asyncio.Transport
        self._writable: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        """Whether a request may be sent on it."""
        return not self._lost and not self._transport.is_closing()

    def begin(self, method: str) -> Exchange:
        """Starts an exchange; its request is sent with `write`."""
        self.exchange = Exchange(self, self._loop, method)
        return self.exchange

    def release(self, reusable: bool) -> None:
        """The exchange is over."""
        if self.exchange is not None:
            self.exchange = None
            reusable = reusable and self.open
            if not reusable:
                self.close()
            else:
                self._transport.resume_reading()  # a closed socket must be noticed
            self._on_end(self, reusable)

    def write(self, data: bytes) -> None:
        """Sends bytes; whoever sends much awaits `drain` in between."""
        if not self._lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Waits until the upstream takes more. Raises LinkError when it is gone."""
        if self._writable is not None:
            self.stalled_since = self._loop.time()
            try:
                await self._writable
            finally:
                self.stalled_since = None
        if self._lost:
            raise LinkError(Fault.LOST, "The upstream closed the connection before it had the whole request.")

    def pause(self) -> None:
        """Leaves what comes in the socket."""
        self._transport.pause_reading()

    def resume(self, exchange: Exchange) -> None:
        """Takes bytes off the socket again, if the exchange still is the current one."""
        if self.exchange is exchange:
            self._transport.resume_reading()

    def close(self) -> None:
        """Closes at once: what is unsent is not wanted any more."""
        if not self._lost:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came; where no answer is due (a 408 on an idle connection) the connection is no longer good."""
        if self.exchange is not None:
            self.exchange.feed(data)
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._lost = True
        self.resume_writing()
        if self.exchange is not None:
            self.exchange.cut(exc)
        else:
            self._on_end(self, False)

    def pause_writing(self) -> None:
        """The upstream takes no more for now."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The upstream takes bytes again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
