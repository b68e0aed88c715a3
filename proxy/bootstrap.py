"""From settings to a house that serves: opens its doors, says where they are, and serves in one process or several."""

from __future__ import annotations

import errno
import gc
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from proxy import __version__
from proxy.apis import error_body
from proxy.app import FIRST_ENCODING, Services, build, create_admin, create_app
from proxy.config.ladders import parameter
from proxy.config.rules import Rules
from proxy.config.settings import Settings
from proxy.errors import ConfigError
from proxy.http.server import workers
from proxy.http.server.serve import run
from proxy.observe.log import AccessLog, event, make_access_log, set_event_style
from proxy.tokens.encodings import encoding

# Objects after which the collector looks at the youngest, and how often at the older ones: a conversation of 100,000
# messages would else have it look at all of them again and again, for 0.1 s each time.
COLLECT = (10_000, 20, 20)
TURN = 0.0005  # seconds that a thread that counts may keep the event loop waiting; of Python's own 5 ms many add up
BACKLOG = 2048  # connections that wait until they are taken
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # localhost is ::1 too, also where there is no IPv6


def start(settings: Settings, remarks: Iterable[str] = (), folder: Path | None = None) -> int:
    """Serves until it is told to stop, and returns the exit code. `remarks` on the settings become events; several
    workers share their metrics through `folder`. Raises ConfigError for wrong settings and rules, and where it cannot
    listen."""
    if settings.admin_host and settings.admin_port is None:
        raise ConfigError("PLIMSOLL_ADMIN_HOST needs PLIMSOLL_ADMIN_PORT: without it there is no admin port")
    log = make_access_log(settings.log)
    services = build(settings, log, folder)
    doors = listen(settings.host, settings.port)
    beside = [] if settings.admin_port is None else listen(settings.admin_host or settings.host, settings.admin_port)
    set_event_style(settings.log)
    for remark in (*remarks, *unused(settings, services.rules)):
        event(remark)
    through = {"through": services.upstream.proxy} if services.upstream.proxy else {}
    at = f"http://{shown(doors[0])}/v1"
    event("serves", at=at, upstream=settings.upstream, **through, version=__version__)
    if beside:
        event("serves /metrics, /healthz, /readyz, /inspect, /learned, /forget", at=f"http://{shown(beside[0])}/")

    def work(number: int, ready: Callable[[], None]) -> None:
        services.budget.serve_as(number)
        _serve(services, log, doors, beside, ready)

    def gone(pid: int) -> None:
        services.metrics.end(pid)
        services.budget.forget(pid)

    if settings.workers == 1:
        work(0, lambda: None)
        return 0
    encoding(FIRST_ENCODING)  # once for all: memory that nobody writes to is shared
    return workers.run(settings.workers, work, gone, lambda: _close([*doors, *beside]), event)


def unused(settings: Settings, rules: Rules) -> list[str]:
    """What is said of settings that change nothing: an upstream or a key for a model that nobody names."""
    said = []
    for kind, named in (("summary", "model"), ("embeddings", "embeddings")):
        name = f"PLIMSOLL_{kind.upper()}"
        given = [s for s in ("upstream", "api_key") if getattr(settings, f"{kind}_{s}") is not None]
        if given and not any(
            parameter(ladder_step, named) for ladder in rules.ladders.values() for ladder_step in ladder.steps
        ):
            said.append(f"{name}_{given[0].upper()} is of no use without {name}_MODEL: there is no {kind} model")
    return said


def _serve(
    services: Services,
    log: AccessLog,
    doors: list[socket.socket],
    beside: list[socket.socket],
    ready: Callable[[], None],
) -> None:
    settings = services.settings
    settle()
    run(
        create_app(services),
        settings.host,
        settings.port,
        admin=create_admin(services) if beside else None,
        admin_host=settings.admin_host,
        admin_port=settings.admin_port,
        drain=settings.drain,
        sockets=doors,
        admin_sockets=beside,
        ready=ready,
        min_rate=settings.min_rate,
        read_seconds=settings.body_timeout,
        error_body=error_body,
        event=event,
    )
    services.metrics.publish()
    log.close()


def settle() -> None:
    """Makes the interpreter hold up requests less: for the whole process, once all is loaded."""
    gc.collect()
    gc.freeze()  # what was loaded stays: the collector need not look at it again and again
    gc.set_threshold(*COLLECT)
    sys.setswitchinterval(TURN)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host, port 0 meaning one free port for all of them. Raises
    ConfigError with the reason."""
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            port = port or (opened[0].getsockname()[1] if opened else 0)
            try:
                opened.append(_listening(family, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                absent = error
        if absent is not None and not opened:
            raise absent
    except OSError as error:
        _close(opened)
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return opened


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # `::` and `0.0.0.0` are sockets of their own
        door.bind(address)
        door.listen(BACKLOG)
    except OSError:
        door.close()
        raise
    return door


def _close(doors: list[socket.socket]) -> None:
    for door in doors:
        door.close()


def shown(door: socket.socket) -> str:
    """Where a socket listens, as it stands in a URL."""
    host, port = door.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
