"""Asks what a program may ask of a client and prints one line of JSON for each: what came, or how it failed.

`python -m SCRIPT BODIES STRAIGHT THROUGH`, from the folder above `tests`: it asks at both URLs, and waits for a line on
standard input where it says so. BODIES is a file with what the programs send.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

WAYS = ("straight", "through")
BODIES = json.loads(Path(sys.argv[1]).read_text())
NARROW = {"x-sim-window": "6000"}
SLOWLY = {"x-sim-chunk-delay": "0.2", "x-sim-text": "aye " * 200}
LATE = {"x-sim-delay": "30"}
QUESTION = "What is a load line? ⚓"
Ask = Callable[[Callable[..., Any]], Awaitable[Any]]  # what asks, with what makes its client from headers


async def released(what: str) -> None:
    """Says that something was let go, and goes on when whoever watches the upstream has seen it."""
    print(json.dumps({"waiting": what}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def arrived(tag: str) -> None:
    """Goes on when whoever watches the upstream has seen a request with this tag."""
    print(json.dumps({"expected": tag}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def reader(calls: list[str]) -> Callable[[str], str]:
    """A tool that brings the next part of a long text at each call."""

    def read_file(path: str) -> str:
        """Reads a file."""
        calls.append(path)
        return str(BODIES["results"][len(calls) - 1])

    return read_file


def run(scenarios: Mapping[str, Ask], client: Callable[..., Any]) -> None:
    """Asks everything, at both URLs; `client` makes a client from URL, tag and headers."""
    for way, url in zip(WAYS, sys.argv[2:], strict=True):
        for name, ask in scenarios.items():
            told = asyncio.run(_ask(ask, lambda tag=f"{name} {way}", url=url, **headers: client(url, tag, headers)))
            print(json.dumps({"scenario": f"{way} {name}", **told}), flush=True)


async def _ask(ask: Ask, client: Callable[..., Any]) -> dict[str, Any]:
    try:
        return {"answer": await ask(client)}
    except (Exception, asyncio.CancelledError) as error:
        said = {key: getattr(error, key, None) for key in ("status_code", "code")}
        return {"failure": {"kind": type(error).__name__, **said, "says": str(error)}}
