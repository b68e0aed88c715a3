"""One HTTP/1.1 connection to an upstream: sends bytes as they are, and feeds what comes to the reader of its answer.

It dials nothing and repeats nothing.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

import httptools

from proxy.http.client.response import Fault, LinkError, ResponseReader
from proxy.http.tunnel import Taken


class Connection(asyncio.Protocol):
    """A socket to an upstream, at most one request and answer at a time on it.

    `idle_since` and `stalled_since` are the loop's times since which nobody uses it, or the upstream takes no bytes;
    `chunked` says that its last answer came in chunks.
    """

    __slots__ = (
        "_arrivals",
        "_behind",
        "_loop",
        "_lost",
        "_on_end",
        "_parser",
        "_transport",
        "_writable",
        "chunked",
        "idle_since",
        "reader",
        "stalled_since",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[Connection, bool], None]) -> None:
        self.reader: ResponseReader | None = None
        self.chunked = False
        self.idle_since = 0.0
        self.stalled_since: float | None = None
        self._loop = loop
        self._on_end = on_end
        self._lost = False
        self._behind = b""  # what came behind a switch of protocols, until the connection is taken over
        self._transport: asyncio.Transport
        self._arrivals = select.poll()
        self._writable: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None

    @property
    def open(self) -> bool:
        """Whether a request may be sent on it."""
        return not self._lost and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether it is open and nothing came on it, not even what the event loop has not seen yet: a connection that
        the upstream closes can be read. So can one with tickets of TLS, which are read in the loop's next turn."""
        return self.open and not self._arrivals.poll(0)

    def begin(self, method: str, upgrades: bool = False) -> ResponseReader:
        """Starts a request and its answer; the request is sent with `write`."""
        self.reader = ResponseReader(self, self._loop, method, upgrades)
        self._parser = httptools.HttpResponseParser(self.reader)
        return self.reader

    def _release(self, reader: ResponseReader, reusable: bool) -> None:
        self.reader = self._parser = None
        if reader.upload is not None:
            reader.upload.cancel()
        reusable = reusable and self.open
        if reusable:
            self._transport.resume_reading()  # else nobody would notice that the upstream closes it
            self.idle_since = self._loop.time()
            self.chunked = reader.chunked
        else:
            self.close()
        self._on_end(self, reusable)

    def write(self, data: bytes) -> None:
        """Sends bytes; whoever sends much awaits `drain` in between."""
        if self.open:
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

    # What its reader calls.

    def status(self) -> int:
        """The status of the head that has just been read."""
        assert self._parser is not None
        return self._parser.get_status_code()

    def goes_on(self) -> bool:
        """Whether another answer may follow the one that has just ended."""
        assert self._parser is not None
        return self._parser.should_keep_alive()

    def taken(self) -> Taken:
        """The connection itself; it stays the pool's until it is closed."""
        return Taken(self._transport, self, self._behind)

    def pause(self) -> None:
        """Leaves what comes in the socket."""
        self._transport.pause_reading()

    def resume(self, reader: ResponseReader) -> None:
        """Takes bytes off the socket again, if the reader still is the current one."""
        if self.reader is reader and self.open:
            self._transport.resume_reading()

    def close(self) -> None:
        """Closes at once: what is unsent is not wanted any more."""
        if not self._lost:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._arrivals.register(sock.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Bytes came; where no answer is due (a 408 on an idle connection) the connection is no longer good."""
        reader = self.reader
        if reader is None or self._parser is None:
            self.close()
            return
        if reader.switched:
            self._behind += data
            return
        reader.comes(len(data))
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as end:
            if reader.switched and isinstance(end, httptools.HttpParserUpgrade):
                self._behind = data[end.args[0] :]
                self.pause()
                return
            reader.fail(LinkError(Fault.ILLEGAL, "The upstream's answer is not legal HTTP."))
            self._release(reader, False)
        else:
            reader.poured()
            if reader.switched:
                reader.fail(LinkError(Fault.ILLEGAL, "The upstream's switch of protocols is not legal."))
            elif reader.ended:
                self._release(reader, reader.reusable)
            elif reader.overlong:
                what = "frame" if reader.answered else "head"
                reader.fail(LinkError(Fault.ILLEGAL, f"The {what} of the upstream's answer is too large."))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._lost = True
        self.resume_writing()
        if self.reader is not None:
            self.reader.cut(exc)
            self._release(self.reader, False)
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
