"""Whether the proxy survives failures: all kinds of traffic, while Redis, the upstream and a worker are killed in turn.

python -m tests.bench.soak [--seconds 1800] [--rate 60] [--every 20] [--clients 24] [--viewers 20]

Two workers and a Redis. Each request must get the answer that is right for its moment: a 502, a 504 or a stream that
breaks off visibly is right only while the upstream is gone; a connection that breaks is right only where a worker was
killed, and such are counted. In the end nothing may be under way, and the worker that was never killed may hold no more
memory and no more files than it did once it was warm.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.simulator.app import simulator
from tests.e2e.services import sentence, talk
from tests.e2e.world import listening
from tests.hostile.harness import CHAT, Running, running_anew
from tests.makers import tool_round
from tests.ports import reserved_port
from tests.redis_server import RedisServer, redis_server

BACK = 4.0  # seconds after a kill in which what it broke may still be met
ANSWER = 60.0  # seconds that an answer may take before it is lost
SETTLED = 30.0  # seconds that the proxy has in the end to be at nothing
WARM = 0.4  # of the time: what is remembered fills up before
GROWTH_MB = 24.0  # of a worker after it is warm
FILES = 40  # the same, of its file descriptors: connections come and go
WEBSOCKET = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n"
GONE = (502, 503, 504)
OWN = ("inspect", "metrics")  # kinds of requests for the proxy itself


# The upstream: the simulator, and WebSockets that say what they are told.


def serve_upstream(port: int) -> None:
    """Serves until it is killed."""

    async def piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(inner: int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first = await reader.read(65_536)
            if b"upgrade: websocket" in first.lower():
                writer.write(WEBSOCKET + first.partition(b"\r\n\r\n")[2])
                await piped(reader, writer)
                return
            there, back = await asyncio.open_connection("127.0.0.1", inner)
            back.write(first)
            await asyncio.gather(piped(reader, back), piped(there, writer))

        server = await asyncio.start_server(connected, "127.0.0.1", port)
        await server.serve_forever()

    with listening(simulator()) as inner:
        asyncio.run(serve(inner))


# What is asked, and what is right.


@dataclass(frozen=True, slots=True)
class Got:
    """An answer; `whole` says whether it came to its end."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: its bytes, how often it is made among all, and whether an answer is right."""

    name: str
    weight: int
    raw: Callable[[random.Random], bytes]
    right: Callable[[Got], bool]


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """A request's bytes."""
    told = ("host: localhost", "authorization: Bearer sk-soak", "content-type: application/json", *headers)
    return "\r\n".join((f"{method} {path} HTTP/1.1", *told, f"content-length: {len(body)}", "", "")).encode() + body


def chat(chance: random.Random, messages: Sequence[Mapping[str, Any]], *headers: str, **fields: Any) -> bytes:
    """A chat, one of two hundred of its kind."""
    said = [*messages, {"role": "user", "content": f"Question {chance.randrange(200)}?"}]
    return request(CHAT, json.dumps({"model": "gpt-4", **fields, "messages": said}).encode(), *headers)


def packed(chance: random.Random) -> bytes:
    """A chat in gzip."""
    raw = chat(chance, talk(20))
    return request(CHAT, gzip.compress(raw.partition(b"\r\n\r\n")[2]), "content-encoding: gzip")


def upload(chance: random.Random) -> bytes:
    """A body in chunks that is passed through."""
    size = chance.randrange(1, 40)
    head = request("/v1/files").replace(b"content-length: 0", b"transfer-encoding: chunked")
    return head + b"".join(b"8000\r\n%b\r\n" % (b"x" * 32_768) for _ in range(size)) + b"0\r\n\r\n"


def websocket(chance: random.Random) -> bytes:
    """A handshake, and bytes behind it."""
    wish = ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA==")
    return request("/v1/realtime?model=x", b"", *wish, method="GET").replace(b"content-length: 0\r\n", b"")


def agent(chance: random.Random) -> bytes:
    """A run of tools that is cut."""
    rounds = [m for i in range(40) for m in tool_round(f"call_{i}", sentence(i + chance.randrange(5), 300))]
    return chat(chance, [{"role": "user", "content": "Go on."}, *rounds])


def answered(got: Got) -> bool:
    """A chat's answer, whole."""
    return got.status == 200 and b'"choices"' in got.body


def cut(got: Got) -> bool:
    """The same, of a request that was cut."""
    return answered(got) and "x-plimsoll-steps" in got.headers


def streamed(got: Got) -> bool:
    """A stream to its end."""
    return got.status == 200 and got.body.rstrip().endswith(b"data: [DONE]")


def status(*wanted: int) -> Callable[[Got], bool]:
    """An answer with one of these."""
    return lambda got: got.status in wanted


LONG = "x-sim-window: 3000"  # the upstream's own, of which the proxy knows nothing
KINDS = (
    Kind("plain", 25, lambda c: chat(c, talk(4)), answered),
    Kind("stream", 15, lambda c: chat(c, talk(4), stream=True), streamed),
    Kind("slow stream", 6, lambda c: chat(c, talk(4), "x-sim-chunk-delay: 0.1", stream=True), streamed),
    Kind("cut", 8, lambda c: chat(c, talk(250)), cut),
    Kind("cut stream", 4, lambda c: chat(c, talk(250), stream=True), streamed),
    Kind("healed", 4, lambda c: chat(c, talk(100), LONG, "authorization: Bearer sk-small"), status(200)),
    Kind("tools", 4, agent, cut),
    Kind("gzip", 5, packed, answered),
    Kind("upload", 5, upload, status(404)),
    Kind("websocket", 4, websocket, status(101)),
    Kind("bad", 5, lambda c: request(CHAT, b'{"model": "gpt-4", "messages": [{"role":'), status(400)),
    Kind("bad http", 2, lambda c: b"GET /v1/x HTTP/1.1\r\nbad header\r\n\r\n", status(400)),
    Kind("models", 5, lambda c: request("/v1/models", method="GET"), status(200)),
    Kind("window", 5, lambda c: chat(c, talk(100), "x-plimsoll-window: 2000", "x-plimsoll-ladder: chat"), cut),
    Kind("observe", 3, lambda c: chat(c, talk(20), "x-plimsoll-mode: observe"), answered),
    Kind("wrong mode", 2, lambda c: chat(c, talk(4), "x-plimsoll-mode: nonsense"), status(400)),
    Kind("inspect", 2, lambda c: chat(c, talk(100)).replace(b"POST /v1", b"POST /inspect/v1", 1), status(200)),
    Kind("metrics", 1, lambda c: request("/metrics", method="GET"), status(200)),
)


# The day.


@dataclass(slots=True)
class Day:
    """What runs, what was killed and when, and what came of each request."""

    proxy: Running
    redis: RedisServer
    upstream: subprocess.Popen[bytes]
    upstream_port: int
    chance: random.Random
    kills: dict[str, list[list[float]]] = field(default_factory=lambda: {"redis": [], "upstream": [], "worker": []})
    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    samples: list[tuple[float, float, int]] = field(default_factory=list)
    watched: int = 0
    over: bool = False

    def met(self, what: str, began: float) -> bool:
        """Whether something was gone at some time since `began`."""
        return any(end + BACK >= began for _, end in self.kills[what])

    def judge(self, kind: Kind, got: Got | None, began: float) -> None:
        """Counts what came of one request."""
        if got is not None and got.whole and kind.right(got):
            self.counts["right"] += 1
        elif got is not None and got.whole and got.status in GONE and self.met("upstream", began):
            self.counts["refused while the upstream was gone"] += 1
        elif got is not None and not got.whole and self.met("upstream", began):
            self.counts["broken off with the upstream"] += 1
        elif (got is None or not got.whole) and self.met("worker", began):
            self.counts["on a worker that was killed"] += 1
        else:
            told = "nothing" if got is None else f"{got.status} whole={got.whole} {got.body[:200]!r}"
            self.lost.append(f"{time.monotonic() - began:.2f} s {kind.name}: {told}")


async def read_answer(reader: asyncio.StreamReader, websocket: bool) -> Got | None:
    """An answer, as far as it came; None where nothing did."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    status = int(lines[0].split(" ")[1])
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:])}
    body = b""
    try:
        if websocket and status == 101:
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return Got(status, headers, body, whole=False)
    return Got(status, headers, body)


async def context(day: Day, kind: Kind) -> None:
    """One request on a connection of its own; some clients leave before they have their answer."""
    raw, began = kind.raw(day.chance), time.monotonic()
    port = (kind.name in OWN and day.proxy.admin_port) or day.proxy.port
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    except OSError as error:
        day.lost.append(f"{kind.name}: no connection: {error}")
        return
    try:
        if day.chance.random() < 0.06:
            writer.write(raw[: day.chance.randrange(len(raw))] if day.chance.random() < 0.5 else raw)
            await asyncio.sleep(day.chance.random() * 0.05)
            day.counts["given up by the client"] += 1
            writer.transport.abort() if day.chance.random() < 0.5 else writer.close()
            return
        writer.write(raw)
        async with asyncio.timeout(ANSWER):
            got = await read_answer(reader, kind.name == "websocket")
            if got is not None and got.status == 101:
                writer.write(b"\x81\x85abcdhello")
                got = Got(101, got.headers, await reader.readexactly(11))
        day.judge(kind, got, began)
    except (asyncio.IncompleteReadError, ConnectionError):
        day.judge(kind, None, began)
    except TimeoutError:
        day.lost.append(f"{kind.name}: no answer in {ANSWER:g} s")
    finally:
        writer.close()


async def client(day: Day, pause: float) -> None:
    """Requests, one after another."""
    weights = [kind.weight for kind in KINDS]
    while not day.over:
        (kind,) = day.chance.choices(KINDS, weights)
        await context(day, kind)
        await asyncio.sleep(day.chance.expovariate(1 / pause))


def upstream_process(port: int) -> subprocess.Popen[bytes]:
    """The upstream as a process that may be killed; it listens when this returns."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.soak", "--upstream", str(port)])
    for _ in range(600):
        with (
            contextlib.suppress(OSError),
            contextlib.closing(socket.create_connection(("127.0.0.1", port))),
        ):
            return process
        time.sleep(0.05)
    raise RuntimeError("the upstream did not start")


async def kill(day: Day, what: str) -> None:
    """Kills one thing, and brings it back."""
    span = [time.monotonic(), float("inf")]
    day.kills[what].append(span)
    if what == "redis":
        day.redis.kill()
        await asyncio.sleep(2)
        await asyncio.to_thread(day.redis.start)
    elif what == "upstream":
        day.upstream.kill()
        day.upstream.wait()
        await asyncio.sleep(1)
        day.upstream = await asyncio.to_thread(upstream_process, day.upstream_port)
    else:
        victim = day.proxy.workers[-1]  # the first lives through the day: its memory is what is looked at
        os.kill(victim, signal.SIGKILL)
        while len(day.proxy.workers) < 2 or victim in day.proxy.workers:
            await asyncio.sleep(0.05)
    span[1] = time.monotonic()


async def killing(day: Day, every: float) -> None:
    """Kills one thing after another."""
    turn = 0
    while not day.over:
        await asyncio.sleep(every)
        if not day.over:
            await kill(day, ("redis", "upstream", "worker")[turn % 3])
            turn += 1


async def sampling(day: Day, survivor: int) -> None:
    """Looks at the worker that is never killed."""
    while not day.over:
        with open(f"/proc/{survivor}/statm") as statm:
            memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        day.samples.append((time.monotonic(), memory, len(os.listdir(f"/proc/{survivor}/fd"))))
        await asyncio.sleep(1)


async def viewing(day: Day, slow: bool) -> None:
    """Watches the page's events, and comes back when the worker that sends them is killed."""
    while not day.over:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", day.proxy.admin_port, limit=1 << 16)
            writer.write(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while not day.over and await _more(reader):
                day.watched += 1
                await asyncio.sleep(5.0 if slow else 0.0)
            writer.close()
        await asyncio.sleep(0.5)


async def _more(reader: asyncio.StreamReader) -> bool:
    """Whether the stream goes on: it has an event or a comment at least every 15 seconds."""
    try:
        async with asyncio.timeout(20):
            return bool(await reader.read(1 << 16))
    except TimeoutError:
        return False


async def live(day: Day, seconds: float, rate: float, every: float, clients: int, viewers: int) -> None:
    """The day. Every second viewer reads slowly."""
    survivor = day.proxy.workers[0]
    work: list[Awaitable[None]] = [client(day, clients / rate) for _ in range(clients)]
    work += [viewing(day, slow=bool(number % 2)) for number in range(viewers)]
    tasks = [asyncio.ensure_future(w) for w in (*work, killing(day, every), sampling(day, survivor))]
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        await asyncio.sleep(min(30.0, left))
        left = max(0.0, ends - time.monotonic())
        _, memory, files = day.samples[-1]
        print(
            f"{seconds - left:6.0f} s  {memory:.0f} MB  {files} files  {dict(day.counts)}  lost {len(day.lost)}",
            flush=True,
        )
    day.over = True
    await asyncio.gather(*tasks)


def grown(samples: list[float]) -> float:
    """By how much the last tenth is over what it was when it was warm."""
    warm = samples[int(WARM * len(samples)) :]
    tenth = max(1, len(warm) // 5)
    return statistics.median(warm[-tenth:]) - statistics.median(warm[:tenth])


def problems(day: Day) -> Iterator[str]:
    """What was not as it must be."""
    for line in day.lost[:20]:
        yield f"lost: {line}"
    memory, files = grown([m for _, m, _ in day.samples]), grown([float(f) for _, _, f in day.samples])
    print(f"after it was warm: {memory:+.1f} MB, {files:+.0f} files")
    if memory > GROWTH_MB:
        yield f"memory grew by {memory:.0f} MB"
    if files > FILES:
        yield f"{files:.0f} more files are open"
    until = time.monotonic() + SETTLED
    while (left := day.proxy.metric("plimsoll_requests_in_flight")) and time.monotonic() < until:
        time.sleep(0.2)
    if left:
        yield f"{left:g} requests are still under way"
    for line in day.proxy.lines:
        if "Traceback" in line or "a bug of ours" in line or "never retrieved" in line or "failed:" in line:
            yield f"log: {line}"


def main() -> int:
    """Prints how the day went; exit code 1 where something was not as it must be."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=1800.0)
    arguments.add_argument("--rate", type=float, default=60.0, help="requests a second")
    arguments.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    arguments.add_argument("--clients", type=int, default=24)
    arguments.add_argument("--viewers", type=int, default=20, help="viewers of the page, every second one slow")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--upstream", type=int, default=0, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.upstream:
        serve_upstream(given.upstream)
    port = reserved_port()
    process = upstream_process(port)
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        settings = {"PLIMSOLL_REDIS": redis.url, "PLIMSOLL_SECRET": "s" * 32}
        proxy = stack.enter_context(
            running_anew(f"http://127.0.0.1:{port}/v1", workers=2, admin=bool(given.viewers), **settings)
        )
        day = Day(proxy, redis, process, port, random.Random(given.seed))
        stack.callback(lambda: day.upstream.kill())
        asyncio.run(live(day, given.seconds, given.rate, given.every, given.clients, given.viewers))
        found = list(problems(day))
        if given.viewers:
            print(f"{given.viewers} viewers read {day.watched} times")
        kills = {what: len(spans) for what, spans in day.kills.items()}
        print(f"{sum(day.counts.values())} requests: {dict(day.counts)}; killed {kills}; lost {len(day.lost)}")
        code = proxy.stop()
        found += [f"it ended with {code}"] if code else []
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
