"""A tunnel between two connections: forwards bytes in both directions unchanged, with backpressure.

It does not interpret the bytes and sends none of its own.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

CLOSING_SECONDS = 30.0  # idle timeout after a half-close: then both connections are closed


class Taken(NamedTuple):
    """A connection detached from its HTTP protocol, with the bytes received before it was detached."""

    transport: asyncio.Transport
    protocol: asyncio.Protocol
    behind: bytes = b""
    full: bool = False  # whether writing to the peer is paused


class Tunnel:
    """A tunnel between a client's and an upstream's connection. It starts on creation and ends when both are closed.

    Reading from one end is paused while writing to the other end is paused. So the buffers of the two transports bound
    the memory. An open tunnel has no idle timeout; a half-closed one has.
    """

    closing_seconds = CLOSING_SECONDS

    def __init__(self, client: Taken, upstream: Taken) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._moved = 0
        self.client, self.upstream = End(self, client), End(self, upstream)
        self.client.other, self.upstream.other = self.upstream, self.client
        for end, taken in ((self.client, client), (self.upstream, upstream)):
            taken.transport.set_protocol(end)
        for end, taken in ((self.client, client), (self.upstream, upstream)):
            end.begin(taken.behind)

    async def over(self) -> None:
        """Waits until both connections are closed. A caller that stops waiting must call `close`."""
        await self._over

    def close(self) -> None:
        """Aborts both connections. Buffered bytes are lost."""
        self.client.abort()
        self.upstream.abort()

    def ends(self) -> None:
        """Handles a half-close or the loss of one connection: ends the tunnel, or starts the idle timeout."""
        if self.client.lost and self.upstream.lost:
            if self._timer is not None:
                self._timer.cancel()
            if not self._over.done():
                self._over.set_result(None)
        elif self._timer is None:
            self._watch()

    def _watch(self) -> None:
        moved = self.client.moved + self.upstream.moved
        if self._timer is not None and moved == self._moved:
            self.close()
            return
        self._moved = moved
        self._timer = self._loop.call_later(self.closing_seconds, self._watch)


class End(asyncio.Protocol):
    """One end of a tunnel. `received` counts the bytes from its peer. `error` is what closed the connection."""

    __slots__ = ("_ended", "_full", "_protocol", "_transport", "_tunnel", "error", "lost", "other", "received")

    other: End

    def __init__(self, tunnel: Tunnel, taken: Taken) -> None:
        self._tunnel, self._transport, self._protocol = tunnel, taken.transport, taken.protocol
        self._full, self._ended = taken.full, False
        self.lost = False
        self.received = 0
        self.error: Exception | None = None

    def begin(self, behind: bytes) -> None:
        """Forwards the bytes received before, and starts reading."""
        if behind:
            self.data_received(behind)
        if self.other._full:
            self._transport.pause_reading()
        self._read()

    @property
    def moved(self) -> int:
        """A count that changes with every byte received from the peer or written to it."""
        return self.received - (0 if self.lost else self._transport.get_write_buffer_size())

    def abort(self) -> None:
        """Closes immediately. Buffered bytes are lost."""
        if not self.lost:
            self._transport.abort()

    def _read(self) -> None:
        if not (self._ended or self.other._full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _take(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        """Half-closes the connection after the last byte for its peer. Closes it fully if the peer has half-closed too,
        or with TLS."""
        if self._transport.is_closing():
            return
        if self._ended or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    # Callbacks of the event loop.

    def data_received(self, data: bytes) -> None:
        """Forwards received bytes to the other end."""
        self.received += len(data)
        self.other._take(data)

    def pause_writing(self) -> None:
        """Pauses reading from the other end."""
        self._full = True
        if not self.other._transport.is_closing():
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resumes reading from the other end."""
        self._full = False
        self.other._read()

    def eof_received(self) -> bool:
        """Forwards the peer's half-close. Returns whether the connection stays open for writing (not with TLS)."""
        if not self._ended:
            self._ended = True
            self.other._finish()
            self._tunnel.ends()
            if self.other._ended:
                self._transport.close()
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the other end after its buffered bytes are written."""
        self.lost, self.error = True, exc
        self._protocol.connection_lost(exc)
        if not self.other._transport.is_closing():
            self.other._transport.close()
        self._tunnel.ends()
