"""What the page costs: CPU time of a request of 1 KB without a page, with one that nobody looks at, and with viewers.

python -m tests.bench.page [--rounds 5] [--viewers 1]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.redis_server import free_port

PROCESSES = 2  # of each kind: two of one kind differ, too
REQUESTS, CLIENTS = 8_000, 16  # some seconds: the events come once a second
BODY = json.dumps({"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "harbour " * 115}]})
UPSTREAM = Path(__file__).with_name("upstream.py")


async def post(port: int, count: int) -> None:
    """Sends requests one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n"
    for _ in range(count):
        writer.write((head + BODY).encode())
        top = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(top.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
    writer.close()


async def load(port: int) -> None:
    """All requests of a round."""
    await asyncio.gather(*(post(port, REQUESTS // CLIENTS) for _ in range(CLIENTS)))


async def view(port: int) -> None:
    """Looks at the page's events until it is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    while await reader.read(1 << 20):
        pass


async def measured(pid: int, port: int, admin: int, viewers: int) -> float:
    """CPU microseconds of a process for each request of one round, with viewers; those of what the viewers get in the
    time of the round are in it."""
    watching = [asyncio.create_task(view(admin)) for _ in range(viewers)]
    if viewers:
        await asyncio.sleep(1.5)
    before = cpu_us(pid)
    await load(port)
    spent = cpu_us(pid) - before
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    return spent / (REQUESTS // CLIENTS * CLIENTS)


def cpu_us(pid: int) -> float:
    """CPU time of all threads of a process, in microseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e3


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def wait_for(port: int) -> None:
    """Waits until something listens."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


@contextlib.contextmanager
def started(*command: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended at the end."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def proxy(stack: contextlib.ExitStack, environ: dict[str, str], *flags: str) -> tuple[int, int, int]:
    """A proxy: its process, its port and its admin port (0: none). `flags`: those that take a port, too."""
    port, admin = free_port(), free_port() if flags else 0
    more = [text for flag in flags for text in (flag, str(admin))]
    command = (sys.executable, "-m", "proxy.cli", "serve", "--port", str(port), *more)
    return stack.enter_context(started(*command, env=environ)).pid, port, admin


def main() -> None:
    """Prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--viewers", type=int, default=1)
    asked = parser.parse_args()
    upstream = free_port()
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ["PLIMSOLL_UPSTREAM"] = f"http://127.0.0.1:{upstream}/v1"
    with contextlib.ExitStack() as stack:
        stack.enter_context(started(sys.executable, str(UPSTREAM), str(upstream), "0.0002", env=environ))
        without = [proxy(stack, environ) for _ in range(PROCESSES)]
        shown = [proxy(stack, environ, "--admin-port") for _ in range(PROCESSES)]
        for port in (upstream, *(port for one in (*without, *shown) for port in one[1:] if port)):
            wait_for(port)
        ways = {"none": (without, 0), "closed": (shown, 0), "open": (shown, asked.viewers)}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for place in range(asked.rounds + 1):  # the first warms up
            for way, (processes, viewers) in ways.items():
                spent = [asyncio.run(measured(*process, viewers)) for process in processes]
                if place:
                    found[way].append(statistics.mean(spent))
        for way, figures in found.items():
            pairs = [one / base for one, base in zip(figures, found["none"], strict=True)]
            print(f"page {way}: {min(figures):.1f} us a request, {statistics.median(pairs):.3f} of none (median)")
        print(f"resident: {resident_mb(without[0][0]):.1f} MB without, {resident_mb(shown[0][0]):.1f} MB with the page")


if __name__ == "__main__":
    main()
