"""A tunnel between two connections: forwards bytes in both directions unchanged, with backpressure.

It does not interpret the bytes and sends none of its own.
"""

from __future__ import annotations

import asyncio
import select
from typing import NamedTuple

STALLED_SECONDS = 5.0  # between two looks at connections that are not read: the event loop reports nothing of them
CLOSING_SECONDS = 30.0  # idle timeout after a half-close: then both connections are closed


class Detached(NamedTuple):
    """A connection detached from its HTTP protocol, with the bytes received before it was detached."""

    transport: asyncio.Transport
    protocol: asyncio.Protocol
    trailing_data: bytes = b""
    write_paused: bool = False  # whether writing to the peer is paused


class Tunnel:
    """A tunnel between a client's and an upstream's connection. It starts on creation and ends when both are closed.

    Reading from one end is paused while writing to the other end is paused. So the buffers of the two transports bound
    the memory. An open tunnel has no idle timeout; a half-closed one has. So has one whose client or upstream has gone
    while nothing is read from it, because its peer takes no more.
    """

    closing_seconds, stalled_seconds = CLOSING_SECONDS, STALLED_SECONDS

    def __init__(self, client: Detached, upstream: Detached) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._moved_before = 0
        self.client, self.upstream = End(self, client), End(self, upstream)
        self.client.other, self.upstream.other = self.upstream, self.client
        for end, detached in ((self.client, client), (self.upstream, upstream)):
            detached.transport.set_protocol(end)
        for end, detached in ((self.client, client), (self.upstream, upstream)):
            end.start(detached.trailing_data)

    async def wait_closed(self) -> None:
        """Waits until both connections are closed. A caller that stops waiting must call `close`."""
        await self._closed

    def close(self) -> None:
        """Aborts both connections. Buffered bytes are lost."""
        self.client.abort()
        self.upstream.abort()

    def on_end_closed(self) -> None:
        """Handles a half-close or the loss of one connection: ends the tunnel, or starts the idle timeout."""
        if self.client.lost and self.upstream.lost:
            for timer in (self._timer, self._stalled):
                if timer is not None:
                    timer.cancel()
            if not self._closed.done():
                self._closed.set_result(None)
        elif self._timer is None:
            self._check_idle()

    def _check_idle(self) -> None:
        moved = self.client.moved + self.upstream.moved
        if self._timer is not None and moved == self._moved_before:
            self.close()
            return
        self._moved_before = moved
        self._timer = self._loop.call_later(self.closing_seconds, self._check_idle)

    def on_stalled(self) -> None:
        """Handles that one end is not read from now on: looks now and then whether its connection has ended."""
        if self._stalled is None and hasattr(select, "POLLRDHUP"):  # Linux
            self._stalled = self._loop.call_later(self.stalled_seconds, self._check_stalled)

    def _check_stalled(self) -> None:
        self._stalled = None
        unread = [end for end in (self.client, self.upstream) if not end.lost and end.other.write_paused]
        if any(end.has_hung_up() for end in unread):
            self.on_end_closed()
        elif unread:
            self.on_stalled()


class End(asyncio.Protocol):
    """One end of a tunnel. `received` counts the bytes from its peer. `error` is what closed the connection."""

    __slots__ = (
        "_eof_received", "_protocol", "_transport", "_tunnel", "error", "lost", "other", "received", "write_paused",
    )  # fmt: skip

    other: End

    def __init__(self, tunnel: Tunnel, detached: Detached) -> None:
        self._tunnel, self._transport, self._protocol = tunnel, detached.transport, detached.protocol
        self.write_paused, self._eof_received = detached.write_paused, False
        self.lost = False
        self.received = 0
        self.error: Exception | None = None

    def start(self, trailing_data: bytes) -> None:
        """Forwards the bytes received before, and starts reading."""
        if trailing_data:
            self.data_received(trailing_data)
        if self.other.write_paused:
            self._transport.pause_reading()
        self._resume_reading()

    @property
    def moved(self) -> int:
        """A count that changes with every byte received from the peer or written to it."""
        return self.received - (0 if self.lost else self._transport.get_write_buffer_size())

    def has_hung_up(self) -> bool:
        """Whether the peer has closed or lost its connection, although not all that it sent was read."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Closes immediately. Buffered bytes are lost."""
        if not self.lost:
            self._transport.abort()

    def _resume_reading(self) -> None:
        if not (self._eof_received or self.other.write_paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _write_eof(self) -> None:
        """Half-closes the connection after the last byte for its peer. Closes it fully if the peer has half-closed too,
        or with TLS."""
        if self._transport.is_closing():
            return
        if self._eof_received or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    # Callbacks of the event loop.

    def data_received(self, data: bytes) -> None:
        """Forwards received bytes to the other end."""
        self.received += len(data)
        self.other._write(data)

    def pause_writing(self) -> None:
        """Pauses reading from the other end."""
        self.write_paused = True
        self._tunnel.on_stalled()
        if not self.other._transport.is_closing():
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resumes reading from the other end."""
        self.write_paused = False
        self.other._resume_reading()

    def eof_received(self) -> bool:
        """Forwards the peer's half-close. Returns whether the connection stays open for writing (not with TLS)."""
        if not self._eof_received:
            self._eof_received = True
            self.other._write_eof()
            self._tunnel.on_end_closed()
            if self.other._eof_received:
                self._transport.close()
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the other end after its buffered bytes are written."""
        self.lost, self.error = True, exc
        self._protocol.connection_lost(exc)
        if not self.other._transport.is_closing():
            self.other._transport.close()
        self._tunnel.on_end_closed()
