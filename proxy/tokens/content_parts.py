"""Counts content parts that are not text: images, audio and files. Unknown costs are estimated upwards."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.lenient_json import Json, compact, mapping
from proxy.tokens.images import Images, size_of

AUDIO_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000, "mp3": 16_000}  # of recorded requests
OTHER_AUDIO_BYTES_PER_SECOND = 4_000  # a compressed format
AUDIO_OVERHEAD = 5  # tokens per audio part
PAGE_BYTES, PAGE_TOKENS, MAX_PAGES = 40_000, 1_100, 30  # of a file; with more, files that fit would be refused
BASE64_RATIO = 4 / 3  # characters per byte
MAX_TEXT_BYTES = 1 << 16  # an unknown part above this size is counted as data, not as text


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one part, and whether the figure is known rather than assumed."""

    tokens: int
    certain: bool = False


def text_of_part(part: Json) -> str | None:
    """The text of a text or refusal part; None for any other part."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else None


def cost_of_part(part: Json, images: Images, second: int) -> Cost:
    """The cost of any other part. `second` is tokens of one second of audio. Never raises."""
    if not isinstance(part, dict):
        return Cost(0, True)
    if "image_url" in part:
        return _image(part, images)
    if "input_audio" in part:
        return _audio(part["input_audio"], second)
    if "file" in part:
        return _file(part["file"])
    size = len(compact(part))
    return Cost(size if size < MAX_TEXT_BYTES else _pages(size))


def _image(part: dict[str, Json], images: Images) -> Cost:
    image = part["image_url"]
    found = image if isinstance(image, dict) else {"url": image, "detail": part.get("detail")}
    url = found.get("url")
    size = size_of(url) if isinstance(url, str) else None
    low = found.get("detail") == "low"
    return Cost(images.cost(size, low), images.certain(size, low))


def _audio(audio: Json, second: int) -> Cost:
    found = mapping(audio)
    rate = AUDIO_BYTES_PER_SECOND.get(str(found.get("format")), OTHER_AUDIO_BYTES_PER_SECOND)
    return Cost(AUDIO_OVERHEAD + int(_bytes(found.get("data")) / rate * second))


def _file(file: Json) -> Cost:
    return Cost(_pages(_bytes(mapping(file).get("file_data"))))


def _pages(size: int) -> int:
    return PAGE_TOKENS * min(MAX_PAGES, 1 + size // PAGE_BYTES)


def _bytes(data: Json) -> int:
    return int(len(data) / BASE64_RATIO) if isinstance(data, str) else 0
