"""Bodies with more messages, values or tools than are parsed: what becomes of them is told, and pairs stay whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.simulator.app import Simulator
from tests.e2e.services import simulating
from tests.hostile.harness import CHAT, Running, running

UNMEASURED = "the request was sent as it came, unmeasured: "


@contextlib.contextmanager
def strict() -> Iterator[tuple[Simulator, str]]:
    """A simulator with windows of 8,192 tokens, in a thread with an event loop of its own; and its URL."""
    loop = asyncio.new_event_loop()
    opened: list[tuple[Simulator, str]] = []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with simulating() as here:
            opened.append(here)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    if not ready.wait(30):
        raise TimeoutError("the simulator did not start")
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()


@pytest.fixture(scope="module")
def pair(workers: int) -> Iterator[tuple[Running, Simulator]]:
    """A proxy before a strict simulator."""
    with strict() as (there, url), running(url, workers=workers) as proxy:
        yield proxy, there


def tools(count: int) -> list[dict[str, Any]]:
    """Definitions of tools, each of 13 values."""
    places = {name: {"type": "string", "enum": ["a", "b", "c"]} for name in ("source", "target")}
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object", "properties": places}}}
        for n in range(count)
    ]


def test_S13_too_many_tools_to_be_parsed_are_told_with_the_reason(pair: tuple[Running, Simulator]) -> None:
    proxy, there = pair
    body = json.dumps({"model": "gpt-4", "messages": [{"role": "user", "content": "hi"}], "tools": tools(8_000)})
    got = proxy.ask(body.encode(), path=CHAT)
    assert got.status == 400 and got.json["error"]["code"] == "context_length_exceeded"
    assert there.received[-1].body == body.encode()
    why = "there are more values in it than we plan with"
    assert got.headers["x-plimsoll-notice"] == UNMEASURED + why
    told = json.loads(proxy.log('"unplanned"')[-1])
    assert (told["result"], told["unplanned"]) == ("not_understood", why)
