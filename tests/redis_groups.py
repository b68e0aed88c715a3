"""Real Redis servers that replace one that dies: a master with sentinels, and a cluster, on ports of 127.0.0.1."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import held_port
from tests.redis_server import RedisServer, installed, redis_server

NAME = "harbour"  # of the master
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))
WAIT_SECONDS = 60.0  # a busy machine takes its time to agree


@dataclass(frozen=True, slots=True)
class Group:
    """`master` has what is common to all, `replica` takes its place. `hosts` are the addresses to ask, with ports.
    `masters`: of a cluster, all of them."""

    hosts: str
    master: RedisServer
    replica: RedisServer
    masters: tuple[RedisServer, ...] = ()

    def names(self) -> list[str]:
        """The names of all that the replica holds: what it is asked for after the master's death."""
        return self.replica.names()


@dataclass(frozen=True, slots=True)
class Access:
    """Passwords of servers and of sentinels, and files with a key and a certificate for TLS; all may be absent."""

    password: str = ""
    sentinel_password: str = ""
    key: Path | None = None
    certificate: Path | None = None

    @property
    def files(self) -> list[str]:
        """The options of a server with TLS."""
        if self.certificate is None:
            return []
        both = ["--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key)]
        return [*both, "--tls-ca-cert-file", str(self.certificate), "--tls-auth-clients", "no"]

    @property
    def server(self) -> list[str]:
        """The options of a server."""
        given = ["--requirepass", self.password, "--masterauth", self.password] if self.password else []
        return [*self.files, *(["--tls-replication", "yes"] if self.files else []), *given]

    def entry(self, password: str) -> list[str]:
        """The options of redis-cli."""
        tls = ["--tls", "--cacert", str(self.certificate)] if self.certificate else []
        return [*tls, *(["--no-auth-warning", "-a", password] if password else [])]


OPEN = Access()


def until(true: Callable[[], object]) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


@contextmanager
def started(access: Access, *options: str) -> Iterator[RedisServer]:
    """A running server."""
    entry = access.entry(access.password)
    with redis_server(*access.server, *options, tls=bool(access.files), entry=entry) as server:
        yield server


@contextmanager
def sentinels(access: Access = OPEN) -> Iterator[Group]:
    """A master, a replica of it, and three sentinels."""
    with ExitStack() as stack:
        master = stack.enter_context(started(access))
        replica = stack.enter_context(started(access, "--replicaof", "127.0.0.1", str(master.port)))
        until(lambda: b"master_link_status:up" in replica.cli("info", "replication"))
        watchers = [stack.enter_context(_sentinel(access, master.port)) for _ in range(3)]
        for watcher in watchers:
            until(lambda watcher=watcher: _agrees(watcher))  # type: ignore[misc]
        yield Group(",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers), master, replica)


def _agrees(watcher: RedisServer) -> bool:
    """Whether a sentinel knows the replica and both other sentinels."""
    told = watcher.cli("info", "sentinel")
    return b"slaves=1,sentinels=3" in told


@contextmanager
def _sentinel(access: Access, master: int) -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-sentinel-") as folder, held_port() as port:
        file = Path(folder) / "sentinel.conf"
        tls = [("tls-" if access.files else "", port), ("" if access.files else "tls-", 0)]
        lines = [
            *(f"{kind}port {number}" for kind, number in tls),
            "bind 127.0.0.1",
            f"dir {folder}",
            *(f"{name.removeprefix('--')} {value}" for name, value in _pairs(access.files)),
            *(["tls-replication yes"] if access.files else []),
            *([f"requirepass {access.sentinel_password}"] if access.sentinel_password else []),
            f"sentinel monitor {NAME} 127.0.0.1 {master} 2",
            *([f"sentinel auth-pass {NAME} {access.password}"] if access.password else []),
            f"sentinel down-after-milliseconds {NAME} 3000",
            f"sentinel failover-timeout {NAME} 5000",
        ]
        file.write_text("\n".join(lines) + "\n")
        entry = access.entry(access.sentinel_password)
        server = RedisServer(installed(), port, Path(folder), (), bool(access.files), entry)
        with (Path(folder) / "log").open("ab") as out:
            server.process = subprocess.Popen([server.binary, str(file), "--sentinel"], stdout=out, stderr=out)
        try:
            until(server.listens)
            yield server
        finally:
            server.kill()


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(options[::2], options[1::2], strict=True)


@contextmanager
def cluster(access: Access = OPEN) -> Iterator[Group]:
    """Three masters, and a replica of the one that has what is common to all."""
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "3000", "--cluster-replica-validity-factor", "0"]
    options += ["--tls-cluster", "yes"] if access.files else []
    with ExitStack() as stack:
        buses = [stack.enter_context(held_port()) for _ in range(4)]
        nodes = [stack.enter_context(started(access, *options, "--cluster-port", str(bus))) for bus in buses]
        for number, (node, (first, last)) in enumerate(zip(nodes, SLOTS, strict=False), 1):
            node.cli("cluster", "set-config-epoch", str(number))
            node.cli("cluster", "addslotsrange", str(first), str(last))
        for node in nodes[1:]:
            node.cli("cluster", "meet", "127.0.0.1", str(nodes[0].port), str(buses[0]))
        until(lambda: all(b"cluster_known_nodes:4" in node.cli("cluster", "info") for node in nodes))
        slot = int(nodes[0].cli("cluster", "keyslot", "{v1}"))
        (master,) = (node for node, (first, last) in zip(nodes, SLOTS, strict=False) if first <= slot <= last)
        name = master.cli("cluster", "myid").decode().strip()
        until(lambda: b"OK" in nodes[3].cli("cluster", "replicate", name))
        until(lambda: all(b"cluster_state:ok" in node.cli("cluster", "info") for node in nodes))
        until(lambda: b"master_link_status:up" in nodes[3].cli("info", "replication"))
        yield Group(",".join(f"127.0.0.1:{node.port}" for node in nodes[:3]), master, nodes[3], tuple(nodes[:3]))
