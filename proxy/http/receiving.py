"""What a client sends: the target of its request, and the body, within time, a minimum rate and the memory budget.

It is independent of the endpoint.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, MutableMapping
from contextlib import nullcontext
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from proxy.errors import ClientError, over_budget, overloaded, too_large
from proxy.http.cancellation import ClientDisconnected, Interrupt, OnDisconnect, ProgressTimeout
from proxy.http.cancellation import Message as Message
from proxy.http.cancellation import Receive as Receive
from proxy.http.memory_budget import ASSUMED_BODY, WAIT_TIMEOUT_S, Room
from proxy.http.server.cycle import Cycle
from proxy.wire.headers import QUERY, Header, value_of

Scope = MutableMapping[str, Any]


def cycle_of(scope: Scope) -> Cycle | None:
    """Returns the request's cycle, or None under another ASGI server."""
    return scope.get("plimsoll.cycle")


def target_of(scope: Scope) -> bytes:
    """Returns the request's target as the client sent it: path and query, byte for byte."""
    target: bytes = scope.get("plimsoll.target") or b""
    if target.startswith(b"/"):
        return target
    # Another ASGI server, or the absolute form (RFC 9112, 3.2.2), whose scheme and host are dropped.
    query = scope["query_string"]
    return bytes(scope["raw_path"] + b"?" + query if query else scope["raw_path"])


def with_query(target: bytes, headers: Iterable[Header]) -> list[Header]:
    """The headers of a request with its query as one of them, decoded: a key may be in it."""
    query = unquote_to_bytes(target.partition(b"?")[2].replace(b"+", b" "))
    return [*headers, (QUERY, query)] if query else [*headers]


def body_timeout(seconds: float) -> ClientError:
    """Returns the error for a body that stalled, or arrived below the minimum rate."""
    text = f"The request's body stalled for {seconds:g} seconds, or arrived too slowly."
    return ClientError(408, text, code="body_timeout", retry=True)


class Arrival:
    """A body that arrives, in `room`. While others wait for room it must be fast enough for its size, or give way.

    size: bytes that are declared, or were received before. seconds: as of `receive_body`.
    """

    __slots__ = ("_cycle", "_gives_way", "_room", "_seconds", "_size")

    def __init__(self, room: Room, cycle: Cycle, size: int, seconds: float) -> None:
        self._room, self._cycle, self._size, self._seconds = room, cycle, size, seconds
        self._gives_way = False

    def progress(self) -> int:
        """Returns the number of received bytes."""
        return self._cycle.received

    def pressure(self) -> float:
        """Returns the bytes per second that it must reach now; infinity if it must give way."""
        received = self._cycle.received
        self._gives_way = not self._room.keep(received)
        return math.inf if self._gives_way else self._room.rate(max(self._size, received))

    def error(self) -> ClientError:
        """Returns why it was refused."""
        return overloaded() if self._gives_way else body_timeout(self._seconds)


async def receive_body(
    receive: Receive, seconds: float, arrival: Arrival | None = None, rate: float = 0.0
) -> tuple[bytes, bool]:
    """Returns the next bytes of the request's body, and whether more follow. Raises ClientDisconnected, or ClientError
    408 after `seconds` without a byte. With an `arrival` the wait may be longer while `rate` bytes per second arrive;
    then raises ClientError also as that says."""
    with (
        Interrupt(seconds, partial(body_timeout, seconds))
        if arrival is None
        else ProgressTimeout(seconds, arrival.error, arrival.progress, rate, arrival.pressure)
    ):
        message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


def body_if_received(cycle: Cycle | None, limit: int, room: Room) -> bytes | None:
    """Returns the whole body if it has been received and there is room for it, the common case for a short one. Else
    returns None, and `read_body` must be used. Raises ClientError as `read_body` does."""
    if cycle is None or cycle.more_body or cycle.disconnected:
        return None
    if cycle.received > limit:
        raise too_large(limit)
    return cycle.received_body() if room.try_reserve(cycle.received) else None


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float, room: Room, rate: float = 0.0) -> bytes:
    """Returns the whole body. Reserves memory in `room` before it reads.

    Raises ClientDisconnected, or ClientError:
    413: the body exceeds `limit` bytes or the whole memory budget.
    503: there is no room in time, or others have waited for it while this caller held more than half.
    408: no byte arrives for `seconds`, or fewer than `rate` bytes per second, or than its size needs while others wait.
    """
    cycle = cycle_of(scope)
    whole = body_if_received(cycle, limit, room)
    if whole is not None:
        return whole
    declared = value_of(scope["headers"], b"content-length")
    received = 0 if cycle is None else cycle.received
    size = max(received, min(ASSUMED_BODY, limit)) if declared is None else int(declared)
    if size > limit:
        raise too_large(limit)
    await reserve(room, size, received, cycle)
    arrival = None if cycle is None else Arrival(room, cycle, size, seconds)
    with room:
        return await _read_parts(receive, limit, seconds, room, rate, cycle, arrival)


async def _read_parts(
    receive: Receive,
    limit: int,
    seconds: float,
    room: Room,
    rate: float,
    cycle: Cycle | None,
    arrival: Arrival | None,
) -> bytes:
    if cycle is not None:
        cycle.read_whole(limit, room.grow)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part, more = await receive_body(receive, seconds, arrival, rate)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        if not room.grow(size):
            await extend_reservation(room, size, cycle)
        if more and cycle is not None:  # gathering stopped for lack of room
            cycle.read_whole(limit - size, partial(_grows, room, size))
    room.trim(size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _grows(room: Room, before: int, received: int) -> bool:
    return room.grow(before + received)


async def extend_reservation(room: Room, size: int, cycle: Cycle | None) -> None:
    """Waits until `room` has reserved memory for a body that has grown to `size` bytes. Raises ClientError and
    ClientDisconnected as `reserve` does."""
    with nullcontext() if cycle is None else OnDisconnect(cycle):
        if not await room.wait_to_grow(size):
            raise overloaded() if room.fits(size) else over_budget()


async def reserve(room: Room, size: int, received: int, cycle: Cycle | None) -> None:
    """Waits until `room` has reserved memory for a body of `size` bytes, of which `received` bytes are here. Reading
    is paused during the wait. Raises ClientError if the body exceeds the whole budget (413) or there is no room in time
    (503). Raises ClientDisconnected."""
    if not room.fits(size):
        room.refuse("size")
        raise over_budget()
    if room.try_reserve(size):
        return
    if cycle is not None:
        cycle.pause()
    try:
        with Interrupt(WAIT_TIMEOUT_S, overloaded), nullcontext() if cycle is None else OnDisconnect(cycle):
            if not await room.wait(size, received):
                raise overloaded()
    except ClientError:
        room.refuse("wait")
        raise


class Upload:
    """A streamed body after its first bytes. `chunks` yields it for the upstream. `receive` serves the detection of a
    disconnect, which starts once the body has been received."""

    __slots__ = ("_first", "_rate", "_received", "_received_bytes", "_seconds", "_take", "_waited")

    def __init__(self, first: bytes, receive: Receive, seconds: float, rate: float = 0.0) -> None:
        self._first, self._take, self._seconds, self._rate = first, receive, seconds, rate
        self._received = asyncio.Event()
        self._received_bytes, self._waited = 0, 0.0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body's bytes as they arrive. Raises as `receive_body` does, and ClientError 408 if fewer than
        `rate` bytes per second arrive. Only the time spent waiting for the client counts, not for the upstream."""
        clock = asyncio.get_running_loop().time
        try:
            yield self._first
            more = True
            while more:
                began = clock()
                part, more = await receive_body(self._take, self._seconds)
                self._check_rate(len(part), clock() - began)
                yield part
        finally:
            self._received.set()

    def _check_rate(self, size: int, waited: float) -> None:
        self._received_bytes += size
        self._waited += waited
        if self._waited >= self._seconds:
            if self._received_bytes < self._rate * self._waited:
                raise body_timeout(self._seconds)
            self._received_bytes, self._waited = 0, 0.0

    async def receive(self) -> Message:
        """Waits for the end of the body, then returns the next ASGI message."""
        await self._received.wait()
        return await self._take()
