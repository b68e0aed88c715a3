"""The formulas for the tokens of an image. It never decodes pixels.

Formulas are from recorded usage unless said otherwise. Sizes are width and height in pixels, all other figures tokens.
A row of rules/families.toml names a formula and gives its figures; `FORMULAS` are their names.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Annotated, Protocol, get_args

import msgspec

from proxy.model.image_size import Size

ASSUMED_SIZE = (1000, 1000)  # of an image of unknown size: a usual one; what it costs more is learned

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
