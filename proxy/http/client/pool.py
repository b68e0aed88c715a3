"""The connection pool of one upstream: opens connections, reuses them, and closes those that time out.

It never resends a request that the upstream may have processed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from proxy.http.callbacks import Event, ignore
from proxy.http.client.connection import Connection
from proxy.http.client.dialer import Address, Dialer, Proxy
from proxy.http.client.idle import Idle
from proxy.http.client.response import Fault, Header, ResponseReader, TransportError
from proxy.wire.headers import head_of

# RFC 9110, 9.2.2: these may be retried when a reused connection turns out to be closed; a POST may not.
IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
SWEEP_SECONDS = 1.0  # seconds between two timeout checks: one timer for all connections instead of one for each request
HEAD_END = b"\r\n\r\n"
PROXY_AUTHENTICATION_REQUIRED = 407  # the forward proxy rejects the configured credentials: not the client's error
COALESCED_BYTES = 64 * 1024  # bytes of a body that is sent in one piece with its head; a larger one is not copied


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds.

    `connect`: name resolution, TCP and TLS together. `read`: no byte of a pending response. `write`: the upstream reads
    nothing of a request's body. `idle`: an unused connection is closed (load balancers close theirs after 60).
    """

    connect: float = 5.0
    read: float = 600.0
    write: float = 60.0
    idle: float = 50.0


MAX_CONNECTIONS = 4096  # connections in use at once; each takes a file descriptor and some 30 KB


class WireRequest(NamedTuple):
    """A request as it is sent. Its headers are complete and declare the framing of a streamed body. The upstream may
    respond with 101 only if `upgrades` is set; the response's reader can then detach the connection."""

    method: str
    target: bytes
    headers: Sequence[Header]
    body: bytes | AsyncIterator[bytes]
    upgrades: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether the request may be retried when a reused connection closes before the response."""
        return self.method in IDEMPOTENT and isinstance(self.body, bytes)

    def head(self) -> bytes:
        """Returns the head without the empty line. Raises TransportError if a line break would inject a header."""
        head = head_of(b"%b %b HTTP/1.1" % (self.method.encode(), self.target), self.headers)
        if head is None:
            raise TransportError(Fault.PROTOCOL_ERROR, "A line break in a header or in the target.")
        return head


class Pool:
    """Connections to `host` and `port`: one per concurrent request, at most `max_connections`. Further requests wait in
    order of arrival, at most for the connect timeout."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        timeouts: Timeouts,
        proxy: Proxy | None = None,
        max_connections: int = MAX_CONNECTIONS,
        event: Event = ignore,
    ) -> None:
        self._max_connections, self._dialling = max_connections, 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._dialer = Dialer(Address(host, port, tls), timeouts.connect, proxy, event)
        self._forward = _forward(self._dialer)
        self._timeouts = timeouts
        self._idle = (Idle(), Idle())  # by `chunked` of the last response: some upstreams close only after streams
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # cached: `get_running_loop` makes a system call
        self._sweep_seconds = min(SWEEP_SECONDS, timeouts.read / 4, timeouts.write / 4, timeouts.idle / 4)

    def __len__(self) -> int:
        """The number of open connections, idle and in use."""
        return sum(map(len, self._idle)) + len(self._busy)

    @property
    def in_use(self) -> int:
        """The number of requests under way, those included that wait for a connection."""
        return len(self._busy) + self._dialling + len(self._waiters)

    @property
    def proxy(self) -> str:
        """Host and port of the forward proxy, or an empty string."""
        return str(self._dialer.proxy.address) if self._dialer.proxy else ""

    def send(self, request: WireRequest) -> Coroutine[Any, Any, ResponseReader]:
        """Sends a request and waits for the head of its response. Raises TransportError, or the error of the body's
        iterator."""
        if self._forward is None or request.upgrades:  # an upgrade uses a tunnel through the forward proxy
            return self._send(request)
        return self._send_forwarded(self._forward(request))

    async def _send_forwarded(self, request: WireRequest) -> ResponseReader:
        reader = await self._send(request)
        if reader.status == PROXY_AUTHENTICATION_REQUIRED:
            reader.close()
            text = f"No connection to the upstream: the proxy answered {PROXY_AUTHENTICATION_REQUIRED}."
            raise TransportError(Fault.CONNECT, text)
        return reader

    async def _send(self, request: WireRequest) -> ResponseReader:
        if self._waiters or len(self._busy) + self._dialling >= self._max_connections:
            await self._acquire_slot()
        reused = None if request.upgrades else self._take_idle(request.repeatable)
        if reused is not None:
            idle = self._idle[reused.chunked]
            try:
                reader = self._begin(reused, request)
                await reader.head()
            except BaseException as error:
                closed = isinstance(error, TransportError) and error.fault is Fault.CLOSED
                if closed:
                    idle.record_failed_reuse()
                idle.end_trial(reused)
                if not (closed and request.repeatable):
                    raise
            else:
                idle.record_reuse(reused)
                return reader
        reader = self._begin(await self._dial(request.upgrades), request)
        await reader.head()
        return reader

    def _begin(self, connection: Connection, request: WireRequest) -> ResponseReader:
        reader = connection.start_request(request.method, request.upgrades)
        self._busy.add(connection)
        if self._timer is None:
            self._sweep()
        try:
            if isinstance(request.body, bytes):
                _write(connection, request.head(), request.body)
                reader.sent = True
            else:
                connection.write(request.head() + HEAD_END)
                chunked = not any(name == b"content-length" for name, _ in request.headers)
                reader.upload = asyncio.create_task(_upload(connection, reader, request.body, chunked))
        except BaseException:
            reader.close()
            raise
        return reader

    def _take_idle(self, repeatable: bool) -> Connection | None:
        if self._loop is None:
            return None
        now = self._loop.time()
        whole, chunked = self._idle
        return whole.take(now, repeatable) or chunked.take(now, repeatable)

    def _on_response_end(self, connection: Connection, reusable: bool) -> None:
        self._busy.discard(connection)
        idle = self._idle[connection.chunked]
        if reusable:
            idle.put(connection)
        else:
            idle.record_close(connection, asyncio.get_running_loop().time())
        if self._waiters:
            self._wake_next()

    @property
    def _full(self) -> bool:
        return len(self._busy) + self._dialling >= self._max_connections

    async def _acquire_slot(self) -> None:
        """Waits for one of the `max_connections` slots. Raises TransportError after the connect timeout."""
        loop, first = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(self._timeouts.connect):
                while self._full or (self._waiters and not first):
                    waiter = loop.create_future()
                    (self._waiters.appendleft if first else self._waiters.append)(waiter)
                    await waiter
                    first = True
        except BaseException as error:
            self._wake_next()  # the slot may have been granted just before the timeout or cancellation
            if isinstance(error, TimeoutError):
                raise TransportError(Fault.OVERLOADED, "Too many requests to the upstream are in progress.") from None
            raise

    def _wake_next(self) -> None:
        """Wakes the first waiting request if a slot is free."""
        while self._waiters and (self._waiters[0].done() or not self._full):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _dial(self, tunnel: bool = False) -> Connection:
        self._dialling += 1
        self._loop = asyncio.get_running_loop()
        made = None
        try:
            made = await self._dialer.open(partial(Connection, self._loop, self._on_response_end), tunnel)
            return made
        finally:
            self._dialling -= 1  # from now on, a new connection counts as in use
            if made is None:
                self._wake_next()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self._busy):
            self._check_timeouts(connection, now)
        for idle in self._idle:
            for connection in idle.expire(now, self._timeouts.idle):
                connection.close()
        self._timer = loop.call_later(self._sweep_seconds, self._sweep) if len(self) else None

    def _check_timeouts(self, connection: Connection, now: float) -> None:
        reader = connection.reader
        assert reader is not None
        write_since, read_since = connection.write_waits_since, reader.read_waits_since
        if write_since is not None and now - write_since > self._timeouts.write:
            reader.fail(TransportError(Fault.WRITE_TIMEOUT, "The upstream stopped reading the request's body."))
        elif reader.sent and read_since is not None and now - read_since > self._timeouts.read:
            text = f"The upstream sent no byte for {self._timeouts.read:g} seconds."
            reader.fail(TransportError(Fault.READ_TIMEOUT, text))

    async def close(self) -> None:
        """Closes every connection. Responses in progress fail."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in (*chain(*(idle.connections for idle in self._idle)), *self._busy):
            connection.close()
        while len(self):
            await asyncio.sleep(0)


def _forward(dialer: Dialer) -> Callable[[WireRequest], WireRequest] | None:
    """Returns how to rewrite a request for a forward proxy: the absolute form of the target (RFC 9112, 3.2.2), and the
    proxy's authorization. None if requests are not forwarded."""
    if not dialer.forwards or dialer.proxy is None:
        return None
    origin = f"http://{dialer.address}".encode("ascii")
    authorization = dialer.proxy.authorization
    extra = [(b"proxy-authorization", authorization)] if authorization else []
    return lambda request: request._replace(target=origin + request.target, headers=[*request.headers, *extra])


def _write(connection: Connection, head: bytes, body: bytes) -> None:
    if len(body) <= COALESCED_BYTES:
        connection.write(HEAD_END.join((head, body)))
    else:
        connection.write(head + HEAD_END)
        connection.write(body)


async def _upload(connection: Connection, reader: ResponseReader, body: AsyncIterator[bytes], chunked: bool) -> None:
    """Streams a body to the upstream, with backpressure. Reports errors to the response's reader."""
    try:
        async for chunk in body:
            if chunk:
                connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
                await connection.drain()
        if chunked:
            connection.write(b"0\r\n\r\n")
        reader.request_sent()
    except Exception as error:
        reader.fail(error)
