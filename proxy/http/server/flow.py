"""Flow control of one client connection: pauses reading, and applies the client's backpressure to writers."""

from __future__ import annotations

import asyncio
import select

DISCONNECT_POLL_SECONDS = 1.0  # between two checks for a client's disconnect while the flow is held


class Flow:
    """Pauses and resumes reading. `resume_reading` has no effect while `held` is set. `write_paused` is true while the
    transport's write buffer is above its high-water mark."""

    __slots__ = ("_poll_timer", "_transport", "_writable", "held", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = self.held = False
        self._writable: asyncio.Event | None = None
        self._poll_timer: asyncio.TimerHandle | None = None

    def pause_reading(self) -> None:
        """Stops reading: incoming bytes stay in the socket buffer."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resumes reading, unless a hold is active."""
        if self.read_paused and not self.held:
            self.read_paused = False
            self._transport.resume_reading()

    def hold(self) -> None:
        """Pauses reading until `release`. A paused transport does not report a disconnect, so a timer polls for it."""
        self.held = True
        self.pause_reading()
        if self._poll_timer is None and hasattr(select, "POLLRDHUP"):
            self._start_poll_timer()

    def release(self) -> None:
        """Ends the hold and resumes reading."""
        self.held = False
        self.resume_reading()

    def close(self) -> None:
        """Called when the connection is lost: stops the timer, and wakes who waits to write."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None
        self.resume_writing()

    def _start_poll_timer(self) -> None:
        self._poll_timer = asyncio.get_running_loop().call_later(DISCONNECT_POLL_SECONDS, self._poll_disconnect)

    def _poll_disconnect(self) -> None:
        self._poll_timer = None
        if self._transport.is_closing() or not self.held:
            return
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if poll.poll(0):
            self._transport.abort()
        else:
            self._start_poll_timer()

    def pause_writing(self) -> None:
        """Called when the write buffer rises above the high-water mark."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Called when the write buffer falls below the low-water mark, or the connection is lost."""
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Waits until writing is no longer paused."""
        if self.write_paused:
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()
