"""A rolling restart of two replicas behind nginx, under load: no request and no stream may be lost.

python -m tests.bench.rolling [--requests 20000] [--streams 200] [--rate 250] [--seconds 20] [--pre-stop 5]
    [--before FOLDER]

It restarts as Kubernetes does: the replica leaves the endpoints (nginx gets another list), `preStop` waits, SIGTERM
makes `/readyz` fail, streams end, the process exits with 0, another starts, and joins the endpoints once it is ready.
nginx repeats no request (`proxy_next_upstream off`). Each request is a connection of its own, so that no client repeats
one either.

With `--before`, both replicas begin as the version in another checkout and are replaced by this one, on one Redis. Then
one of each runs on a simulated provider, and what either learned or counted must be known to the other. Exit code 1 if
anything is lost, an exit code is not 0, or a record is not read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.simulator.app import SimulatorConfig, simulator
from tests.bench.arguments import checkout
from tests.e2e.services import sentence, talk
from tests.e2e.world import listening
from tests.ports import reserved_port
from tests.redis_server import redis_server

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
PRE_STOP = 5.0  # seconds, as in the manifests
DRAIN = 120  # the same
PACE = 0.1  # seconds between two chunks of a stream
READY = 120.0  # seconds that anything may take to begin or end
KNOWN = 20.0  # until one replica knows what another one learned
AT_ONCE = 64  # requests, besides streams
MODEL = "gpt-4o"
NEAR = "gpt-4-32k"  # whose window is near to the long texts: they are counted before they are sent
CONFIG = """worker_processes 2; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.err;
events {{ worker_connections 4096; }}
http {{ access_log off; proxy_temp_path {home}/proxy; client_body_temp_path {home}/body; fastcgi_temp_path {home}/f;
  uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  upstream replicas {{ zone replicas 64k; {servers} keepalive 64; }}
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{
    proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    proxy_next_upstream off; proxy_read_timeout 600s; }} }} }}
"""


def until(true: Callable[[], object], what: str, seconds: float = READY) -> None:
    """Waits until something is so."""
    ends = time.monotonic() + seconds
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError(what)
        time.sleep(0.05)


@dataclass(slots=True)
class Replica:
    """`plimsoll serve` of a checkout, with a data port and an admin port of its own."""

    settings: Mapping[str, str]
    home: Path
    port: int = field(default_factory=reserved_port)
    admin_port: int = field(default_factory=reserved_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Its log, of all its lives."""
        return self.home / f"{self.port}.log"

    def start(self, folder: Path) -> None:
        """Starts the version in a folder, and waits until it is ready."""
        ports = {"PLIMSOLL_PORT": str(self.port), "PLIMSOLL_ADMIN_PORT": str(self.admin_port)}
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        command = [sys.executable, "-m", "proxy.cli", "serve"]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env={**kept, **self.settings, **ports}, cwd=folder, stdout=out, stderr=out
            )
        until(lambda: self.is_ready() or self.exited() is not None, "a replica does not start")
        if self.exited() is not None:
            raise RuntimeError(self.log.read_text()[-2000:])

    def exited(self) -> int | None:
        """The exit code."""
        return None if self.process is None else self.process.poll()

    def is_ready(self) -> bool:
        """What Kubernetes asks."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.admin("/readyz")[0] == 200
        return False

    def admin(self, path: str) -> tuple[int, bytes]:
        """The answer of the admin port."""
        return asked(self.admin_port, "GET", path, headers={"x-plimsoll-admin": "1"})

    def metric(self, name: str, part: str = "") -> float:
        """The sum of the samples of a metric whose labels contain a text."""
        lines = self.admin("/metrics")[1].decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.partition(" ")[0].partition("{")[0] == name)
        return sum(float(value) for labels, _, value in found if part in labels)

    def kill(self) -> None:
        """Ends it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def asked(
    port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


@dataclass(slots=True)
class Balancer:
    """nginx before the replicas."""

    home: Path
    port: int = field(default_factory=reserved_port)
    process: subprocess.Popen[bytes] | None = None

    def use(self, replicas: list[Replica]) -> None:
        """The endpoints from now on. What is under way goes on as it began."""
        servers = " ".join(f"server 127.0.0.1:{replica.port} max_fails=0;" for replica in replicas)
        config = self.home / "nginx.conf"
        config.write_text(CONFIG.format(home=self.home, port=self.port, servers=servers))
        if self.process is None:
            command = ["nginx", "-c", str(config), "-e", str(self.home / "nginx.err")]
            self.process = subprocess.Popen(command)
            until(self._listens, "nginx does not start")
            return
        before = self._workers()
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self._workers() - before, "nginx does not reload")

    def _workers(self) -> set[str]:
        assert self.process is not None
        pid = self.process.pid
        return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def _listens(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return asked(self.port, "GET", "/nothing")[0] > 0
        return False

    def stop(self) -> None:
        """Ends it at once."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


@dataclass(slots=True)
class Load:
    """What is sent, and what came of it."""

    port: int
    chunks: int
    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    over: bool = False

    async def send(self, what: str) -> None:
        """One request (`request`, `stream`) on a connection of its own; its answer must be whole and right."""
        self.counts[f"{what} begun"] += 1
        began, got = time.monotonic(), b""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self._raw(what))
            try:
                got = await reader.read(-1)
            finally:
                writer.close()
        except OSError as error:
            self.lost.append(f"{what}: {error!r} after {time.monotonic() - began:.2f} s")
            return
        if self._is_right(what, got):
            self.counts[what] += 1
        else:
            self.lost.append(f"{what}: after {time.monotonic() - began:.2f} s: {got[:300]!r} ... {got[-60:]!r}")

    def _raw(self, what: str) -> bytes:
        body = {"model": MODEL, "stream": what == "stream", "max_tokens": self.chunks}
        raw = json.dumps({**body, "messages": talk(6)}, separators=(",", ":")).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: balancer\r\ncontent-type: application/json\r\nconnection: close\r\n"
        return f"{head}authorization: Bearer sk-test\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw

    def _is_right(self, what: str, got: bytes) -> bool:
        head, _, body = got.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            return False
        if what == "stream":
            return body.count(b'"content":" word"') == self.chunks and body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        with contextlib.suppress(ValueError, KeyError):
            return bool(json.loads(body)["choices"][0]["message"]["content"] == "Hello there")
        return False

    async def run(self, requests: int, rate: float) -> None:
        """So many requests, and further ones until the load is over, at a rate in 1/s."""
        slots, tasks, began = asyncio.Semaphore(AT_ONCE), set[asyncio.Task[None]](), time.monotonic()

        async def one() -> None:
            async with slots:
                await self.send("request")

        count = 0
        while count < requests or not self.over:
            await asyncio.sleep(max(0.0, began + count / rate - time.monotonic()))
            tasks.add(task := asyncio.create_task(one()))
            task.add_done_callback(tasks.discard)
            count += 1
        await asyncio.gather(*tasks)


@dataclass(slots=True)
class Rolling:
    """The replicas, what is before them, and what was seen of their restarts."""

    replicas: list[Replica]
    balancer: Balancer
    load: Load
    pre_stop: float
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def restart(self, replica: Replica, folder: Path) -> None:
        """Replaces one replica by the version in a folder."""
        assert replica.process is not None
        self.balancer.use([other for other in self.replicas if other is not replica])
        time.sleep(self.pre_stop)
        under_way, began = replica.metric("plimsoll_requests_in_flight"), time.monotonic()
        replica.process.send_signal(signal.SIGTERM)
        until(lambda: not replica.is_ready(), "a replica stays ready")
        code = replica.process.wait(DRAIN + READY)
        drained = time.monotonic() - began
        replica.start(folder)
        self.balancer.use(self.replicas)
        self.notes.append(f"{under_way:.0f} requests under way at SIGTERM, exit {code} after {drained:.1f} s")
        if code:
            self.problems.append(f"a replica ended with {code}")

    async def roll(self, requests: int, streams: int, rate: float, folder: Path) -> None:
        """Restarts all replicas under load: an equal part of the streams begins before each restart."""
        work = [asyncio.create_task(self.load.run(requests, rate))]
        for number, replica in enumerate(self.replicas):
            share = streams // len(self.replicas) + (streams % len(self.replicas) if number == 0 else 0)
            work += [asyncio.create_task(self.load.send("stream")) for _ in range(share)]
            await asyncio.sleep(1.0)
            await asyncio.to_thread(self.restart, replica, folder)
        self.load.over = True
        await asyncio.gather(*work)

    def judge(self) -> list[str]:
        """What was not as it must be."""
        found = [*self.problems, *(f"lost {line}" for line in self.load.lost[:20])]
        for replica in self.replicas:
            lines = replica.log.read_text(errors="replace").splitlines()
            found += [f"log: {line}" for line in lines if "Traceback" in line or "a bug of ours" in line]
        return found


@contextlib.contextmanager
def stage(before: Path, seconds: float, pre_stop: float) -> Iterator[Rolling]:
    """Two replicas of the version in a folder with a Redis, before an upstream, behind nginx."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-rolling-")))
        redis, upstream = stack.enter_context(redis_server()), reserved_port()
        behind = subprocess.Popen([sys.executable, "-m", "tests.bench.upstream", str(upstream), str(PACE)], cwd=ROOT)
        stack.callback(behind.wait)
        stack.callback(behind.kill)
        settings = settings_of(f"http://127.0.0.1:{upstream}/v1", redis.url)
        replicas = [Replica(settings, home) for _ in range(2)]
        for replica in replicas:
            stack.callback(replica.kill)
            replica.start(before)
        balancer = Balancer(home)
        stack.callback(balancer.stop)
        balancer.use(replicas)
        yield Rolling(replicas, balancer, Load(balancer.port, max(2, round(seconds / PACE))), pre_stop)


def settings_of(upstream: str, redis: str) -> dict[str, str]:
    """The settings of a replica."""
    shared = {"PLIMSOLL_REDIS": redis, "PLIMSOLL_SECRET": "a secret of the replicas", "PLIMSOLL_HOSTS": "replicas"}
    return {"PLIMSOLL_UPSTREAM": upstream, "PLIMSOLL_DRAIN": str(DRAIN), "PLIMSOLL_LOG": "json", **shared}


def rolled(
    requests: int, streams: int, rate: float, seconds: float, before: Path = ROOT, pre_stop: float = PRE_STOP
) -> Rolling:
    """What came of a rolling restart from the version in `before` to this one."""
    with stage(before, seconds, pre_stop) as rolling:
        asyncio.run(rolling.roll(requests, streams, rate, ROOT))
        rolling.problems = rolling.judge()
        return rolling


def unread(before: Path) -> list[str]:
    """What one of two versions on one Redis does not know of the other."""
    windows = {"old": 4_096, "new": 4_096}
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-rolling-")))
        redis = stack.enter_context(redis_server())
        port = stack.enter_context(
            listening(simulator(SimulatorConfig(window=10**6, windows=windows, window_field="")))
        )
        settings = settings_of(f"http://127.0.0.1:{port}/v1", redis.url)
        replicas = {name: Replica(settings, home) for name in windows}
        for name, folder in (("old", before), ("new", ROOT)):
            stack.callback(replicas[name].kill)
            replicas[name].start(folder)
        found = []
        for one, other in (("old", "new"), ("new", "old")):
            found += _unread(replicas[one], replicas[other], one)
        foreign = sum(
            replica.metric("plimsoll_cache_troubles_total", 'kind="foreign"') for replica in replicas.values()
        )
        return [*found, *([f"{foreign:.0f} records of the other version are foreign"] if foreign else [])]


def _unread(one: Replica, other: Replica, model: str) -> list[str]:
    """What `other` does not know after `one` was refused for the length of a request, and counted long ones."""
    chat(one, model, talk(100))
    texts = itertools.count()
    knowledge: dict[str, Callable[[], object]] = {
        "limit": lambda: chat(other, model, talk(2)) == 200 and limits(other, model) == limits(one, model) != [],
        "counts": lambda: _shares_counts(one, other, f"{model} {next(texts)}"),
    }
    found = []
    for what, known in knowledge.items():
        try:
            until(known, what, KNOWN)
        except TimeoutError:
            found.append(f"the {what} of the {model} version")
    return found


def _shares_counts(one: Replica, other: Replica, text: str) -> bool:
    """Whether `other` finds the counts that `one` makes of a new conversation."""
    long = [{"role": "user", "content": f"{text} {i} {sentence(i, 2_500)}"} for i in range(4)]
    chat(one, NEAR, long)
    time.sleep(0.5)  # until they are written
    hits = redis_hits(other)
    chat(other, NEAR, long)
    return redis_hits(other) >= hits + len(long)


def redis_hits(replica: Replica) -> float:
    """How often Redis knew what a replica asked for."""
    return replica.metric("plimsoll_cache_lookups_total", 'result="hit",tier="redis"')


def chat(replica: Replica, model: str, messages: list[dict[str, str]]) -> int:
    """The status of one chat."""
    body = json.dumps({"model": model, "max_tokens": 100, "messages": messages}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test"}
    return asked(replica.port, "POST", CHAT, body, headers)[0]


def limits(replica: Replica, model: str) -> list[tuple[str, float]]:
    """The limits that a replica knows of a model."""
    told = json.loads(replica.admin(f"/learned?model={model}")[1])
    return sorted((one["kind"], one["value"]) for one in told["limits"])


def main() -> int:
    """Prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=250.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a stream")
    parser.add_argument("--before", type=checkout, help="a checkout of the version that is replaced")
    parser.add_argument(
        "--pre-stop", type=float, default=PRE_STOP, help="seconds from the endpoints' change to SIGTERM"
    )
    given = parser.parse_args()
    if shutil.which("nginx") is None:
        print("nginx is not installed")
        return 2
    before = (given.before or ROOT).resolve()
    done = rolled(given.requests, given.streams, given.rate, given.seconds, before, given.pre_stop)
    problems = list(done.problems)
    for note in done.notes:
        print(note)
    counts = done.load.counts
    print(
        f"{counts['request']} of {counts['request begun']} requests and {counts['stream']} of "
        f"{counts['stream begun']} streams; lost {len(done.load.lost)}"
    )
    if given.before:
        missing = unread(before)
        print("records of both versions are read by both" if not missing else "not read:")
        problems += missing
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
