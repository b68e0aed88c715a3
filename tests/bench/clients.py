"""CPU per request of HTTP clients against one upstream: ours, and those of libraries as far as they are installed.

    python -m tests.bench.clients [seconds]

Each measurement is a process of its own, on uvloop, 16 requests at once; the rounds are interleaved, and the least of
each client counts. What is measured is the user and system time of the client's process, after a warm-up.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from tests.ports import reserved_port

AT_ONCE = 16
ROUNDS = 3
CASES = {"1 KB": (1_000, False), "100 KB": (100_000, False), "100 chunks": (1_000, True)}
JSON = "application/json"
Post = Callable[[bytes], Awaitable[int]]


async def ours(port: int) -> Post:
    """proxy/http/client, as the proxy uses it."""
    from proxy.http.client.pool import Pool, Timeouts, WireRequest

    pool = Pool("127.0.0.1", port, None, Timeouts())

    async def post(body: bytes) -> int:
        headers = [(b"host", b"up"), (b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body))]
        reader = await pool.send(WireRequest("POST", b"/v1/x", headers, body))
        size = 0
        while chunk := await reader.read():
            size += len(chunk)
        return size

    return post


async def httpcore(port: int) -> Post:
    """httpcore's connection pool, without httpx."""
    import httpcore

    pool = httpcore.AsyncConnectionPool(max_connections=AT_ONCE)
    url = f"http://127.0.0.1:{port}/v1/x"

    async def post(body: bytes) -> int:
        headers = [("host", "up"), ("content-type", JSON), ("content-length", str(len(body)))]
        async with pool.stream("POST", url, headers=headers, content=body) as response:
            return sum([len(chunk) async for chunk in response.aiter_stream()])

    return post


async def httpx(port: int) -> Post:
    """httpx.AsyncClient, raw bytes."""
    import httpx

    client, url = httpx.AsyncClient(), f"http://127.0.0.1:{port}/v1/x"

    async def post(body: bytes) -> int:
        async with client.stream("POST", url, content=body, headers={"content-type": JSON}) as response:
            return sum([len(chunk) async for chunk in response.aiter_raw()])

    return post


async def aiohttp(port: int) -> Post:
    """aiohttp.ClientSession, raw bytes."""
    import aiohttp

    client = aiohttp.ClientSession(auto_decompress=False)
    url = f"http://127.0.0.1:{port}/v1/x"

    async def post(body: bytes) -> int:
        async with client.post(url, data=body, headers={"content-type": JSON}) as response:
            return sum([len(chunk) async for chunk in response.content.iter_any()])

    return post


async def pyreqwest(port: int) -> Post:
    """pyreqwest (Rust): reqwest in a thread of its own; it may not read ahead, for chunks must go on at once."""
    from pyreqwest.client import ClientBuilder  # type: ignore[import-not-found, unused-ignore]

    client: Any = ClientBuilder().build()
    url = f"http://127.0.0.1:{port}/v1/x"

    async def post(body: bytes) -> int:
        request = client.post(url).header("content-type", JSON).body_bytes(body).streamed_read_buffer_limit(0)
        size = 0
        async with request.build_streamed() as response:
            while chunk := await response.body_reader.read_chunk():
                size += len(chunk)
        return size

    return post


CLIENTS = {made.__name__: made for made in (ours, httpcore, httpx, aiohttp, pyreqwest)}


async def measured(name: str, case: str, port: int, seconds: float) -> float:
    """Microseconds of CPU per request."""
    size, stream = CASES[case]
    body = b'{"stream":%b,"x":"%b"}' % (b"true" if stream else b"false", b"x" * size)
    post = await CLIENTS[name](port)
    done, until = 0, 0.0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < until:
            assert await post(body) > 0
            done += 1

    for length in (0.5, seconds):
        done, until = 0, time.perf_counter() + length
        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return 1e6 * (time.process_time() - began) / done


def version(name: str) -> str:
    """A library's version; empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(seconds: float) -> None:
    """Prints one row for each client."""
    port = reserved_port()
    names = [name for name in CLIENTS if name == "ours" or version(name)]
    with subprocess.Popen([sys.executable, "-m", "tests.bench.upstream", str(port)]) as upstream:
        try:
            time.sleep(1.0)
            least: dict[tuple[str, str], float] = {}
            for _ in range(ROUNDS):
                for case in CASES:
                    for name in names:
                        command = [sys.executable, "-m", "tests.bench.clients", name, case, str(port), str(seconds)]
                        found = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                        least[name, case] = min(found, least.get((name, case), found))
        finally:
            upstream.kill()
    print("client | version | " + " | ".join(CASES))
    for name in names:
        print(f"{name} | {version(name)} | " + " | ".join(f"{least[name, case]:.0f}" for case in CASES))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(uvloop.run(measured(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
