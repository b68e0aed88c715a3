"""Whether a crowd is served: a thousand idle clients and five hundred streams at once, and short requests meanwhile.

python -m tests.bench.crowd [--idle 1000] [--streams 500]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

from tests.bench.systems import HOME, PATH, System, plimsoll, upstream
from tests.bench.upstream import CHUNKS

PACE = 0.05  # seconds between a stream's chunks, as a quick model's tokens come
SHORT = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'
STREAM = b'{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}'
HEAD = "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


async def post(port: int, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a request was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD.format(PATH, len(body)).encode() + body)
    return reader, writer


async def whole(reader: asyncio.StreamReader) -> bool:
    """Reads an answer that has a length; whether it is a good one."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    return head.startswith(b"HTTP/1.1 200")


async def idle(port: int) -> asyncio.StreamWriter:
    """A client that asked once, and stays."""
    reader, writer = await post(port, SHORT)
    assert await whole(reader)
    return writer


async def streamed(port: int, at: float) -> tuple[float, int, float]:
    """One stream that begins at a time of its own: seconds to its first byte, its events, its longest gap."""
    await asyncio.sleep(at)
    began = last = time.perf_counter()
    reader, writer = await post(port, STREAM)
    first, gap, seen = 0.0, 0.0, b""
    while not seen.endswith(b"0\r\n\r\n"):
        data = await reader.read(65_536)
        now = time.perf_counter()
        assert data, "the stream broke off"
        gap, first = (max(gap, now - last), first) if first else (0.0, now - began)
        last, seen = now, seen + data
    writer.close()
    return first, seen.count(b"data: "), gap


async def asked(port: int, seconds: float) -> list[float]:
    """What short requests take, one after another on one connection."""
    reader, writer = await post(port, SHORT)
    await whole(reader)
    took: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(HEAD.format(PATH, len(SHORT)).encode() + SHORT)
        assert await whole(reader)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    writer.close()
    return took


def told(name: str, seconds: list[float]) -> str:
    """A row of figures in milliseconds."""
    ranked = sorted(1000 * s for s in seconds)
    return f"{name:34} p50 {statistics.median(ranked):7.2f}  p99 {ranked[int(0.99 * len(ranked))]:7.2f} ms"


async def crowd(system: System, clients: int, streams: int) -> int:
    """Prints what the crowd met; the number of streams that were not whole."""
    empty = system.memory_mb()
    alone = await asked(system.port, 3.0)
    staying = [await idle(system.port) for _ in range(clients)]
    beside_idle = await asked(system.port, 3.0)
    with_idle = system.memory_mb()
    spread = CHUNKS * PACE / 2  # so that all run at once for half of their time
    running = [asyncio.create_task(streamed(system.port, i * spread / streams)) for i in range(streams)]
    await asyncio.sleep(spread)
    beside_streams = await asked(system.port, spread * 0.8)
    ends = await asyncio.gather(*running)
    crowded = system.memory_mb()
    for writer in staying:
        writer.close()
    broken = sum(events != CHUNKS + 2 for _, events, _ in ends)
    print(told("short requests alone", alone))
    print(told(f"beside {clients} idle clients", beside_idle))
    print(told(f"beside these and {streams} streams", beside_streams))
    print(told("first byte of a stream", [first for first, _, _ in ends]))
    print(told(f"longest gap in a stream ({PACE * 1000:.0f} sent)", [gap for _, _, gap in ends]))
    print(f"memory: {empty:.0f} MB empty, {with_idle:.0f} with idle clients, {crowded:.0f} with streams")
    print(f"streams that were not whole: {broken} of {streams}")
    return broken


def main() -> int:
    """Exit code 1 where a stream was not whole."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--idle", type=int, default=1000)
    arguments.add_argument("--streams", type=int, default=500)
    given = arguments.parse_args()
    HOME.mkdir(exist_ok=True)
    running: list[System] = []
    try:
        running.append(upstream(19100, PACE))
        running.append(plimsoll(19101, 19100))
        return 1 if asyncio.run(crowd(running[1], given.idle, given.streams)) else 0
    finally:
        for system in running:
            system.stop()


if __name__ == "__main__":
    sys.exit(main())
