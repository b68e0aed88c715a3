"""Starts the proxy: opens its sockets, logs their addresses, and serves in one process or several."""

from __future__ import annotations

import errno
import gc
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from proxy import __version__
from proxy.apis import error_body
from proxy.app import create_admin, create_app, is_shut
from proxy.config.doubts import check_upstreams, doubts
from proxy.config.ladders import parameter
from proxy.config.rules import Rules
from proxy.config.settings import META, Settings
from proxy.config.windows import Windows
from proxy.errors import ConfigError
from proxy.http.server import workers
from proxy.http.server.certificate import Certificate
from proxy.http.server.serve import run
from proxy.observe.log import AccessLog, event, make_access_log, set_event_style
from proxy.observe.recording.recording_files import is_open_to_others, problem_of
from proxy.request.learned_endpoint import is_loopback
from proxy.request.moves import doubtful_moves
from proxy.services import FIRST_ENCODING, Services, build
from proxy.tokens.encodings import encoding

# Thresholds of the garbage collector. With Python's defaults, a conversation of 100,000 messages makes it scan all of
# them many times, 0.1 s each time.
GC_THRESHOLDS = (10_000, 20, 20)
SWITCH_INTERVAL_S = 0.0005  # how long a thread that counts may delay the event loop; Python's default is 5 ms
BACKLOG = 2048  # connections that wait until they are taken
OLD_TABLE_S = 182 * 86_400.0  # half a year: then most vendors have newer models than the model table
WILDCARDS = ("0.0.0.0", "::")
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # localhost is ::1 too, also where there is no IPv6
# What the admin port serves without its token, and without need of one.
SHUT = "serves /metrics, /healthz, /readyz; the page, /inspect, /learned and /forget need PLIMSOLL_ADMIN_TOKEN"
OPEN = "serves the page, /metrics, /healthz, /readyz, /inspect, /learned, /forget"


def aged(windows: Windows, now: float) -> tuple[str, ...]:
    """A line if the model table may be more than half a year old; `now` is in seconds since 1970."""
    if not windows.newest_at or now - windows.newest_at < OLD_TABLE_S:
        return ()
    return (f"the model table's newest date is {windows.newest}: windows and prices of newer models may be missing",)


def start(
    settings: Settings,
    remarks: Iterable[str] = (),
    folder: Path | None = None,
    reread: Callable[[], Settings] | None = None,
    variables: Callable[[], Mapping[str, str]] = dict,
) -> int:
    """Serves until it is stopped, and returns the exit code.

    `remarks` on the settings become events. Several workers share their metrics through `folder`. `reread` reads the
    settings again, with their files; `variables` reads the environment, for the keys that rules name. Raises
    ConfigError for wrong settings and rules, and where it cannot listen.
    """
    check_upstreams(settings)
    check_admin(settings)
    check_record(settings)
    certificate = certificate_of(settings)
    log = make_access_log(settings.log)
    services = build(settings, log, folder, reread, variables)
    listeners = listen(settings.host, settings.port)
    admin_listeners = (
        [] if settings.admin_port is None else listen(settings.admin_host or settings.host, settings.admin_port)
    )
    set_event_style(settings.log)
    for remark in (*remarks, *doubts(settings), *of_recordings(settings), *of_rules(settings, services)):
        event(remark)
    through = {"through": services.upstream.proxy} if services.upstream.proxy else {}
    scheme = "http" if certificate is None else "https"
    at = f"{scheme}://{shown(listeners[0])}/v1"
    event("serves", at=at, upstream=settings.upstream, **through, version=__version__)
    url = f"{scheme}://{shown(admin_listeners[0])}/" if admin_listeners else ""
    if url:
        event(SHUT if is_shut(settings) else OPEN, at=url)
    if on_terminal() and sys.stderr.isatty():
        print("\n".join(first_steps(at, url)), file=sys.stderr, flush=True)

    def work(number: int, ready: Callable[[], None]) -> None:
        services.budget.serve_as(number)
        if services.page is not None:
            services.page.recent.worker = number
        _serve(services, log, listeners, admin_listeners, ready, certificate)

    def gone(pid: int) -> None:
        services.metrics.end(pid)
        services.budget.forget(pid)

    if settings.workers == 1:
        work(0, lambda: None)
        return 0
    encoding(FIRST_ENCODING)  # before the fork: the workers share this memory
    return workers.run(
        settings.workers, work, gone, lambda: _close([*listeners, *admin_listeners]), event, hangup_stops=on_terminal()
    )


def check_admin(settings: Settings) -> None:
    """Raises `ConfigError` where settings of the admin port lack the port, where it is the proxy's own, or where others
    would see texts of messages."""
    if settings.admin_host and settings.admin_port is None:
        raise ConfigError("PLIMSOLL_ADMIN_HOST needs PLIMSOLL_ADMIN_PORT: without it there is no admin port")
    if settings.port and settings.admin_port == settings.port and _meet(settings.admin_host, settings.host):
        raise ConfigError(f"PLIMSOLL_ADMIN_PORT is {settings.port}, the proxy's own port: it must be another")
    if not settings.page_content:
        return
    if settings.admin_port is None:
        raise ConfigError("PLIMSOLL_PAGE_CONTENT needs PLIMSOLL_ADMIN_PORT: without it there is no page")
    if settings.admin_token is None and not is_loopback(settings.admin_host or settings.host):
        raise ConfigError(
            "PLIMSOLL_PAGE_CONTENT needs PLIMSOLL_ADMIN_TOKEN, or a PLIMSOLL_ADMIN_HOST that only this machine reaches"
        )


def _meet(host: str | None, other: str) -> bool:
    """Whether two hosts share an address: they are the same, or one is every address of the other's kind."""
    if host in (None, "", other):
        return True
    pairs = ((host, other), (other, host))
    return any(a in WILDCARDS and (b == "localhost" or (":" in a) is (":" in b)) for a, b in pairs)


def certificate_of(settings: Settings) -> Certificate | None:
    """The certificate of our own ports; None if they speak no TLS. Raises `ConfigError`."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise ConfigError("PLIMSOLL_TLS_KEY needs PLIMSOLL_TLS_CERT")
        return None
    return Certificate(settings.tls_cert, settings.tls_key, event)


def check_record(settings: Settings) -> None:
    """Raises `ConfigError` if nothing can be recorded where the settings say."""
    problem = "" if settings.record is None else problem_of(settings.record)
    if problem:
        raise ConfigError(f"PLIMSOLL_RECORD: {settings.record} {problem}")


def of_recordings(settings: Settings) -> list[str]:
    """The remarks on recordings."""
    return [*readable(settings), *without_bodies(settings)]


def of_rules(settings: Settings, services: Services) -> list[str]:
    """The remarks on the rules, and on the model table."""
    return [*unused(settings, services.rules), *unmovable(services), *aged(services.windows, time.time())]


def readable(settings: Settings) -> list[str]:
    """A remark if others may read or write in the folder of recordings."""
    folder = settings.record
    if folder is None or not is_open_to_others(folder):
        return []
    mode = stat.S_IMODE(folder.stat().st_mode)
    return [f"PLIMSOLL_RECORD: other users may read or write in {folder} (mode {mode:04o}): make it 0700"]


def without_bodies(settings: Settings) -> list[str]:
    """A remark if what is recorded cannot be replayed."""
    if settings.record is None or settings.record_content != META:
        return []
    return [
        "PLIMSOLL_RECORD_CONTENT=meta: figures are recorded, and no bodies: plimsoll replay cannot plan these requests "
        "under other settings; redacted or bodies records what it needs"
    ]


def unused(settings: Settings, rules: Rules) -> list[str]:
    """A remark for each setting without effect: an upstream or a key for a model that no ladder names."""
    said = []
    for kind, named in (("summary", "model"), ("embeddings", "embeddings")):
        name = f"PLIMSOLL_{kind.upper()}"
        given = [s for s in ("upstream", "api_key") if getattr(settings, f"{kind}_{s}") is not None]
        if given and not any(
            parameter(ladder_step, named) for ladder in rules.ladders.values() for ladder_step in ladder.steps
        ):
            said.append(f"{name}_{given[0].upper()} is of no use without {name}_MODEL: there is no {kind} model")
    return said


def unmovable(services: Services) -> list[str]:
    """A remark for each move that is allowed and cannot be made, or not for first requests."""
    models = services.rules.ladders[services.settings.ladder].models
    return doubtful_moves(models, services.knowledge, services.routes)


def first_steps(at: str, page: str) -> tuple[str, ...]:
    """What a person at a terminal does next, a line each. `at`: the base URL for clients; `page`: that of the page."""
    seen = page or "start with --admin-port 8090 to see what it does, live"
    return (
        "",
        f"  use it      export OPENAI_BASE_URL={at}",
        f"  the page    {seen}",
        "  see a cut   plimsoll demo, in another terminal; it needs no key",
        "",
    )


def on_terminal() -> bool:
    """Whether this process was started on a terminal: SIGHUP then says that it is closed, and the process must end."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def _serve(
    services: Services,
    log: AccessLog,
    listeners: list[socket.socket],
    admin_listeners: list[socket.socket],
    ready: Callable[[], None],
    certificate: Certificate | None,
) -> None:
    settings = services.settings

    def reload() -> None:
        services.reloader.request()
        if certificate is not None:
            certificate.request()

    settle()
    run(
        create_app(services),
        settings.host,
        settings.port,
        admin=create_admin(services) if admin_listeners else None,
        admin_host=settings.admin_host,
        admin_port=settings.admin_port,
        drain=settings.drain,
        sockets=listeners,
        admin_sockets=admin_listeners,
        ready=ready,
        min_rate=settings.min_rate,
        per_address=settings.max_per_address,
        read_seconds=settings.body_timeout,
        error_body=error_body,
        event=event,
        on_hangup=None if on_terminal() else reload,
        certificate=certificate,
    )
    services.metrics.publish()
    log.close()


def settle() -> None:
    """Tunes the garbage collector and the thread switch interval of this process, once everything is loaded."""
    gc.collect()
    gc.freeze()  # the collector does not scan what is loaded for good
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of a host. Port 0 selects one free port for all of them. Raises ConfigError
    with the reason."""
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            port = port or (opened[0].getsockname()[1] if opened else 0)
            try:
                opened.append(_open(family, (address[0], port, *address[2:])))
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


def _open(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # `::` does not include `0.0.0.0`
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def shown(listener: socket.socket) -> str:
    """A socket's address as host and port of a URL."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
