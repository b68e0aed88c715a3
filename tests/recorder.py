"""An upstream for tests: records the exact bytes of every request and answers what a test scripts, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

LIMIT = 1 << 20  # bytes of a head that it reads


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came over the wire: `body` is what its framing holds, `raw_body` with the framing itself."""

    head: bytes
    body: bytes
    raw_body: bytes
    connection: int

    @property
    def method(self) -> bytes:
        return self.head.split(b" ", 2)[0]

    @property
    def target(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0].split(b" ", 1)[1].rsplit(b" ", 1)[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.rstrip(b"\r\n").split(b"\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]

    def header(self, name: bytes) -> list[bytes]:
        """All values of a header, whatever its case."""
        return [v for n, v in self.headers if n.lower() == name]


@dataclass(slots=True)
class Peer:
    """The proxy's end of one connection, as the upstream sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    ended: bool = False

    async def send(self, *pieces: bytes) -> None:
        """Sends pieces, each as a write of its own."""
        for piece in pieces:
            if self.writer.is_closing():
                raise ConnectionResetError
            self.writer.write(piece)
            await self.writer.drain()

    def close(self) -> None:
        """Ends the connection with a FIN."""
        self.ended = True
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection with a RST."""
        self.ended = True
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Waits until the proxy has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.ended = True


Script = Callable[[Request, Peer], Awaitable[None]]


def answer(
    body: bytes = b"{}", status: bytes = b"200 OK", headers: tuple[bytes, ...] = (b"content-type: application/json",)
) -> bytes:
    """A whole answer with a length."""
    return head(status, *headers, b"content-length: %d" % len(body)) + body


def head(status: bytes, *headers: bytes) -> bytes:
    """The head of an answer."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *headers, b"", b""))


def chunk(data: bytes) -> bytes:
    """Data as one chunk of a chunked body; the last one is empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENTS = head(b"200 OK", b"content-type: text/event-stream", b"transfer-encoding: chunked")


async def always(request: Request, peer: Peer) -> None:
    """The script that answers everything."""
    await peer.send(answer())


@dataclass(slots=True)
class Recorder:
    """What came, and how many connections there were and are."""

    script: Script = always
    streaming: bool = False
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    peers: list[Peer] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Where it listens, with a path like a provider's."""
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        peer = Peer(reader, writer, self.connections)
        self.connections += 1
        self.open += 1
        self.peers.append(peer)
        try:
            while not peer.ended and (request := await self._request(peer)) is not None:
                self.requests.append(request)
                await self.script(request, peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the proxy went away, as proxies may
        except Exception as error:
            self.errors.append(error)
        finally:
            self.open -= 1
            writer.close()

    async def _request(self, peer: Peer) -> Request | None:
        try:
            top = await peer.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        bare = Request(top, b"", b"", peer.number)
        if self.streaming:
            return bare
        if bare.header(b"transfer-encoding") == [b"chunked"]:
            body, raw = await read_chunks(peer.reader)
            return Request(top, body, raw, peer.number)
        length = int((bare.header(b"content-length") or [b"0"])[0])
        body = await peer.reader.readexactly(length)
        return Request(top, body, body, peer.number)


async def read_chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A chunked body: its data, and the bytes that it came in. Raises IncompleteReadError where it breaks off."""
    body, raw = b"", b""
    while True:
        size = await reader.readuntil(b"\r\n")
        data = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        raw += size + data
        if data == b"\r\n":
            return body, raw
        body += data[:-2]


@contextlib.asynccontextmanager
async def recording(
    script: Script = always, streaming: bool = False, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Recorder]:
    """A recorder that listens on a port of 127.0.0.1, 0 meaning a free one. With `streaming` a script reads the bodies
    itself."""
    recorder = Recorder(script, streaming, scheme="https" if tls else "http")
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", port, limit=LIMIT, ssl=tls)
    recorder.port = server.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        server.close()
        for peer in recorder.peers:
            peer.writer.transport.abort()
        while recorder.open:
            await asyncio.sleep(0.01)
        await server.wait_closed()
    assert recorder.errors == [], recorder.errors
