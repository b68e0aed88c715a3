"""A company's forward proxy for tests: tunnels, forwards plain requests, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

OPENED = b"HTTP/1.1 200 Connection established\r\nvia: 1.1 company\r\n\r\n"


@dataclass(slots=True)
class ForwardProxy:
    """What it was asked: the heads of requests; `answer` is what CONNECT gets, `knows` the ports of 127.0.0.1 where
    it finds hosts that it alone knows."""

    answer: bytes = OPENED
    heads: list[bytes] = field(default_factory=list)
    knows: Mapping[str, int] = field(default_factory=dict)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://localhost:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a tunnel, or plain requests to one place."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            method, target, _ = head.split(b" ", 2)
            if method == b"CONNECT":
                writer.write(self.answer)
                if not self.answer.startswith(b"HTTP/1.1 2"):
                    return
                host, _, port = target.decode().rpartition(":")
            else:
                to = urlsplit(target.decode())
                host, port = to.hostname or "", str(to.port or 80)
            if host in self.knows:
                host, port = "127.0.0.1", str(self.knows[host])
            there, back = await asyncio.open_connection(host, int(port))
            if method != b"CONNECT":
                back.write(head)
            await asyncio.gather(_pour(reader, back), _pour(there, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


@contextlib.asynccontextmanager
async def forward_proxy(
    answer: bytes = OPENED, tls: ssl.SSLContext | None = None, knows: Mapping[str, int] = {}
) -> AsyncIterator[ForwardProxy]:
    """A forward proxy on a free port of 127.0.0.1; it ends with the connections that go through it."""
    made = ForwardProxy(answer, knows=knows, scheme="https" if tls else "http")
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
