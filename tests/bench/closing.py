"""POSTs through the proxy before upstreams that announce keep-alive and close: how many fail, how many go out twice.

    python -m tests.bench.closing [--requests N] [--clients N]

The last row is an upstream that keeps its connections: what its rate is, and how many connections it took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.hostile.harness import CHAT, HELLO, ok, running_anew, upstream
from tests.recorder import EVENTS, Peer, Request, Script, chunk
from tests.serving import dialling, post

STREAM = EVENTS + chunk(b'data: {"choices":[]}\n\n') + chunk(b"data: [DONE]\n\n") + chunk(b"")


async def at_once(peer: Peer) -> None:
    """A FIN right behind the answer."""
    peer.close()


async def soon(peer: Peer) -> None:
    """A FIN one millisecond later."""
    await asyncio.sleep(0.001)
    peer.close()


async def reset(peer: Peer) -> None:
    """A RST right behind the answer."""
    peer.reset()


async def never(peer: Peer) -> None:
    """The connection stays."""


ENDS: Mapping[str, Callable[[Peer], Awaitable[None]]] = {"at once": at_once, "after 1 ms": soon, "reset": reset}


def closing(end: Callable[[Peer], Awaitable[None]], streams_only: bool = False) -> Script:
    """The script of an upstream that ends connections so, after every answer or only after streams."""

    async def script(request: Request, peer: Peer) -> None:
        streamed = b'"stream": true' in request.body
        await peer.send(STREAM if streamed else ok())
        if streamed or not streams_only:
            await end(peer)

    return script


@dataclass(frozen=True, slots=True)
class Told:
    """What became of so many POSTs: the statuses that clients got, how often each body reached the upstream, the
    connections that it took, and seconds."""

    statuses: Counter[int]
    bodies: Counter[bytes]
    connections: int
    seconds: float

    @property
    def failed(self) -> int:
        """Answers that were no 200."""
        return self.statuses.total() - self.statuses[200]

    @property
    def twice(self) -> int:
        """Bodies that reached the upstream more than once."""
        return sum(count > 1 for count in self.bodies.values())


async def load(port: int, requests: int, clients: int, streams: int) -> Counter[int]:
    """Statuses of POSTs back to back, each client on a connection of its own; every `streams`-th asks for a stream
    (0: none)."""
    numbers = iter(range(requests))
    statuses: Counter[int] = Counter()

    async def client() -> None:
        async with dialling(port) as talk:
            for number in numbers:
                body = {**HELLO, "user": f"n{number}", "stream": bool(streams and number % streams == 0)}
                await talk.send(post(json.dumps(body).encode(), target=CHAT.encode()))
                statuses[(await talk.reply()).status] += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return statuses


def told(script: Script, requests: int = 2000, clients: int = 12, streams: int = 0, workers: int = 1) -> Told:
    """Runs the load before an upstream with this script."""
    with upstream(script) as up, running_anew(up.url, workers=workers) as proxy:
        began = time.monotonic()
        statuses = asyncio.run(load(proxy.port, requests, clients, streams))
        took = time.monotonic() - began
        bodies = Counter(request.body for request in up.requests if request.method == b"POST")
        return Told(statuses, bodies, up.connections, took)


def main() -> None:
    """Prints a row for each kind of upstream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=12)
    given = parser.parse_args()
    rows = [(f"closes after answers, {name}", closing(end), 0) for name, end in ENDS.items()]
    rows += [(f"closes after streams, {name}", closing(end, streams_only=True), 1) for name, end in ENDS.items()]
    rows += [("closes after streams, every other", closing(at_once, streams_only=True), 2)]
    rows += [("keeps its connections", closing(never), 0), ("keeps, streams", closing(never), 1)]
    for name, script, streams in rows:
        got = told(script, given.requests, given.clients, streams)
        print(
            f"{name:36} failed {got.failed:5} of {given.requests}, sent twice {got.twice}, "
            f"connections {got.connections:5}, {given.requests / got.seconds:6.0f}/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
