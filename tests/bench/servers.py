"""CPU per request of ASGI servers with one minimal application: ours, uvicorn and granian.

    python -m tests.bench.servers [--seconds 3] [--rounds 3]

The others are installed into an environment of their own below .bench; the project depends on neither. Every server is
one process with one worker on one core; wrk on the other core sends the requests of `make bench`. `ours, as used` has
the same application with what our cycle offers beside ASGI, as the proxy uses it. The rounds are interleaved; the least
of each counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from proxy.apis import error_body
from proxy.http.receiving import cycle_of
from proxy.http.server.serve import Config, Server
from tests.bench.__main__ import machine, row
from tests.bench.loads import Case, measured
from tests.bench.minimal_app import ANSWER, CHUNK, CHUNKS, STREAM, WHOLE, app
from tests.bench.systems import HOME, System, need, started

UVICORN, GRANIAN = "0.54.0", "2.8.9"
PINNED = (f"uvicorn=={UVICORN}", f"granian=={GRANIAN}", "uvloop==0.23.0", "httptools==0.9.0")
FIRST = 19_300  # port
MOST = 64 << 20  # bytes of a body
CASES = (
    Case("1 KB, 1", 1_000, 1, 1),
    Case("1 KB, 16", 1_000, 1, 16),
    Case("40 KB, 16", 40_000, 20, 16),
    Case("1 MB, 4", 1_000_000, 500, 4),
    Case("100 chunks, 16", 1_000, 1, 16, stream=True),
)


async def used(scope: Any, receive: Any, send: Any) -> None:
    """The same application with what our cycle offers besides, as the proxy uses it: a body in one piece, a whole
    answer in one write, and chunks that wake no task."""
    cycle = cycle_of(scope) if scope["type"] == "http" else None
    if cycle is None:
        await app(scope, receive, send)
        return
    body = cycle.received_body()
    if body is None:
        cycle.read_whole(MOST)
        body = (await receive())["body"]
    if b'"stream":true' not in body[:64]:
        cycle.send_at_once(200, WHOLE, ANSWER)
        return
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    for _ in range(CHUNKS):
        cycle.send_chunk(CHUNK)
    await send({"type": "http.response.body", "body": b""})


def others() -> Path:
    """The environment with the other servers, made where there is none."""
    home = HOME / "servers"
    if not (home / "bin" / "granian").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", *PINNED], check=True)
    return home / "bin"


def ours(name: str, port: int) -> System:
    """Our server with one of the applications."""
    return started(name, port, [sys.executable, "-m", "tests.bench.servers", "--serve", name, str(port)])


def uvicorn(name: str, port: int) -> System:
    """uvicorn with uvloop and httptools, as fast as it can be set up."""
    options = [
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--lifespan",
        "off",
        "--no-access-log",
        "--log-level",
        "error",
    ]
    where = ["--app-dir", Path(__file__).parent, "--port", str(port)]
    return started(name, port, [others() / "python", "-m", "uvicorn", "minimal_app:app", *options, *where])


def granian(name: str, port: int) -> System:
    """granian (hyper, in Rust) with one worker and one thread."""
    options = ["--interface", "asginl", "--loop", "uvloop", "--workers", "1", "--no-ws", "--log-level", "error"]
    where = ["--working-dir", Path(__file__).parent, "--port", str(port)]
    return started(name, port, [others() / "granian", "minimal_app:app", *options, *where])


SERVERS: dict[str, Callable[[str, int], System]] = {
    "ours, as used": ours,
    "ours": ours,
    "uvicorn": uvicorn,
    "granian": granian,
}


def serve(name: str, port: int) -> None:
    """Serves an application with our server until it is stopped."""
    config = Config(used if name == "ours, as used" else app, "127.0.0.1", port, error_body)
    uvloop.run(Server(config).serve())


def main() -> int:
    """Prints a row for each server; 1 where an answer was an error."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=int, default=3, help="of each measurement")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--serve", nargs=2, metavar=("NAME", "PORT"), help="serve with ours, for the measurement")
    chosen = arguments.parse_args()
    if chosen.serve:
        serve(chosen.serve[0], int(chosen.serve[1]))
        return 0
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    running: list[System] = []
    least: dict[tuple[str, str], float] = {}
    errors = 0
    try:
        for place, (name, start) in enumerate(SERVERS.items()):
            running.append(start(name, FIRST + place))
        for _ in range(chosen.rounds):
            for case in CASES:
                for system in running:
                    result = measured(case, system, chosen.seconds)
                    errors += result.errors
                    key = system.name, case.name
                    least[key] = min(result.cpu_us, least.get(key, result.cpu_us))
    finally:
        for system in running:
            system.stop()
    print(row("server", *(case.name for case in CASES)) + "\n" + "|---" * (len(CASES) + 1) + "|")
    for name in SERVERS:
        print(row(name, *(f"{least[name, case.name]:,.0f}" for case in CASES)))
    print("\n" + machine())
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
