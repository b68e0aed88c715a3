"""Opens new connections to one upstream: name resolution, an optional forward proxy, and optional TLS.

It keeps no connection. Its errors name no host, because clients may see them; the log has the details.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import aiohappyeyeballs

from proxy.http.callbacks import Event, RateLimitedEvent, ignore
from proxy.http.client.response import Fault, TransportError

NO_FILE_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)  # no file descriptor is free: a temporary error
HAPPY_EYEBALLS_SECONDS = 0.25  # seconds until a host's next address is tried beside the first (RFC 8305, 5)
# A model may send no byte for minutes. Keep-alive probes prevent NAT and load balancers from dropping the connection.
KEEPALIVE_OPTIONS = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))
MAX_HEAD = 16 * 1024  # bytes of a proxy's response to CONNECT
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and port, with the TLS context that verifies the peer; without `tls` the connection is plain text."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A forward proxy, and the value of Proxy-Authorization (empty: no header)."""

    address: Address
    authorization: bytes = field(default=b"", repr=False)


class Dialer:
    """Opens connections to an address. `seconds` is the timeout for name resolution, TCP and TLS together."""

    def __init__(self, address: Address, seconds: float, proxy: Proxy | None = None, event: Event = ignore) -> None:
        self.address, self.proxy = address, proxy
        self._seconds = seconds
        self._failed = RateLimitedEvent(event, "no connection to an upstream")

    @property
    def forwards(self) -> bool:
        """Whether a proxy forwards plain-text requests, with the absolute form of the target (RFC 9112, 3.2.2)."""
        return self.proxy is not None and self.address.tls is None

    async def open(self, factory: Callable[[], P], tunnel: bool = False) -> P:
        """Connects a protocol made by `factory` to the upstream and returns it. Connects to the proxy instead
        if it `forwards` and `tunnel` is not set. Raises TransportError."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._open(factory, tunnel)
        except TimeoutError as error:
            self._failed(where=self.address, reason="timeout")
            raise TransportError(Fault.CONNECT_TIMEOUT, "The connection to the upstream timed out.") from error
        except (OSError, UnicodeError) as error:
            self._failed(where=self.address, reason=error)
            fault = Fault.OVERLOADED if getattr(error, "errno", None) in NO_FILE_DESCRIPTOR else Fault.CONNECT
            raise TransportError(fault, f"No connection to the upstream: {reason_of(error)}.") from error

    async def _open(self, factory: Callable[[], P], tunnel: bool) -> P:
        if self.proxy is None:
            return await _connect(self.address, factory)
        if self.forwards and not tunnel:
            return await _connect(self.proxy.address, factory)
        tunnel_request = await _connect(self.proxy.address, _ConnectTunnel)
        try:
            await tunnel_request.request(self.address, self.proxy.authorization)
            return await _attach(tunnel_request.transport, self.address, factory())
        except BaseException:
            tunnel_request.transport.abort()
            raise


async def _connect(address: Address, factory: Callable[[], P]) -> P:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    sock = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS)
    try:
        set_socket_options(sock)
        name = address.host if address.tls else None
        transport, protocol = await loop.create_connection(factory, sock=sock, ssl=address.tls, server_hostname=name)
    except BaseException:
        _dispose(sock, loop)
        raise
    if transport.is_closing():
        _dispose(sock, loop)
    return protocol


def _dispose(sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    """Closes a socket, or leaves that to its closed transport. When the peer resets immediately, uvloop closes the file
    descriptor and the socket object stays open. A second close could close a new connection with the same descriptor.
    """
    if type(loop).__module__.startswith("uvloop"):
        sock.detach()
    else:
        sock.close()


async def _attach(transport: asyncio.Transport, address: Address, protocol: P) -> P:
    """Attaches a protocol to a tunnel, with TLS to the address at its end if the address has it."""
    if address.tls is None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        return protocol
    loop = asyncio.get_running_loop()
    over = await loop.start_tls(transport, protocol, address.tls, server_hostname=address.host)
    if over is None:
        raise ConnectionResetError
    protocol.connection_made(over)
    return protocol


class _ConnectTunnel(asyncio.Protocol):
    """A connection to a proxy until the proxy has opened a tunnel (RFC 9110, 9.3.6)."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._received = b""
        self._response_head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def request(self, address: Address, authorization: bytes) -> None:
        """Requests the tunnel with CONNECT. Raises OSError if the proxy does not open it."""
        where = str(address).encode("ascii")
        lines = [b"CONNECT %b HTTP/1.1" % where, b"host: " + where]
        if authorization:
            lines.append(b"proxy-authorization: " + authorization)
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n")
        status = STATUS.match(await self._response_head)
        if status is None or not status[1].startswith(b"2"):
            raise TunnelRefused(int(status[1]) if status else 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not self._response_head.done() and (end or len(head) > MAX_HEAD):
            # The client sends first in a tunnel, so bytes after the head mean that the proxy opened no tunnel.
            self._response_head.set_result(head if end and not rest else b"")
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._response_head.done():
            self._response_head.set_result(b"")


class TunnelRefused(OSError):
    """A proxy did not open a tunnel. `status` is the status code of its response, 0 if the response was not HTTP."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy answered {status}" if status else "the proxy gave no answer")
        self.status = status


def reason_of(error: OSError | UnicodeError) -> str:
    """Returns why a connection failed, as text without hosts and addresses, which the libraries' messages contain."""
    if isinstance(error, TunnelRefused):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    if isinstance(error, socket.gaierror):
        return error.strerror or "unknown host"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else type(error).__name__


def set_socket_options(sock: socket.socket) -> None:
    """Disables Nagle's algorithm, and enables keep-alive probes that detect a dead peer within minutes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_OPTIONS:
        if hasattr(socket, name):  # macOS has another name for the first
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
