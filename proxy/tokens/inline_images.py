"""Counts texts with images inside them (`<img src="data:image/png;base64,...">`), for models whose servers read these.

NVIDIA's vision models take images so (NIM for VLMs, API reference). For all other models such a text is a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from proxy.model.image_size import size_of
from proxy.tokens.images import Images

MARK = "data:image"
# A data URI to the end of its base64, over the note of what an oversized text is counted without.
URI = re.compile(
    r"data:image/[\w.+-]{1,40}+;base64,[A-Za-z0-9+/=]*+(?: \[… [\d,]++ bytes left out …\] [A-Za-z0-9+/=]*+)?"
)


def with_inline_images(count: Callable[[str], int], images: Images, unit: float, text: str) -> int:
    """Tokens of a text in which data URIs of images are images. `unit`: tokens of the encoding per token of the
    model."""
    if MARK not in text:
        return count(text)
    found = [found[0] for found in URI.finditer(text)]
    media = sum(images.cost(size_of(uri), False) for uri in found)
    return count(URI.sub("", text)) + round(unit * media)
