"""The content codings that are read (RFC 9110, 8.4): which they are, and what decodes them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from proxy.wire.headers import Header, value_of

IDENTITY = ("", "identity")
GZIP = ("gzip", "x-gzip")
ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib's window bits: the header says which
WINDOW_BITS = {**dict.fromkeys(GZIP, 16 + zlib.MAX_WBITS), "deflate": ZLIB_OR_GZIP}
CODED = frozenset(WINDOW_BITS)
KNOWN = CODED.union(IDENTITY)


def coding_of(headers: Sequence[Header]) -> str:
    """The content-encoding of a message, in lower case; empty if it has none."""
    value = value_of(headers, b"content-encoding")
    return "" if value is None else value.decode("latin-1").strip().lower()


def decompressor(coding: str) -> zlib._Decompress:
    """Decodes a body. Raises KeyError for a coding that is not in `CODED`."""
    return zlib.decompressobj(WINDOW_BITS[coding])


def decompressor_of_answer(coding: str, start: bytes) -> zlib._Decompress:
    """Decodes the body of an answer that starts so: two bytes are enough. Deflate has a zlib header (RFC 9110,
    8.4.1.2); some servers omit it."""
    if coding in GZIP:
        return decompressor(coding)
    headed = start[:1] and start[0] & 15 == zlib.DEFLATED and int.from_bytes(start[:2]) % 31 == 0
    return zlib.decompressobj(zlib.MAX_WBITS if headed else -zlib.MAX_WBITS)


def decoded(body: bytes, coding: str, limit: int) -> bytes | None:
    """A whole body without its coding. None for an unknown coding, for bytes that are not so coded, and for a body of
    more than `limit` bytes."""
    if coding in IDENTITY:
        return body
    if coding not in CODED:
        return None
    machine = decompressor(coding)
    try:
        plain = machine.decompress(body, limit)
    except zlib.error:
        return None
    return plain if machine.eof else None


def beginning(data: bytes, coding: str, limit: int) -> bytes | None:
    """The beginning of an answer's body without its coding, of at most `limit` bytes. None for an unknown coding, and
    for bytes that are not so coded."""
    if coding in IDENTITY:
        return data[:limit]
    if coding not in CODED:
        return None
    try:
        return decompressor_of_answer(coding, data).decompress(data, limit)
    except zlib.error:
        return None
