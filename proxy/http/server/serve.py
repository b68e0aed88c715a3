"""uvicorn as we run it: its fast parts, nothing added to what passes, and a stop that drains."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from proxy.http.callbacks import ErrorBody, Event, RateLimitedEvent, ignore
from proxy.http.server.protocol import MIN_RATE, READ_SECONDS, Protocol

KEEP_ALIVE_SECONDS = 75  # over the 60 of load balancers before us: who closes first loses nothing that we answer
SETTLE_SECONDS = 1.0  # between falling readiness and refused connections: what balances the load must hear of it

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Server(uvicorn.Server):
    """Serves an application, and beside it perhaps another one for those who watch it on a port of its own.

    From the stop signal on `scope["state"]["draining"]` is True. SIGTERM leaves `settle` seconds until connections
    are refused; then running requests get the configuration's `timeout_graceful_shutdown` to end. The other port
    answers until the last one has; it is opened, unless sockets that are bound already are given for it. `ready` is
    called once all ports are open.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        admin: uvicorn.Config | None = None,
        settle: float = 0.0,
        admin_sockets: Sequence[socket.socket] = (),
        ready: Callable[[], None] = lambda: None,
        event: Event = ignore,
    ) -> None:
        super().__init__(config)
        self._admin, self._settle, self._admin_sockets, self._ready = admin, settle, admin_sockets, ready
        self._no_files = RateLimitedEvent(
            event, "no file descriptor is free: connections are turned away; raise ulimit -n"
        )
        self._watched = ServerState()
        self._doors: list[asyncio.Server] = []

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that it listens on: the application's, and the one beside it where there is one."""
        return tuple(door.sockets[0].getsockname()[1] for door in (*self.servers, *self._doors))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the ports."""
        await super().startup(sockets)
        admin = self._admin
        if admin is not None and not self.should_exit:
            admin.load()
            open_door = partial(
                asyncio.get_running_loop().create_server,
                lambda: Protocol(admin, self._watched, self.lifespan.state),
            )
            self._doors = [await open_door(sock=given) for given in self._admin_sockets]
            if not self._doors:
                self._doors = [await open_door(admin.host, admin.port)]
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Says where no file is left: the event loop drops those who want to connect then, and tells nobody."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            self._no_files(reason=error.strerror)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Says that it drains, then drains: answers that begin from now on are the last on their connections, and
        those without a request are closed when the door is."""
        self.lifespan.state["draining"] = True
        for connection in (*self.server_state.connections, *self._watched.connections):
            if isinstance(connection, Protocol):
                connection.drain()
        if signal.SIGTERM in self._captured_signals:
            await asyncio.sleep(self._settle)
        await super().shutdown(sockets)
        for door in self._doors:
            door.close()
        for connection in tuple(self._watched.connections):
            connection.shutdown()
        self._captured_signals.clear()  # uvicorn would raise them again: a drained stop is a success, exit code 0


def configuration(
    app: Asgi, host: str, port: int, drain: float = 30.0, http: type[Protocol] = Protocol
) -> uvicorn.Config:
    """uvicorn's configuration for us: fast parts, and no header, log line or meaning that it would add by itself.

    `drain` is how many seconds running requests get to end at a stop.
    """
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=http,
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain)),
    )


def run(
    app: Asgi,
    host: str,
    port: int,
    *,
    admin: Asgi | None = None,
    admin_host: str = "",
    admin_port: int | None = None,
    drain: float = 30.0,
    settle: float = SETTLE_SECONDS,
    sockets: list[socket.socket] | None = None,
    admin_sockets: Sequence[socket.socket] = (),
    ready: Callable[[], None] = lambda: None,
    min_rate: float = MIN_RATE,
    read_seconds: float = READ_SECONDS,
    error_body: ErrorBody,
    event: Event = ignore,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains; `admin` is served on `admin_port` of `admin_host` (of the same host
    where that is empty). Sockets that are bound already, and perhaps shared with other processes, go before hosts and
    ports; `ready` is called once they are open. `min_rate` is how many bytes a second clients must
    read, over `read_seconds`, of what waits for them."""
    _take_all_files()
    http = type(
        "Protocol",
        (Protocol,),
        {"min_rate": min_rate, "read_seconds": read_seconds, "error_body": staticmethod(error_body)},
    )
    beside = None
    if admin is not None and admin_port is not None:
        beside = configuration(admin, admin_host or host, admin_port)
    Server(configuration(app, host, port, drain, http), beside, settle, admin_sockets, ready, event).run(sockets)


def _take_all_files() -> None:
    """Each request in flight holds two sockets, and the usual soft limit of files is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
