"""One HTTP/1.1 connection to an upstream: sends bytes unchanged, and parses the response for its reader.

It opens no connection and retries no request.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

import httptools

from proxy.http.client.response import Fault, ResponseReader, TransportError
from proxy.http.tunnel import Detached


class Connection(asyncio.Protocol):
    """A connection to an upstream with at most one request in progress (no pipelining).

    idle_since: the loop time at which the last response ended.
    write_waits_since: the loop time since which `drain` waits for the upstream to read; None while it does not wait.
    chunked: the last response had chunked coding.
    """

    __slots__ = (
        "_loop",
        "_lost",
        "_on_end",
        "_parser",
        "_poll",
        "_trailing_data",
        "_transport",
        "_writable",
        "chunked",
        "idle_since",
        "reader",
        "write_waits_since",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[Connection, bool], None]) -> None:
        self.reader: ResponseReader | None = None
        self.chunked = False
        self.idle_since = 0.0
        self.write_waits_since: float | None = None
        self._loop = loop
        self._on_end = on_end
        self._lost = False
        self._trailing_data = b""  # bytes received after a 101 response, until the connection is detached
        self._transport: asyncio.Transport
        self._poll = select.poll()
        self._writable: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None

    @property
    def open(self) -> bool:
        """Whether the connection can send a request."""
        return not self._lost and not self._transport.is_closing()

    @property
    def usable(self) -> bool:
        """Whether the connection is open and its socket has no unread input. A close by the upstream makes the socket
        readable before the event loop reports it. TLS session tickets do so too, until the loop's next iteration."""
        return not self._lost and not self._transport.is_closing() and not self._poll.poll(0)

    def start_request(self, method: str, upgrades: bool = False) -> ResponseReader:
        """Starts a request and returns the reader of its response. The caller sends the request with `write`."""
        self.reader = ResponseReader(self, self._loop, method, upgrades)
        self._parser = httptools.HttpResponseParser(self.reader)
        return self.reader

    def _release_reader(self, reader: ResponseReader, reusable: bool) -> None:
        self.reader = self._parser = None
        if reader.upload is not None:
            reader.upload.cancel()
        if reusable := reusable and not self._lost and not self._transport.is_closing():
            self._transport.resume_reading()  # a paused transport does not report a close by the upstream
            self.idle_since = self._loop.time()
            self.chunked = reader.chunked
        else:
            self.close()
        self._on_end(self, reusable)

    def write(self, data: bytes) -> None:
        """Writes bytes. A caller that streams awaits `drain` between writes."""
        if not self._lost and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Waits until writing is no longer paused. Raises TransportError if the connection is lost."""
        if self._writable is not None:
            self.write_waits_since = self._loop.time()
            try:
                await self._writable
            finally:
                self.write_waits_since = None
        if self._lost:
            text = "The upstream closed the connection before it received the whole request."
            raise TransportError(Fault.INCOMPLETE, text)

    # Called by the reader.

    def status(self) -> int:
        """The status code of the head that was just parsed."""
        assert self._parser is not None
        return self._parser.get_status_code()

    def should_keep_alive(self) -> bool:
        """Whether the connection stays open after the response that was just parsed."""
        assert self._parser is not None
        return self._parser.should_keep_alive()

    def detach(self) -> Detached:
        """Detaches the connection for another protocol. The pool counts it as in use until it is closed."""
        return Detached(self._transport, self, self._trailing_data)

    def pause_reading(self) -> None:
        """Pauses reading."""
        self._transport.pause_reading()

    def resume_reading(self, reader: ResponseReader) -> None:
        """Resumes reading, if `reader` is still the current one."""
        if self.reader is reader and self.open:
            self._transport.resume_reading()

    def close(self) -> None:
        """Closes immediately. Unsent bytes are discarded."""
        if not self._lost:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport and prepares the check for unread input."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._poll.register(sock.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parses bytes of the response. Bytes on an idle connection (for example a 408) close it."""
        reader = self.reader
        if reader is None or self._parser is None:
            self.close()
            return
        if reader.switched:
            self._trailing_data += data
            return
        reader.bytes_received(len(data))
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as end:
            if reader.switched and isinstance(end, httptools.HttpParserUpgrade):
                self._trailing_data = data[end.args[0] :]
                self.pause_reading()
                return
            reader.fail(TransportError(Fault.PROTOCOL_ERROR, "The upstream's response is not valid HTTP."))
            self._release_reader(reader, False)
        else:
            if reader.sink is not None:
                reader.flush_to_sink()
            if reader.switched:
                reader.fail(TransportError(Fault.PROTOCOL_ERROR, "The upstream's switch of protocols is invalid."))
            elif reader.complete:
                self._release_reader(reader, reader.reusable)
            elif reader.overlong:
                what = "frame" if reader.head_received else "head"
                reader.fail(
                    TransportError(Fault.PROTOCOL_ERROR, f"The {what} of the upstream's response is too large.")
                )

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the response in progress and reports the loss to the pool."""
        self._lost = True
        self.resume_writing()
        if self.reader is not None:
            self.reader.connection_lost(exc)
            self._release_reader(self.reader, False)
        else:
            self._on_end(self, False)

    def pause_writing(self) -> None:
        """Called when the write buffer rises above the high-water mark."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called when the write buffer falls below the low-water mark, or the connection is lost."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
