"""Reads requests and sends responses over ASGI, with the configured delays and aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from proxy.simulator.settings import SimulatorConfig

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
EVENT_HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class ResponseAborted(Exception):
    """Raised to make the server close the connection in the middle of a response (`SimulatorConfig.abort_after`)."""


class ClientDisconnected(Exception):
    """The client closed the connection."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response. `chunks` are the parts of its body, each sent as one ASGI message."""

    status: int
    headers: Headers
    chunks: Iterable[bytes]


def whole(status: int, body: bytes, headers: Headers = JSON_HEADERS, more: Headers = ()) -> Response:
    """A response of a known length; `more` are headers after that."""
    middle = len(body) // 2  # two chunks, so that `abort_after=1` aborts in the middle
    length = (b"content-length", b"%d" % len(body))
    return Response(status, (*headers, length, *more), (body[:middle], body[middle:]))


def failing(chunks: Iterable[bytes], after: int | None, last: bytes) -> Iterator[bytes]:
    """The chunks of a stream that may break off: after so many, `last` is its end."""
    yield from islice(chunks, after)
    if after is not None:
        yield last


async def respond(response: Response, config: SimulatorConfig, receive: Receive, send: Send) -> None:
    """Sends a response with the configured delays. Raises `ClientDisconnected`, `ResponseAborted`."""
    disconnected = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await _pause(config.head_delay, disconnected)
        request_id = (b"x-request-id", b"req_simulator")
        await send(
            {"type": "http.response.start", "status": response.status, "headers": [*response.headers, request_id]}
        )
        for i, chunk in enumerate(response.chunks):
            if i == config.abort_after:
                raise ResponseAborted(f"the simulator aborts after {i} chunks, as configured")
            await _pause(config.chunk_delay if i else 0.0, disconnected)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        disconnected.cancel()


async def _pause(seconds: float, disconnected: asyncio.Future[None]) -> None:
    """Sleeps; with 0 seconds it only yields to other tasks. Raises `ClientDisconnected`."""
    if seconds:
        await asyncio.wait([disconnected], timeout=seconds)
    else:
        await asyncio.sleep(0)
    if disconnected.done():
        raise ClientDisconnected


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive) -> bytes:
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
    """Completes the ASGI lifespan protocol; there is nothing to start or stop."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
