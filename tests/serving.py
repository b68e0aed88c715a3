"""A client and a running proxy for tests: raw sockets on one side, our server on the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from proxy.apis import error_body
from proxy.http.callbacks import Event, ignore
from proxy.http.client.pool import Timeouts
from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send
from proxy.http.server.certificate import Certificate
from proxy.http.server.port import Asgi
from proxy.http.server.protocol import Protocol
from proxy.http.server.serve import Config, Server
from proxy.model.outcome import Outcome
from proxy.request.passthrough import passthrough
from proxy.upstreams.upstream import Upstream
from tests.recorder import read_chunks

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
    """Runs a test on the event loop that the proxy is shipped with; a test that hangs fails."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(work, seconds))


async def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something is so. Raises TimeoutError when it does not become so in time."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    app: Asgi, http: type[Protocol] = Protocol, event: Event = ignore, certificate: Certificate | None = None
) -> AsyncIterator[Server]:
    """The server, listening on a free port (`server.ports[0]`); without its slow stop."""
    server = Server(Config(app, "127.0.0.1", 0, error_body, http=http, certificate=certificate), event=event)
    await server.start()
    try:
        yield server
    finally:
        for listener in server.listeners:
            listener.close()
        for connection in tuple(server.port.connections):
            connection.transport.abort()
        await eventually(lambda: not server.port.tasks and not server.port.connections, 30)
        await server.lifespan.stop()


@dataclass(slots=True)
class Proxy:
    """A proxy that passes everything through, and what it told of its requests."""

    port: int
    upstream: Upstream
    server: Server
    outcomes: list[Outcome] = field(default_factory=list)


@contextlib.asynccontextmanager
async def proxying(
    url: str,
    timeouts: Timeouts | None = None,
    body_seconds: float = 5.0,
    http: type[Protocol] = Protocol,
    upstream: Upstream | None = None,
) -> AsyncIterator[Proxy]:
    """A pass-through proxy before the upstream at `url`."""
    upstream = upstream or Upstream(url, timeouts or Timeouts())
    outcomes: list[Outcome] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await passthrough(scope, receive, send, upstream, outcomes.append, body_seconds)

    async with serving(app, http) as server:
        yield Proxy(server.ports[0], upstream, server, outcomes)
    await upstream.close()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as a client sees it; names of headers as they came."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> list[bytes]:
        """All values of a header."""
        return [v for n, v in self.headers if n.lower() == name]


class Client:
    """A client's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *pieces: bytes) -> None:
        """Sends pieces, each as a write of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def head(self) -> Reply:
        """The head of an answer."""
        lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        headers = [(n, v.strip()) for n, _, v in (line.partition(b":") for line in lines[1:])]
        return Reply(int(lines[0].split(b" ")[1]), headers, b"")

    async def reply(self, bodyless: bool = False) -> Reply:
        """A whole answer. Raises IncompleteReadError where it breaks off."""
        top = await self.head()
        if bodyless or top.status in (204, 304):
            return top
        if top.header(b"transfer-encoding") == [b"chunked"]:
            body, _ = await read_chunks(self.reader)
        else:
            body = await self.reader.readexactly(int(top.header(b"content-length")[0]))
        return Reply(top.status, top.headers, body)

    async def rest(self) -> bytes:
        """All bytes until the other side closes, however it does."""
        got = b""
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(65536):
                got += data
        return got

    def reset(self) -> None:
        """Leaves with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def dialling(port: int, limit: int = 1 << 20) -> AsyncIterator[Client]:
    """A client's connection; it is closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, raw: bytes, bodyless: bool = False) -> Reply:
    """One request on a connection of its own, and its answer."""
    async with dialling(port) as client:
        await client.send(raw)
        return await client.reply(bodyless)


def get(target: bytes = b"/v1/models", *headers: bytes, method: bytes = b"GET") -> bytes:
    """A request without a body."""
    return b"\r\n".join((b"%b %b HTTP/1.1" % (method, target), b"host: localhost", *headers, b"", b""))


def post(body: bytes = b"{}", *headers: bytes, target: bytes = b"/v1/things", method: bytes = b"POST") -> bytes:
    """A request with a body."""
    return get(target, *headers, b"content-length: %d" % len(body), method=method) + body
