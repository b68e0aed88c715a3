"""Starts a real redis-server for tests: on a free port of 127.0.0.1, in a folder of its own, ended with the test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.ports import held_port

START_SECONDS = 60.0  # a start that takes so long hangs
ANSWER_SECONDS = 60.0  # so does an answer
# How long Redis is waited for: a machine that is busy for a moment is later than the product allows.
PATIENCE_S = 10.0
WAITS = ("remote.READ_BUDGET_S", "remote.PROBE_TIMEOUT_S", "redis.COMMAND_TIMEOUT_S", "redis.CONNECT_TIMEOUT_S")


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is waited for however busy the machine is: a failure is never lateness."""
    for name in WAITS:
        monkeypatch.setattr(f"proxy.cache.{name}", PATIENCE_S)


@dataclass(slots=True)
class RedisServer:
    """A redis-server of ours; `options` are those of its command line, `entry` those that redis-cli needs to get in. It
    keeps nothing on disk."""

    binary: str
    port: int
    folder: Path
    options: Sequence[str] = ()
    tls: bool = False
    entry: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        ports = ["--port", "0", "--tls-port", str(self.port)] if self.tls else ["--port", str(self.port)]
        plain = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as out:
            self.process = subprocess.Popen([self.binary, *ports, *plain, *self.options], stdout=out, stderr=out)
        ends = time.monotonic() + START_SECONDS
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"redis-server did not start: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.01)

    def listens(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """Ends it at once, as a crash does; what it held is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within it the server answers nothing, and its connections stay."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def cli(self, *arguments: str) -> bytes:
        """What redis-cli answers to a command, raw."""
        return subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.entry, *arguments],
            check=True,
            capture_output=True,
            timeout=ANSWER_SECONDS,
        ).stdout

    def put(self, name: str, value: bytes) -> None:
        """Stores a value of any size."""
        command = ["redis-cli", "-p", str(self.port), *self.entry, "-x", "SET", name]
        subprocess.run(command, input=value, check=True, capture_output=True, timeout=ANSWER_SECONDS)

    def names(self) -> list[str]:
        """The names of all that it holds."""
        return sorted(self.cli("--scan").decode().split())


def installed() -> str:
    """The path of redis-server. Where none is installed the test is skipped, and fails in CI (`CI=true`)."""
    binary = shutil.which("redis-server")
    if binary is not None:
        return binary
    if os.environ.get("CI") == "true":
        pytest.fail("redis-server is not installed: CI must have one (tests/servers_setup.sh)")
    pytest.skip("redis-server is not installed: this test needs a real one (apt-get install redis-server)")


@contextmanager
def redis_server(*options: str, tls: bool = False, entry: Sequence[str] = ()) -> Iterator[RedisServer]:
    """A running redis-server."""
    binary = installed()
    with tempfile.TemporaryDirectory(prefix="plimsoll-redis-") as folder, held_port() as port:
        server = RedisServer(binary, port, Path(folder), options, tls, entry)
        try:
            server.start()
            yield server
        finally:
            server.kill()
