"""A connection on a bench: driven byte by byte, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any

from proxy.http.client.connection import Connection
from proxy.http.client.response import ResponseReader


class Wire(asyncio.Transport):
    """A transport that remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.paused = False
        self.aborted = False

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class Bench:
    """A connection with an reader on it, its transport, and how it ended."""

    def __init__(self, method: str = "GET", sent: bool = True) -> None:
        self.released: list[bool] = []
        self.connection = Connection(asyncio.get_running_loop(), lambda _, reusable: self.released.append(reusable))
        self.wire = Wire()
        self.connection.connection_made(self.wire)
        self.reader: ResponseReader = self.connection.start_request(method)
        self.reader.sent = sent

    def receive(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    async def all(self) -> bytes:
        body = b""
        while data := await self.reader.read():
            body += data
        return body
