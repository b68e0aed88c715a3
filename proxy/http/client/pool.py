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
from proxy.http.client.response import Fault, Header, LinkError, ResponseReader

# RFC 9110, 9.2.2: these may be retried when a reused connection turns out to be closed; a POST may not.
IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
PACE = 1.0  # seconds between two timeout checks: one timer for all connections instead of one for each request
LINE = b"%b: %b"
NOT_LET_OUT = 407  # the forward proxy rejects the credentials: an error of the configuration, not of the client
JOIN = 64 * 1024  # bytes of a body that is sent in one piece with its head; a larger one is not copied


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


MOST = 4096  # connections in use at once; each takes a file descriptor and some 30 KB


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
        """Returns the head with the empty line. Raises LinkError if a line break would inject a header."""
        lines = [b"%b %b HTTP/1.1" % (self.method.encode(), self.target), *map(LINE.__mod__, self.headers)]
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
            raise LinkError(Fault.ILLEGAL, "A line break in a header or in the target.")
        return head + b"\r\n\r\n"


class Pool:
    """Connections to `host` and `port`: one per concurrent request, at most `most`. Further requests wait in order of
    arrival, at most for the connect timeout."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        timeouts: Timeouts,
        proxy: Proxy | None = None,
        most: int = MOST,
        event: Event = ignore,
    ) -> None:
        self._most, self._dialling = most, 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._dialer = Dialer(Address(host, port, tls), timeouts.connect, proxy, event)
        self._forward = _forward(self._dialer)
        self._timeouts = timeouts
        self._idle = (Idle(), Idle())  # by `chunked` of the last response: some upstreams close only after streams
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # cached: `get_running_loop` makes a system call
        self._pace = min(PACE, timeouts.read / 4, timeouts.write / 4, timeouts.idle / 4)

    def __len__(self) -> int:
        """The number of open connections, idle and in use."""
        return sum(map(len, self._idle)) + len(self._busy)

    @property
    def proxy(self) -> str:
        """Host and port of the forward proxy, or an empty string."""
        return str(self._dialer.proxy.address) if self._dialer.proxy else ""

    def send(self, request: WireRequest) -> Coroutine[Any, Any, ResponseReader]:
        """Sends a request and waits for the head of its response. Raises LinkError, or the error of the body's
        iterator."""
        if self._forward is None or request.upgrades:  # an upgrade uses a tunnel through the forward proxy
            return self._sent(request)
        return self._forwarded(self._forward(request))

    async def _forwarded(self, request: WireRequest) -> ResponseReader:
        reader = await self._sent(request)
        if reader.status == NOT_LET_OUT:
            reader.close()
            raise LinkError(Fault.CONNECT, f"No connection to the upstream: the proxy answered {NOT_LET_OUT}.")
        return reader

    async def _sent(self, request: WireRequest) -> ResponseReader:
        if self._line or len(self._busy) + self._dialling >= self._most:
            await self._turn()
        kept = None if request.upgrades else self._kept(request.repeatable)
        if kept is not None:
            idle = self._idle[kept.chunked]
            try:
                reader = self._begin(kept, request)
                await reader.head()
            except LinkError as error:
                if error.fault is Fault.CLOSED:
                    idle.disproved()
                if error.fault is not Fault.CLOSED or not request.repeatable:
                    raise
            else:
                idle.proved()
                return reader
        reader = self._begin(await self._dial(request.upgrades), request)
        await reader.head()
        return reader

    def _begin(self, connection: Connection, request: WireRequest) -> ResponseReader:
        reader = connection.begin(request.method, request.upgrades)
        self._busy.add(connection)
        if self._timer is None:
            self._sweep()
        try:
            if isinstance(request.body, bytes):
                _write(connection, request.head(), request.body)
                reader.sent = True
            else:
                connection.write(request.head())
                chunked = not any(name == b"content-length" for name, _ in request.headers)
                reader.upload = asyncio.create_task(_upload(connection, reader, request.body, chunked))
        except BaseException:
            reader.close()
            raise
        return reader

    def _kept(self, repeatable: bool) -> Connection | None:
        if self._loop is None:
            return None
        now = self._loop.time()
        whole, chunked = self._idle
        return whole.take(now, repeatable) or chunked.take(now, repeatable)

    def _ended(self, connection: Connection, reusable: bool) -> None:
        self._busy.discard(connection)
        idle = self._idle[connection.chunked]
        if reusable:
            idle.put(connection)
        else:
            idle.lost(connection, asyncio.get_running_loop().time())
        if self._line:
            self._next()

    @property
    def _full(self) -> bool:
        return len(self._busy) + self._dialling >= self._most

    async def _turn(self) -> None:
        """Waits until fewer than `most` connections are in use. Raises LinkError after the connect timeout."""
        loop, first = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(self._timeouts.connect):
                while self._full or (self._line and not first):
                    turn = loop.create_future()
                    (self._line.appendleft if first else self._line.append)(turn)
                    await turn
                    first = True
        except BaseException as error:
            self._next()  # the slot may have been granted just before the timeout or cancellation
            if isinstance(error, TimeoutError):
                raise LinkError(Fault.FULL, "Too many requests are at the upstream already.") from None
            raise

    def _next(self) -> None:
        """Wakes the first waiting request if a slot is free."""
        while self._line and (self._line[0].done() or not self._full):
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _dial(self, tunnel: bool = False) -> Connection:
        self._dialling += 1
        self._loop = asyncio.get_running_loop()
        made = None
        try:
            made = await self._dialer.open(partial(Connection, self._loop, self._ended), tunnel)
            return made
        finally:
            self._dialling -= 1  # from now on, a new connection counts as in use
            if made is None:
                self._next()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self._busy):
            self._look_at(connection, now)
        for idle in self._idle:
            for late in idle.overdue(now, self._timeouts.idle):
                late.close()
        self._timer = loop.call_later(self._pace, self._sweep) if len(self) else None

    def _look_at(self, connection: Connection, now: float) -> None:
        reader = connection.reader
        assert reader is not None
        stalled, silent = connection.stalled_since, reader.silent_since
        if stalled is not None and now - stalled > self._timeouts.write:
            reader.fail(LinkError(Fault.STALLED, "The upstream takes no more of the request's body."))
        elif reader.sent and silent is not None and now - silent > self._timeouts.read:
            reader.fail(LinkError(Fault.SILENT, f"The upstream was silent for {self._timeouts.read:g} seconds."))

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
    word = dialer.proxy.authorization
    extra = [(b"proxy-authorization", word)] if word else []
    return lambda request: request._replace(target=origin + request.target, headers=[*request.headers, *extra])


def _write(connection: Connection, head: bytes, body: bytes) -> None:
    if len(body) <= JOIN:
        connection.write(head + body)
    else:
        connection.write(head)
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
        reader.all_sent()
    except Exception as error:
        reader.fail(error)
