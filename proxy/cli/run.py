"""`plimsoll run -- COMMAND`: runs a program with a proxy before each API that it asks, and says what was done.

Theory of operation
===================

For each API that the program needs (rules/clients.toml) a proxy of its own starts on a free port of 127.0.0.1, so that
the program's keys reach their provider and nobody else. The program keeps the terminal: a proxy is in a session of its
own, so that Ctrl-C reaches the program alone, and this process waits for it whatever signal comes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from urllib.parse import urlsplit

from proxy.cli import admin_client
from proxy.config.clients import ApiRow, Clients, filled, variables_for
from proxy.config.settings import PREFIX, SETTINGS, Settings
from proxy.errors import ConfigError

LOCAL = "127.0.0.1"
UPSTREAM = "PLIMSOLL_UPSTREAM"
START_TIMEOUT_S = 60.0  # a first start on a slow machine reads its modules from disk
POLL_S = 0.02
STOP_S = 10.0
# By this command itself.
GIVEN = frozenset(("host", "port", "admin_host", "admin_port", "log", "upstream", "workers", "tls_cert", "tls_key"))
SIGNALS = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
FORWARDED = tuple(getattr(signal, name) for name in SIGNALS if hasattr(signal, name))
Handler = Callable[[int, FrameType | None], None]
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # the exit codes of a shell


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that runs: the APIs that it is for, its address without a path, its admin address and its upstream."""

    apis: tuple[str, ...]
    url: str
    admin: str
    upstream: str


def run(command: Sequence[str], settings: Settings, clients: Clients, given: Mapping[str, str], page: bool) -> int:
    """Runs a program until it ends, and returns its exit code (128 and the signal, if one ended it).

    `given`: the settings of flags, by the names of their variables. `page`: the proxies stay until Ctrl-C afterwards.
    Raises `ConfigError` where the program or a proxy cannot be started.
    """
    program = shutil.which(command[0])
    if program is None:
        print(f"plimsoll: there is no program {command[0]}", file=sys.stderr)
        return NOT_FOUND
    client = clients.of(command[0])
    apis = clients.apis_of(client)
    met: list[int] = []  # signals that came while there was no program to send them to

    def keep(number: int, frame: FrameType | None) -> None:
        met.append(number)

    with _handled(dict.fromkeys(FORWARDED, keep)), ExitStack() as stack:
        started = [stack.enter_context(proxy) for proxy in _proxies(apis, settings, given)]
        running = [proxy.ready(met) for proxy in started]
        urls = {api: one.url for one in running for api in one.apis}
        environ = {**_without_settings(os.environ), **variables_for(client, apis, urls)}
        arguments = [program, *(filled(text, urls) for text in client.arguments), *command[1:]]
        for one in running:
            _say(f"{', '.join(one.apis)} through {one.url} to {one.upstream}; page: {one.admin}")
        code = _run(arguments, environ, met)
        print("\n".join(f"plimsoll: {line}" for line in map(summary, running)), file=sys.stderr, flush=True)
        if page and not met:
            _stay(running)
    return code


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the program: without settings of the proxy, some of which are keys."""
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


def _proxies(apis: Sequence[ApiRow], settings: Settings, given: Mapping[str, str]) -> Iterator[_Proxy]:
    """A proxy for each upstream. An upstream that the settings name serves all APIs."""
    named = {**os.environ, **given}.get(UPSTREAM)
    upstreams: dict[str, list[str]] = {}
    for api in apis:
        url = settings.upstream if named else api.named_by(os.environ) or api.upstream
        upstreams.setdefault(url, []).append(api.name)
    for url, names in upstreams.items():
        yield _Proxy(tuple(names), url, given)


class _Proxy:
    """A proxy, as a context: it starts at its beginning, and is stopped at its end."""

    def __init__(self, apis: tuple[str, ...], upstream: str, given: Mapping[str, str]) -> None:
        self._apis, self._upstream, self._given = apis, upstream, given
        self._folder = TemporaryDirectory(prefix="plimsoll-")
        self._log = Path(self._folder.name) / "log"

    def __enter__(self) -> _Proxy:
        own = {setting.name for setting in SETTINGS if setting.field in GIVEN}
        environ = {name: value for name, value in {**os.environ, **self._given}.items() if name not in own}
        environ[UPSTREAM] = self._upstream
        arguments = ["--host", LOCAL, "--port", "0", "--admin-port", "0", "--log", "json"]
        with self._log.open("wb") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proxy.cli", "serve", *arguments],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,  # Ctrl-C is the program's
            )
        return self

    def ready(self, met: Sequence[int]) -> Running:
        """Waits until it listens. Raises `ConfigError` with its log if it does not, `SystemExit` if a signal is met."""
        at, admin = _addresses(self._process, self._log, met)
        parts = urlsplit(at)
        return Running(self._apis, f"{parts.scheme}://{parts.netloc}", admin, self._upstream)

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGINT)  # after SIGTERM it would wait for a load balancer to notice
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def _addresses(process: subprocess.Popen[bytes], log: Path, met: Sequence[int]) -> tuple[str, str]:
    """The addresses that a proxy names in its log once it listens. Raises `ConfigError` with its log if it ends."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if met:
            raise SystemExit(128 + met[0])
        at = [found["at"] for found in _events(log) if str(found.get("event", "")).startswith("serves")]
        if len(at) == 2:
            return at[0], at[1]
        time.sleep(POLL_S)
    said = log.read_text("utf-8", "replace").strip()
    raise ConfigError(said.removeprefix("plimsoll: ") or "the proxy did not start")


def _events(log: Path) -> Iterator[Mapping[str, str]]:
    for line in log.read_text("utf-8", "replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


@contextmanager
def _handled(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Has signals handled, until the end."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: Sequence[str], environ: Mapping[str, str], met: list[int]) -> int:
    """Runs the program on this terminal; signals go to it, also those that were `met` before."""
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if child is None:
            met.append(number)
        elif child.poll() is None:
            child.send_signal(number)

    def leave(number: int, frame: FrameType | None) -> None:
        """Ctrl-C: the terminal sends it to the program, too, which decides what it means."""

    with _handled({signal.SIGINT: leave, **dict.fromkeys(FORWARDED, forward)}):
        try:
            child = subprocess.Popen(arguments, env=environ)
        except OSError as error:
            print(f"plimsoll: {arguments[0]}: {error.strerror}", file=sys.stderr)
            return NOT_EXECUTABLE
        for number in met:
            child.send_signal(number)
        code = child.wait()
    return code if code >= 0 else 128 - code


def summary(one: Running) -> str:
    """What a proxy did, in one line."""
    try:
        found = admin_client.overview(one.admin)
    except admin_client.RequestFailed as error:
        return f"{', '.join(one.apis)}: {error}"
    asked, tokens = found["requests"], found["tokens"]
    said = [f"{asked['total']:,} request{'' if asked['total'] == 1 else 's'}", f"{asked['cut']:,} cut"]
    said += [f"{asked['healed']:,} healed", f"{tokens['saved']:,} of {tokens['prompt']:,} tokens saved"]
    failed = [f"{asked['failed']:,} failed"] if asked["failed"] else []
    return f"{', '.join(one.apis)}: {', '.join([*said, *failed])}"


def _stay(running: Sequence[Running]) -> None:
    pages = ", ".join(one.admin for one in running)

    def ended(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), _handled(dict.fromkeys(FORWARDED, ended)):
        _say(f"the page stays open at {pages} (Ctrl-C to stop)")
        while True:
            time.sleep(3600)


def _say(text: str) -> None:
    print(f"plimsoll: {text}", file=sys.stderr, flush=True)
