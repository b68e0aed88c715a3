"""Removes a body's content-encoding, piece by piece, within the memory budget."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable

from proxy.errors import overloaded
from proxy.http.memory_budget import Room
from proxy.wire.coding import CODED, IDENTITY, decompressor
from proxy.wire.scan import NotUnderstood

PIECE = 256 * 1024  # bytes that are unpacked at a time
RATIO = 100  # a body may unpack to at most this multiple of its size (Envoy's max_inflate_ratio); JSON's is 3 to 30
ALWAYS = 1 << 20  # bytes that any body may unpack to, whatever its ratio

Run = Callable[..., Awaitable[bytes]]


async def unpacked(body: bytes, coding: str, limit: int, run: Run, room: Room | None = None) -> bytes:
    """The body without its content-encoding. `run(heavy, work, *arguments)` runs work, in a thread where it is heavy.

    Raises NotUnderstood for an unknown encoding, for a corrupt body, and for a body that would unpack to more than
    `limit` bytes, to more than `RATIO` times its size, or to more than the whole budget; ClientError 503 if the budget
    has no `room` for it in time.
    """
    if coding in IDENTITY:
        return body
    if coding not in CODED:
        raise NotUnderstood("its content-encoding is not one that we know")
    limit = min(limit, max(ALWAYS, RATIO * len(body)))
    machine = decompressor(coding)
    rest, parts, size = body, list[bytes](), 0
    while not machine.eof:
        try:
            part = await run(size > 0, machine.decompress, rest, PIECE)
        except zlib.error:
            raise NotUnderstood("its content-encoding is broken") from None
        rest = machine.unconsumed_tail
        size += len(part)
        parts.append(part)
        if size > limit or not (part or machine.eof):
            raise NotUnderstood("it unpacks to more than we take, or ends early")
        if room is not None and not await room.wait_to_grow(len(body) + size):
            if room.fits(len(body) + size):
                raise overloaded()
            raise NotUnderstood("it unpacks to more than there is memory for")
    if machine.unused_data:
        raise NotUnderstood("it goes on behind the end of its content-encoding")
    return b"".join(parts)
