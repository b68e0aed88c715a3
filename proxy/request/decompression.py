"""Takes a body's content-encoding off, piece by piece, as far as there is room for what it unpacks to."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable

from proxy.errors import overloaded
from proxy.http.memory_budget import Room
from proxy.wire.scan import NotUnderstood

CODINGS = {b"": None, b"identity": None, b"gzip": 31, b"x-gzip": 31, b"deflate": 47}  # zlib's window bits
PIECE = 256 * 1024  # bytes that are unpacked in one go
RATIO = 100  # a body may unpack to so many times its size (Envoy's max_inflate_ratio); JSON's is 3 to 30
ALWAYS = 1 << 20  # bytes that any body may unpack to

Run = Callable[..., Awaitable[bytes]]


async def unpacked(body: bytes, coding: bytes, limit: int, run: Run, room: Room | None = None) -> bytes:
    """The body without its content-encoding. `run(heavy, work, *arguments)` runs work, in a thread where it is heavy.

    Raises NotUnderstood for an encoding that we do not know, a broken body, one that would unpack to more than `limit`
    bytes or than the budget could ever hold, and a bomb; ClientError 503 where there is no `room` for it in time.
    """
    if coding not in CODINGS:
        raise NotUnderstood("its content-encoding is not one that we know")
    bits = CODINGS[coding]
    if bits is None:
        return body
    limit = min(limit, max(ALWAYS, RATIO * len(body)))
    machine = zlib.decompressobj(bits)
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
        if room is not None and not await room.grown(len(body) + size):
            if room.fits(len(body) + size):
                raise overloaded()
            raise NotUnderstood("it unpacks to more than there is memory for")
    if machine.unused_data:
        raise NotUnderstood("it goes on behind the end of its content-encoding")
    return b"".join(parts)
