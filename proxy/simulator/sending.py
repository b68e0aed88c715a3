"""Takes requests in and sends answers out over ASGI, as slowly and as badly as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.simulator.settings import SimulatorConfig

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


class BrokenOff(Exception):
    """Raised to make the server cut the connection in the middle of an answer, as `break_after` asks."""


class ClientDisconnected(Exception):
    """The client hung up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its body in the parts that go out one by one."""

    status: int
    headers: Headers
    parts: Iterable[bytes]


async def respond(answer: Answer, config: SimulatorConfig, receive: Receive, send: Send) -> None:
    """Sends an answer, as slowly and as badly as it is told. Raises `ClientDisconnected`, `BrokenOff`."""
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await _pause(config.head_delay, gone)
        request_id = (b"x-request-id", b"req_simulator")
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, request_id]})
        for i, part in enumerate(answer.parts):
            if i == config.break_after:
                raise BrokenOff("the simulator breaks off here, as it was told to")
            await _pause(config.chunk_delay if i else 0.0, gone)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gone.cancel()


async def _pause(seconds: float, gone: asyncio.Future[None]) -> None:
    """Waits, at least for the turn of others. Raises `ClientDisconnected` once the client hung up."""
    if seconds:
        await asyncio.wait([gone], timeout=seconds)
    else:
        await asyncio.sleep(0)
    if gone.done():
        raise ClientDisconnected


async def _hung_up(receive: Receive) -> None:
    """Ends when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def body_of(receive: Receive) -> bytes:
    """The whole body of a request. Raises `ClientDisconnected`."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def lifespan(receive: Receive, send: Send) -> None:
    """Starts and stops with nothing to do."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
