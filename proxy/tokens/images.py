"""Images: the size that a data URL's first bytes tell, and the tokens that a family of models asks for it.

Formulas are from recorded usage unless said otherwise; sizes are width and height in pixels.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Protocol

Size = tuple[int, int]

FIRST = 1 << 12  # characters of base64 looked at first: PNG, GIF and WEBP need 40
MOST = 1 << 22  # and at most: a JPEG may carry a thumbnail and a colour profile before its size
LARGE = (1536, 768)  # what an image of unknown size is taken for where size matters: large, twice as long as high
MARK = ";base64,"


class Images(Protocol):
    """What one image costs, one of unknown size what a large one does. `name` tells different costs apart."""

    @property
    def name(self) -> str:
        """Short, the same for equal costs."""

    def cost(self, size: Size | None, low: bool) -> int:
        """Tokens of an image of that size; `low` where the request asks for low detail."""

    def certain(self, size: Size | None, low: bool) -> bool:
        """Whether that cost is no assumption."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """OpenAI: fitted into 2048 by 2048, then to a short side of 768, then cut into tiles of 512 (API guide, vision)."""

    base: int
    tile: int

    @property
    def name(self) -> str:
        return f"tiles{self.base}+{self.tile}"

    def cost(self, size: Size | None, low: bool) -> int:
        if low:
            return self.base
        width, height = size or LARGE
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        return self.base + self.tile * ceil(width * scale / 512) * ceil(height * scale / 512)

    def certain(self, size: Size | None, low: bool) -> bool:
        return low or size is not None


@dataclass(frozen=True, slots=True)
class Patches:
    """A grid of squares: `side` pixels each, at most `most` of them (larger images are scaled down), times `each`."""

    side: int
    most: int
    each: float = 1.0
    more: int = 1
    least: int = 0

    @property
    def name(self) -> str:
        return f"patches{self.side}*{self.each}+{self.more}<{self.most}>{self.least}"

    def cost(self, size: Size | None, low: bool) -> int:
        patches = self.most if size is None else min(self.most, self._patches(*size))
        return max(self.least, ceil(patches * self.each) + self.more)

    def _patches(self, width: int, height: int) -> int:
        across, down = ceil(width / self.side), ceil(height / self.side)
        if across * down <= self.most:
            return across * down
        scale = self.side * sqrt(self.most / (width * height))
        across_now, down_now = width * scale / self.side, height * scale / self.side
        scale *= min(max(1, int(across_now)) / across_now, max(1, int(down_now)) / down_now)
        return ceil(width * scale / self.side - 1e-9) * ceil(height * scale / self.side - 1e-9)

    def certain(self, size: Size | None, low: bool) -> bool:
        return size is not None


@dataclass(frozen=True, slots=True)
class Crops:
    """Gemini 2: 258 for a small image; a larger one as crops of two thirds of its short side, and once as a whole
    (ai.google.dev, token counting)."""

    each: int = 258
    small: int = 384
    unknown: int = 7  # crops and the whole of an image up to twice as long as high

    @property
    def name(self) -> str:
        return f"crops{self.each}*{self.unknown}>{self.small}"

    def cost(self, size: Size | None, low: bool) -> int:
        if size is None:
            return self.each * self.unknown
        if max(size) <= self.small:
            return self.each
        unit = max(256, min(size) * 2 // 3)
        return self.each * (1 + ceil(size[0] / unit) * ceil(size[1] / unit))

    def certain(self, size: Size | None, low: bool) -> bool:
        return size is not None


@dataclass(frozen=True, slots=True)
class Flat:
    """Every image costs the same."""

    each: int

    @property
    def name(self) -> str:
        return f"flat{self.each}"

    def cost(self, size: Size | None, low: bool) -> int:
        return self.each

    def certain(self, size: Size | None, low: bool) -> bool:
        return True


def size_of(url: str) -> Size | None:
    """The size of a PNG, JPEG, GIF or WEBP in a data URL, from its first bytes; None for anything else."""
    start = url.find(MARK, 0, 200)
    if not url.startswith("data:") or start < 0:
        return None
    start += len(MARK)
    length = FIRST
    while True:
        try:
            text = "".join(url[start : start + length].split())
            found = _size(a2b_base64(text[: len(text) // 4 * 4]))
        except (Error, ValueError, struct.error, IndexError):
            found = None
        if found is not None:
            return found if min(found) > 0 else None
        if length >= MOST or start + length >= len(url):
            return None
        length *= 32


def _size(data: bytes) -> Size | None:
    for magic, at, read in KINDS:
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
    """The size stands in the frame header, behind segments that each tell their own length."""
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


KINDS: tuple[tuple[bytes, int, Callable[[bytes], Size | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, _png),
    (b"GIF8", 0, _gif),
    (b"WEBP", 8, _webp),
    (b"\xff\xd8", 0, _jpeg),
)
