"""Two connections joined: what comes on one goes out on the other as it is, no faster than it is taken.

It knows nothing of what the bytes mean, and sends none of its own.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

CLOSING_SECONDS = 30.0  # without a byte, once one end has closed its half: then nobody waits for the other one


class Taken(NamedTuple):
    """A connection taken over from the protocol that served it until now, and the bytes that came before it was."""

    transport: asyncio.Transport
    protocol: asyncio.Protocol
    behind: bytes = b""
    full: bool = False  # whether its peer takes no bytes for now


class Tunnel:
    """A client's and an upstream's connection, joined from the moment of its making until both are closed.

    Each end's reader is stopped while the other one's peer takes nothing, so that what waits is bounded by the buffers
    of the two transports. Silence is no reason to close: an open tunnel may rest as long as its ends like.
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
        """Waits until both connections are closed. Whoever gives up waiting closes them with `close`."""
        await self._over

    def close(self) -> None:
        """Closes both at once: what is under way between them is lost."""
        self.client.abort()
        self.upstream.abort()

    def ends(self) -> None:
        """One end has closed its half of the connection, or is gone."""
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
    """One end of a tunnel: `received` counts the bytes that came from its peer, `error` is what broke it off."""

    __slots__ = ("_ended", "_full", "_protocol", "_transport", "_tunnel", "error", "lost", "other", "received")

    other: End

    def __init__(self, tunnel: Tunnel, taken: Taken) -> None:
        self._tunnel, self._transport, self._protocol = tunnel, taken.transport, taken.protocol
        self._full, self._ended = taken.full, False
        self.lost = False
        self.received = 0
        self.error: Exception | None = None

    def begin(self, behind: bytes) -> None:
        """Passes on what came before, and whatever comes from now on."""
        if behind:
            self.data_received(behind)
        if self.other._full:
            self._transport.pause_reading()
        self._read()

    @property
    def moved(self) -> int:
        """Changes whenever a byte comes from its peer or goes there."""
        return self.received - (0 if self.lost else self._transport.get_write_buffer_size())

    def abort(self) -> None:
        """Closes at once."""
        if not self.lost:
            self._transport.abort()

    def _read(self) -> None:
        if not (self._ended or self.other._full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _take(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        """No more bytes come for its peer. TLS cannot close one half alone."""
        if self._transport.is_closing():
            return
        if self._ended or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    # What the event loop calls.

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.received += len(data)
        self.other._take(data)

    def pause_writing(self) -> None:
        """Its peer takes no more for now."""
        self._full = True
        if not self.other._transport.is_closing():
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        """Its peer takes bytes again."""
        self._full = False
        self.other._read()

    def eof_received(self) -> bool:
        """Its peer sends no more, and may still read."""
        if not self._ended:
            self._ended = True
            self.other._finish()
            self._tunnel.ends()
            if self.other._ended:
                self._transport.close()
        return self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed: the other end gets what is under way to it, and is closed too."""
        self.lost, self.error = True, exc
        self._protocol.connection_lost(exc)
        if not self.other._transport.is_closing():
            self.other._transport.close()
        self._tunnel.ends()
