"""Backpressure of one client's connection: when the server reads from it, and when it may write to it."""

from __future__ import annotations

import asyncio


class Flow:
    """Pauses and resumes the reading, with a hold that a resumption does not undo, and keeps whether the client takes
    bytes (`write_paused`)."""

    __slots__ = ("_transport", "_writable", "held", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = self.held = False
        self._writable: asyncio.Event | None = None

    def pause_reading(self) -> None:
        """Leaves what comes in the socket."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again, unless there is a hold."""
        if self.read_paused and not self.held:
            self.read_paused = False
            self._transport.resume_reading()

    def hold(self) -> None:
        """Pauses the reading until `release`."""
        self.held = True
        self.pause_reading()

    def release(self) -> None:
        """Ends the hold, and reads again."""
        self.held = False
        self.resume_reading()

    def pause_writing(self) -> None:
        """The client takes no more for now."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The client takes bytes again, or is gone."""
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Waits until the client takes bytes."""
        if self.write_paused:
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()
