"""Images: the size of an image in a data URL, and the formulas for its tokens. It never decodes pixels.

Formulas are from recorded usage unless said otherwise. Sizes are width and height in pixels, all other figures tokens.
A row of rules/families.toml names a formula and gives its figures; `FORMULAS` are their names.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64
from collections.abc import Callable
from math import ceil, sqrt
from typing import Annotated, Protocol, get_args

import msgspec

Size = tuple[int, int]

FIRST_READ = 1 << 12  # characters of base64 that are decoded first: PNG, GIF and WEBP need 40
MAX_READ = 1 << 22  # at most: a JPEG may have a thumbnail and a colour profile before its size
ASSUMED_SIZE = (1000, 1000)  # of an image of unknown size: a usual one; what it costs more is learned
BASE64_PREFIX = ";base64,"

Figure = Annotated[int, msgspec.Meta(ge=0, le=100_000)]  # tokens; a larger figure is a typing error
Positive = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=100_000)]


class Images(Protocol):
    """A formula for the tokens of an image. An image of unknown size costs what a usual one does."""

    @property
    def name(self) -> str:
        """Identifies the formula and its figures in cache keys."""

    def cost(self, size: Size | None, low: bool) -> int:
        """Tokens of an image of this size (None: unknown). `low`: the request sets low detail."""

    def certain(self, size: Size | None, low: bool) -> bool:
        """Whether the cost is known, not assumed."""


class Tiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="formula", tag="tiles"):
    """OpenAI: scaled to fit 2048 by 2048 and a short side of 768, then cut into tiles of 512 (API guide, vision).

    An image costs `base` and `tile` for each tile; at low detail `base` alone.
    """

    base: Figure
    tile: Figure

    @property
    def name(self) -> str:
        return f"tiles{self.base}+{self.tile}"

    def cost(self, size: Size | None, low: bool) -> int:
        if low:
            return self.base
        width, height = size or ASSUMED_SIZE
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        return self.base + self.tile * ceil(width * scale / 512) * ceil(height * scale / 512)

    def certain(self, size: Size | None, low: bool) -> bool:
        return low or size is not None


class Patches(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="formula", tag="patches"):
    """A grid of squares of `side` pixels, at most `max_patches` of them: a larger image is scaled down.

    An image costs `per_patch` for each patch and `extra` once, at least `min_tokens`. `nearest`: its sides are scaled
    to the nearest number of patches, else to the next.
    """

    side: Positive
    max_patches: Positive
    per_patch: Rate = 1.0
    extra: Figure = 1
    min_tokens: Figure = 0
    nearest: bool = False

    @property
    def name(self) -> str:
        figures = f"{self.side}*{self.per_patch}+{self.extra}<{self.max_patches}>{self.min_tokens}"
        return f"patches{figures}{'~' * self.nearest}"

    def cost(self, size: Size | None, low: bool) -> int:
        patches = min(self.max_patches, self._patches(*(size or ASSUMED_SIZE)))
        return max(self.min_tokens, ceil(patches * self.per_patch) + self.extra)

    def _across(self, length: int) -> int:
        return max(1, round(length / self.side)) if self.nearest else ceil(length / self.side)

    def _patches(self, width: int, height: int) -> int:
        across, down = self._across(width), self._across(height)
        if across * down <= self.max_patches:
            return across * down
        scale = self.side * sqrt(self.max_patches / (width * height))
        across_now, down_now = width * scale / self.side, height * scale / self.side
        scale *= min(max(1, int(across_now)) / across_now, max(1, int(down_now)) / down_now)
        return ceil(width * scale / self.side - 1e-9) * ceil(height * scale / self.side - 1e-9)

    def certain(self, size: Size | None, low: bool) -> bool:
        return size is not None


class Crops(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="formula", tag="crops"):
    """Gemini 2: a larger image is cut into crops of two thirds of its short side (ai.google.dev, token counting).

    An image costs `per_crop` for each crop and once for the whole image. One whose sides are at most `small_side`
    pixels is one crop, one of unknown size `unknown_crops`.
    """

    per_crop: Figure = 258
    small_side: Figure = 384
    unknown_crops: Figure = 5  # of one of 1,000 by 1,000

    @property
    def name(self) -> str:
        return f"crops{self.per_crop}*{self.unknown_crops}>{self.small_side}"

    def cost(self, size: Size | None, low: bool) -> int:
        if size is None:
            return self.per_crop * self.unknown_crops
        if max(size) <= self.small_side:
            return self.per_crop
        unit = max(256, min(size) * 2 // 3)
        return self.per_crop * (1 + ceil(size[0] / unit) * ceil(size[1] / unit))

    def certain(self, size: Size | None, low: bool) -> bool:
        return size is not None


class Flat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="formula", tag="flat"):
    """Every image costs the same `tokens`."""

    tokens: Figure

    @property
    def name(self) -> str:
        return f"flat{self.tokens}"

    def cost(self, size: Size | None, low: bool) -> int:
        return self.tokens

    def certain(self, size: Size | None, low: bool) -> bool:
        return True


Formula = Tiles | Patches | Crops | Flat
FORMULAS = tuple(str(kind.__struct_config__.tag) for kind in get_args(Formula))


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
