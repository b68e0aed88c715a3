"""One answer as it arrives on a connection: what its parser finds, and the one task that waits for it.

It holds back nothing and changes nothing; how long a silence may last the pool decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from proxy.http.tunnel import Taken

Header = tuple[bytes, bytes]
Sink = Callable[[bytes], bool]

HIGH_WATER = 64 * 1024  # bytes of an answer that wait for their reader before the socket is left alone
MAX_HEAD = 64 * 1024  # bytes of an answer's head; providers send 1 to 4 KB
MAX_FRAMING = 1 << 20  # bytes in a row of which none is of the body: trailers, chunk extensions, leading zeros
LAST_STATUS = 599  # RFC 9110, 15: codes outside 100 to 599 are invalid
NO_BODY = frozenset((204, 304))  # RFC 9112, 6.3: the answer ends with its head
WEBSOCKET = b"websocket"  # the one protocol that a connection is handed over to (RFC 6455)


class Fault(Enum):
    """What can go wrong between us and an upstream."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "no connection in time"
    FULL = "no connection to be had"
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


class ConnectionPort(Protocol):
    """The connection that an answer comes over, and the parser of what comes on it."""

    def status(self) -> int:
        """The status of the head that has just been read."""

    def goes_on(self) -> bool:
        """Whether another answer may follow the one that has just ended."""

    def taken(self) -> Taken:
        """The connection itself, for whoever goes on with another protocol."""

    def pause(self) -> None:
        """Leaves what comes in the socket."""

    def resume(self, reader: ResponseReader) -> None:
        """Takes bytes off the socket again, if the reader still is the current one."""

    def close(self) -> None:
        """Closes at once."""


class ResponseReader:
    """One request's answer: the parser calls its `on_` methods, one task waits for the rest.

    `status` and `headers` (names in lower case) stand once `head()` has returned; `sent` says that the request is
    out; `silent_since` is the loop's time since which somebody waits for the upstream's bytes, None if nobody does;
    `answered` that the head is whole, `chunked` that a body in chunks follows it, `ended` that the whole answer has
    come, though it may still wait to be read, `switched` that the answer was 101 to a request that `upgrades`: what
    comes behind it is no HTTP any more.
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
        self._framing = 0  # bytes since the last one of the body
        self.ended = self.answered = self.chunked = self._to_eof = self._keep = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._sink: Sink | None = None

    @property
    def reusable(self) -> bool:
        """Whether the connection may serve another request after it."""
        return self._keep and self.sent

    @property
    def overlong(self) -> bool:
        """Whether more came than a head may have before it is whole, or than may frame a body without one byte of it:
        the parser keeps what it has not understood to the end."""
        return self._framing > MAX_FRAMING if self.answered else self._head_bytes > MAX_HEAD

    async def head(self) -> None:
        """Waits for the answer's head. Raises LinkError, or what the sender of the body raised; the reader is closed
        then."""
        try:
            while not self.answered:
                if self._error is not None:
                    raise self._error
                await self._wait()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """All bytes of the body that have come since the last call, b"" at its end. Raises as `head` does."""
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
        """The connection, once it has `switched`. Raises LinkError where it is lost by now."""
        if self._error is not None or not self.switched:
            raise self._error or LinkError(Fault.ILLEGAL, "The upstream did not switch protocols.")
        return self._line.taken()

    def at_hand(self) -> bytes | None:
        """All of the body, where the whole answer has come and nothing of it was read; None where it has not."""
        if not self.ended or self._error is not None:
            return None
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    async def flow_into(self, sink: Sink) -> None:
        """Gives all that comes from now on to `sink` at once, without a task that must wake up for it. Returns when the
        sink wants no more for now (False), or when there may be no more: `read` tells the rest."""
        if self._waiting or self.ended or self._error is not None:
            return
        self._sink = sink
        try:
            await self._wait()
        finally:
            self._sink = None

    def poured(self) -> None:
        """What has just been parsed goes to the sink, if there is one."""
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
            if not waiter.done():  # whoever waited may have been cancelled
                waiter.set_result(None)

    def all_sent(self) -> None:
        """The whole request is out: from now on the upstream owes an answer."""
        self.sent = True
        if self.silent_since is not None:
            self.silent_since = self._loop.time()

    def fail(self, error: Exception) -> None:
        """Ends the answer: its reader gets what has come so far, and then this error."""
        if not self.ended and self._error is None:
            self._error = error
            self._wake()
            self._line.close()

    def close(self) -> None:
        """Nobody reads on: what has not come by now is not wanted, and the connection goes with it."""
        self.fail(LinkError(Fault.LOST, "The answer was given up."))
        self._waiting.clear()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def comes(self, size: int) -> None:
        """So many bytes are about to be parsed."""
        if self.silent_since is not None:
            self.silent_since = self._loop.time()
        if self.answered:
            self._framing += size
        else:
            self._head_bytes += size

    def cut(self, error: Exception | None) -> None:
        """The connection is lost. Only an answer without a length of its own ends properly so (RFC 9112, 6.3)."""
        if self._to_eof and error is None and self._error is None:
            self.ended = True
            self._wake()
        else:
            fault = Fault.LOST if self._head_bytes else Fault.CLOSED
            self.fail(LinkError(fault, "The upstream closed the connection before its answer was complete."))

    # What the parser calls. What is raised here comes out of feed_data as HttpParserError.

    def on_message_begin(self) -> None:
        """A second answer to one request is none."""
        if self.ended:
            raise ValueError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those after the body (trailers) are not passed on (RFC 9110, 6.5.1)."""
        if not self.answered:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: an interim answer (1xx) is left out, a final one is checked and handed over."""
        self.status = self._line.status()
        if 100 <= self.status < 200:
            self._interim()
            return
        too_large = self._head_bytes > MAX_HEAD and self._head_size() > MAX_HEAD
        if too_large or not 200 <= self.status <= LAST_STATUS:
            raise ValueError("a head that may not be passed on")
        self._to_eof = self._framed_by_end()
        self.answered = True
        self.ended = self._head  # not kept then: what a confused upstream sends behind it must not begin the next one
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
                    raise ValueError("a transfer coding that nobody asked for")  # RFC 9112, 7.4: we sent no TE
                self.chunked = True
            framed = framed or self.chunked or name == b"content-length"
        return not framed

    def on_body(self, body: bytes) -> None:
        """Bytes of the body. With many unread the socket is left alone, so that the upstream waits."""
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
        """The end of the answer, or of an interim one."""
        if self.answered and not self.switched:
            self._keep = self._line.goes_on()
            self.ended = True
            if self._waiter is not None:
                self._wake()
