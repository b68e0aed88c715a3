"""A client's bare socket: sends any bytes, and reads what comes as it comes."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from tests.hostile.harness import CHAT, Answered

SECONDS = 60.0  # that anything may take at most: nothing here is measured by the clock


class Wire:
    """One connection to a port of 127.0.0.1."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self._got = b""

    def send(self, *pieces: bytes) -> None:
        """Sends pieces, each as a write of its own; what the other side does not want any more is lost."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.socket.sendall(piece)

    def until(self, end: bytes) -> bytes:
        """What comes, to this end. Raises EOFError where the other side closes before."""
        while end not in self._got:
            self._more()
        found, self._got = self._got[: self._got.index(end) + len(end)], self._got[self._got.index(end) + len(end) :]
        return found

    def exactly(self, count: int) -> bytes:
        """So many bytes. Raises EOFError."""
        while len(self._got) < count:
            self._more()
        found, self._got = self._got[:count], self._got[count:]
        return found

    def _more(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError(self._got[:200])
        self._got += data

    def head(self) -> Answered:
        """The head of an answer; informational ones (1xx) are passed over."""
        while True:
            lines = self.until(b"\r\n\r\n")[:-4].split(b"\r\n")
            status = int(lines[0].split(b" ")[1])
            if status >= 200:
                pairs = (line.partition(b":") for line in lines[1:])
                return Answered(status, {n.decode().lower(): v.strip().decode("latin-1") for n, _, v in pairs}, b"")

    def reply(self, bodyless: bool = False) -> Answered:
        """A whole answer. Raises EOFError where it breaks off."""
        top = self.head()
        if bodyless or top.status in (204, 304):
            return top
        if top.headers.get("transfer-encoding") == "chunked":
            return Answered(top.status, top.headers, b"".join(self.chunks()))
        if "content-length" in top.headers:
            return Answered(top.status, top.headers, self.exactly(int(top.headers["content-length"])))
        return Answered(top.status, top.headers, self.rest())

    def chunks(self) -> Iterator[bytes]:
        """The data of a chunked body, chunk by chunk. Raises EOFError where it breaks off."""
        while size := int(self.until(b"\r\n"), 16):
            yield self.exactly(size + 2)[:-2]
        self.until(b"\r\n")

    def rest(self) -> bytes:
        """All bytes until the other side closes, however it does."""
        with contextlib.suppress(EOFError):
            while True:
                self._more()
        found, self._got = self._got, b""
        return found

    def half_close(self) -> None:
        """Says that nothing more will come."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Leaves with a FIN (or a RST, where something was not read)."""
        self.socket.close()

    def reset(self) -> None:
        """Leaves with a RST."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def get(target: bytes = b"/v1/things", *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> bytes:
    """A request without a body."""
    return b"\r\n".join((b"%b %b HTTP/%b" % (method, target, version), b"host: localhost", *headers, b"", b""))


def post(body: bytes, *headers: bytes, target: bytes = CHAT.encode()) -> bytes:
    """A request with a body and its length."""
    return get(target, *headers, b"content-length: %d" % len(body), method=b"POST") + body


def chunked(*chunks: bytes, headers: tuple[bytes, ...] = (), target: bytes = CHAT.encode()) -> bytes:
    """A request whose body comes in these chunks."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return get(target, *headers, b"transfer-encoding: chunked", method=b"POST") + framed + b"0\r\n\r\n"


def tried(port: int, raw: bytes, bodyless: bool = False) -> Answered | None:
    """The answer to bytes on a connection of their own; None where it is closed without one."""
    with Wire(port) as wire:
        wire.send(raw)
        try:
            return wire.reply(bodyless)
        except EOFError:
            return None
