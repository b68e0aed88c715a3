"""The size of an image, read from the first bytes of its data URL. It never decodes pixels."""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64
from collections.abc import Callable

Size = tuple[int, int]  # width and height in pixels

FIRST_READ = 1 << 12  # characters of base64 that are decoded first: PNG, GIF and WEBP need 40
MAX_READ = 1 << 22  # at most: a JPEG may have a thumbnail and a colour profile before its size
BASE64_PREFIX = ";base64,"


def size_of(url: str) -> Size | None:
    """Width and height of a PNG, JPEG, GIF or WEBP in a data URL. Never raises; returns None for anything else."""
    start = url.find(BASE64_PREFIX, 0, 200)
    if not url.startswith("data:") or start < 0:
        return None
    start += len(BASE64_PREFIX)
    length = FIRST_READ
    while True:
        try:
            text = "".join(url[start : start + length].split())
            found = _size(a2b_base64(text[: len(text) // 4 * 4]))
        except (Error, ValueError, struct.error, IndexError):
            found = None
        if found is not None:
            return found if min(found) > 0 else None
        if length >= MAX_READ or start + length >= len(url):
            return None
        length *= 32


def _size(data: bytes) -> Size | None:
    for magic, at, read in FORMATS:
        if data[at : at + len(magic)] == magic:
            return read(data)
    return None


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> Size:
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(data: bytes) -> Size | None:
    """The size is in the frame header, after segments that each start with their length."""
    at = 2
    while at + 9 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
    return None


FORMATS: tuple[tuple[bytes, int, Callable[[bytes], Size | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, _png),
    (b"GIF8", 0, _gif),
    (b"WEBP", 8, _webp),
    (b"\xff\xd8", 0, _jpeg),
)
