"""WebSockets for tests (RFC 6455): frames as bytes, a blocking client, and the script of an upstream that echoes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import struct
from dataclasses import dataclass
from types import TracebackType

from tests.recorder import Peer, Request, head

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
KEY = "sk-canary-0123456789abcdef"


def accept(key: bytes) -> bytes:
    """What a server answers to a client's key (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def frame(payload: bytes, opcode: int = BINARY, fin: bool = True, mask: bytes = b"") -> bytes:
    """One frame; a client's has a mask."""
    size = len(payload)
    bit = 128 if mask else 0
    if size < 126:
        length = bytes((bit | size,))
    elif size < 65536:
        length = struct.pack("!BH", bit | 126, size)
    else:
        length = struct.pack("!BQ", bit | 127, size)
    return bytes((128 * fin | opcode,)) + length + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    """A payload under its mask, or out from under it."""
    size = len(payload)
    stretched = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(stretched)).to_bytes(size)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came."""

    opcode: int
    payload: bytes
    fin: bool


def handshake(
    target: str = "/v1/realtime?model=gpt-realtime", *headers: str, key: bytes = b"dGhlIHNhbXBsZSBub25jZQ=="
) -> bytes:
    """The head of a client's handshake."""
    lines = [f"GET {target} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"]
    lines += [f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13", *headers]
    return "\r\n".join((*lines, "", "")).encode()


class Client:
    """A client's connection; the handshake is sent at once, with `behind` in the same packet."""

    def __init__(self, port: int, sent: bytes | None = None, behind: bytes = b"", timeout: float = 60) -> None:
        self.key = base64.b64encode(os.urandom(16))
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.sendall((handshake(key=self.key) if sent is None else sent) + behind)
        self._read = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        self._read.close()
        self.socket.close()

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        """The answer's status and headers (names in lower case)."""
        status = int(self._read.readline().split()[1])
        headers = []
        while line := self._read.readline().rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        return status, headers

    def opened(self) -> dict[str, str]:
        """The headers of a 101."""
        status, headers = self.head()
        assert status == 101, headers
        return dict(headers)

    def send(self, payload: bytes, opcode: int = BINARY, fin: bool = True) -> None:
        """One frame."""
        self.socket.sendall(frame(payload, opcode, fin, os.urandom(4)))

    def receive(self) -> Frame | None:
        """The next frame; None at the connection's end."""
        start = self._read.read(2)
        if len(start) < 2:
            return None
        size = start[1] & 127
        if size == 126:
            (size,) = struct.unpack("!H", self._read.read(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._read.read(8))
        return Frame(start[0] & 15, self._read.read(size), start[0] >= 128)

    def rest(self) -> bytes:
        """All that still comes."""
        return self._read.read()

    def finish(self) -> None:
        """Says that no more is sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Ends it with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._read.close()
        self.socket.close()


def switching(request: Request, *headers: bytes) -> bytes:
    """The head of a server's answer to a handshake."""
    key = accept(request.header(b"sec-websocket-key")[0])
    wanted = (b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + key)
    return head(b"101 Switching Protocols", *wanted, *headers)


async def next_frame(reader: asyncio.StreamReader) -> Frame:
    """A client's next frame. Raises IncompleteReadError at the end."""
    first, second = await reader.readexactly(2)
    size = second & 127
    if size == 126:
        (size,) = struct.unpack("!H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", await reader.readexactly(8))
    mask = await reader.readexactly(4)
    return Frame(first & 15, masked(await reader.readexactly(size), mask), first >= 128)


async def echoing(request: Request, peer: Peer) -> None:
    """The script of a WebSocket server that sends each frame back, and closes as it is told to."""
    await peer.send(switching(request))
    opcode = 0
    while opcode != CLOSE:
        came = await next_frame(peer.reader)
        opcode = came.opcode
        await peer.send(frame(came.payload, PONG if opcode == PING else opcode, came.fin))
    peer.close()
