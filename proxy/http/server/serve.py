"""The ASGI server: listens on ports, waits for a stop signal, and drains the connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import uvloop

from proxy.http.callbacks import ErrorBody, Event, RateLimitedEvent, ignore
from proxy.http.server.certificate import Certificate
from proxy.http.server.lifespan import Lifespan
from proxy.http.server.port import Asgi, Port
from proxy.http.server.protocol import MIN_RATE, READ_RATE_SECONDS, Protocol

BACKLOG = 2048  # connections that the kernel queues until they are accepted
POLL_SECONDS = 0.1  # between two checks for a stop
SHUTDOWN_DELAY_SECONDS = 1.0  # from the end of readiness to closed ports: load balancers must see the first
MIN_DRAIN = 1.0  # seconds
HANDSHAKE_SECONDS = 10.0  # of TLS: until then nothing else bounds a connection
GOODBYE_SECONDS = 2.0  # that a client gets to end TLS after us
START_FAILED = 3  # exit code
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Config:
    """An application, and the host and port that it listens on; port 0 is any free port. `drain` is the timeout in
    seconds for running requests when the server stops. The class attributes of `http` are the limits of a connection,
    `per_address` is that of the connections of one address, 0: none. `certificate`: of a port that speaks TLS.
    """

    app: Asgi
    host: str
    port: int
    error_body: ErrorBody
    drain: float = 30.0
    http: type[Protocol] = Protocol
    per_address: int = 0
    certificate: Certificate | None = None


class Server:
    """Serves an application, and optionally a second one on an admin port.

    After a stop signal `scope["state"]["draining"]` is True. After SIGTERM the port stays open for `settle` seconds.
    What has arrived by then but was not read, as happens to a process that gets little processor time, is still served.
    Then the port closes, and running requests have `drain` seconds to complete. A second signal, if it is SIGINT, ends
    that wait. The admin port stays open until the last request is complete. The server opens its ports itself unless
    it gets bound sockets. It calls `ready` once all ports are open, and `on_hangup` on SIGHUP; without that, SIGHUP is
    a stop signal.
    """

    def __init__(
        self,
        config: Config,
        admin: Config | None = None,
        settle: float = 0.0,
        sockets: Sequence[socket.socket] = (),
        admin_sockets: Sequence[socket.socket] = (),
        ready: Callable[[], None] = lambda: None,
        event: Event = ignore,
        on_hangup: Callable[[], None] | None = None,
    ) -> None:
        self.started = self.should_exit = False
        self.lifespan = Lifespan(config.app, event)
        self.port = Port(config.app, self.lifespan.state, config.error_body, event, config.per_address)
        self._config, self._admin, self._settle, self._event = config, admin, settle, event
        self._sockets, self._admin_sockets, self._ready = sockets, admin_sockets, ready
        self._on_hangup = on_hangup
        self._admin_port = Port(admin.app, self.lifespan.state, admin.error_body, event) if admin else None
        self._out_of_files = RateLimitedEvent(
            event, "no file descriptor is free: new connections are dropped; raise ulimit -n"
        )
        self.listeners: list[asyncio.Server] = []
        self.admin_listeners: list[asyncio.Server] = []
        self._following: asyncio.Task[None] | None = None
        self._signals_received: list[int] = []
        self._forced = False

    @property
    def ports(self) -> tuple[int, ...]:
        """The port numbers: the application's, then the admin port if there is one."""
        found = (*self.listeners, *self.admin_listeners)
        return tuple(listener.sockets[0].getsockname()[1] for listener in found)

    async def serve(self) -> None:
        """Serves until a stop signal, or until `should_exit` is set."""
        with self._signals():
            await self.start()
            while not self.should_exit:
                self._check_file_descriptors()
                await asyncio.sleep(POLL_SECONDS)
            await self.stop()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        handle_hangup = self.handle_exit if self._on_hangup is None else self._handle_hangup
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, handle_hangup)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._on_hangup is not None:
            asyncio.get_running_loop().call_soon_threadsafe(self._on_hangup)

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        """Handles a stop signal."""
        self._signals_received.append(number)
        self._forced = self._forced or (self.should_exit and number == signal.SIGINT)
        self.should_exit = True

    async def start(self) -> None:
        """Starts the application and opens the ports. Raises SystemExit if the application fails to start."""
        if not await self.lifespan.start():
            sys.exit(START_FAILED)
        self.listeners = await _listen(self._config, self.port, self._sockets)
        if self._admin is not None and self._admin_port is not None:
            self.admin_listeners = await _listen(self._admin, self._admin_port, self._admin_sockets)
        if self._config.certificate is not None:
            self._following = asyncio.create_task(self._config.certificate.follow())
        self.started = True
        self._ready()

    def _check_file_descriptors(self) -> None:
        """Reports if no file descriptor is free: the event loop then drops new connections silently."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            self._out_of_files(reason=error.strerror)

    async def stop(self) -> None:
        """Drains. Responses that start from now on close their connections. Connections without a request close with
        the port."""
        self.lifespan.state["draining"] = True
        watched = self._admin_port.connections if self._admin_port else ()
        for connection in (*self.port.connections, *watched):
            connection.drain()
        if signal.SIGTERM in self._signals_received:
            await asyncio.sleep(self._settle)
        until = asyncio.get_running_loop().time() + max(MIN_DRAIN, self._config.drain)
        await self._read_arrived(until)
        _close(self.listeners, self.port)
        for bound in self._sockets:
            bound.close()
        await self._wait_for_requests(until)
        if self._following is not None:
            self._following.cancel()
        if not self._forced:
            await self.lifespan.stop()
        if self._admin_port is not None:
            _close(self.admin_listeners, self._admin_port)

    async def _read_arrived(self, until: float) -> None:
        """Gives the event loop turns until no connection waits in the backlog and no request in the buffer of an idle
        connection: the kernel would reset them when the port closes. For at most half of the time `until` the drain
        ends, since new ones may arrive without end."""
        clock = asyncio.get_running_loop().time
        until = (clock() + until) / 2
        while not self._forced and clock() < until and _any_readable(self.listeners, self.port):
            await asyncio.sleep(0)

    async def _wait_for_requests(self, until: float) -> None:
        await asyncio.sleep(POLL_SECONDS)
        try:
            async with asyncio.timeout_at(until):
                while (self.port.connections or self.port.tasks) and not self._forced:
                    await asyncio.sleep(POLL_SECONDS)
                for listener in self.listeners:
                    await listener.wait_closed()
        except TimeoutError:
            self._event("requests that exceed the drain timeout are cancelled", requests=len(self.port.tasks))
            for task in tuple(self.port.tasks):
                task.cancel()


async def _listen(config: Config, port: Port, sockets: Sequence[socket.socket]) -> list[asyncio.Server]:
    tls = {} if config.certificate is None else _tls(config.certificate)
    listen = partial(asyncio.get_running_loop().create_server, partial(config.http, port), backlog=BACKLOG, **tls)
    if not sockets:
        return [await listen(config.host, config.port)]
    return [await listen(sock=bound) for bound in sockets]


def _tls(certificate: Certificate) -> dict[str, Any]:
    seconds = {"ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": GOODBYE_SECONDS}
    return {"ssl": certificate.context, **seconds}


def _any_readable(listeners: Sequence[asyncio.Server], port: Port) -> bool:
    """Whether a connection waits in a backlog, or bytes for an idle connection."""
    poll = select.poll()
    for listener in listeners:
        for bound in listener.sockets:
            poll.register(bound.fileno(), select.POLLIN)
    for connection in port.connections:
        if connection.is_idle:
            poll.register(connection.transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _close(listeners: Sequence[asyncio.Server], port: Port) -> None:
    for listener in listeners:
        listener.close()
    for connection in tuple(port.connections):
        connection.shutdown()


def run(
    app: Asgi,
    host: str,
    port: int,
    *,
    error_body: ErrorBody,
    admin: Asgi | None = None,
    admin_host: str = "",
    admin_port: int | None = None,
    drain: float = 30.0,
    settle: float = SHUTDOWN_DELAY_SECONDS,
    sockets: Sequence[socket.socket] = (),
    admin_sockets: Sequence[socket.socket] = (),
    ready: Callable[[], None] = lambda: None,
    min_rate: float = MIN_RATE,
    read_seconds: float = READ_RATE_SECONDS,
    event: Event = ignore,
    on_hangup: Callable[[], None] | None = None,
    per_address: int = 0,
    certificate: Certificate | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, drains, and returns.

    admin: a second application, on `admin_port` of `admin_host` (by default `host`).
    drain, settle: seconds, as in `Server`.
    sockets, admin_sockets: bound sockets to use instead of hosts and ports. Other processes may share them.
    ready: called once all ports are open.
    on_hangup: called on each SIGHUP; None: SIGHUP is a stop signal.
    per_address: connections that one address may have at once to `port`, 0: any number.
    certificate: both ports speak TLS with it, and follow its files.
    min_rate, read_seconds: bytes per second, and the interval in seconds over which they are measured. A client that
    reads a pending response more slowly is disconnected.
    """
    _raise_file_limit()
    http = type("Protocol", (Protocol,), {"min_rate": min_rate, "read_seconds": read_seconds})
    admin_config = None
    if admin is not None and admin_port is not None:
        admin_config = Config(admin, admin_host or host, admin_port, error_body, certificate=certificate)
    config = Config(app, host, port, error_body, drain, http, per_address, certificate)
    server = Server(
        config,
        admin_config,
        settle=settle,
        sockets=sockets,
        admin_sockets=admin_sockets,
        ready=ready,
        event=event,
        on_hangup=on_hangup,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve())


def _raise_file_limit() -> None:
    """Raises the soft limit of file descriptors to the hard limit. A request uses two; the usual soft limit is 1024."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
