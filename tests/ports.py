"""Ports that are chosen a while before a server binds them, or that none binds: no other process gets one meanwhile."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOWEST, HIGHEST = 11_000, 65_535  # browsers do not ask at some of the lower ones
GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")  # those that the system gives to whoever needs any
FOLDER = Path(tempfile.gettempdir()) / f"plimsoll-test-ports-{os.getuid()}"


@contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections until a server listens on it that reuses addresses, as most do: also
    one that is started again there, after its death."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def reserved_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, that the system gives to nobody, and that no other process gets here
    as long as this one runs: a lock on a file tells them."""
    FOLDER.mkdir(exist_ok=True)
    ports = _not_given()
    for port in random.sample(ports, len(ports)):
        if _locked(port) and _is_free(port):
            return port
    raise OSError("no port is free")


def _not_given() -> list[int]:
    first, last = map(int, GIVEN.read_text().split()) if GIVEN.exists() else (32_768, 60_999)
    every = range(LOWEST, HIGHEST + 1)
    return [port for port in every if not first <= port <= last] or [*every]


def _locked(port: int) -> bool:
    """Whether the port is this process's from now on. The lock ends with the process."""
    file = os.open(FOLDER / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
