"""Counts content parts that are not text: images, audio, files and videos. What a body does not show costs as usual."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proxy.model.image_size import size_of
from proxy.model.lenient_json import Json, compact, mapping
from proxy.tokens.images import Images

AUDIO_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000, "mp3": 16_000}  # of recorded requests
OTHER_AUDIO_BYTES_PER_SECOND = 4_000  # a compressed format
FILES = ("file_id", "file_url", "file_data")  # fields of a file that name it
AUDIO_OVERHEAD = 5  # tokens per audio part
PAGE_BYTES, PAGE_TOKENS, MAX_PAGES = 40_000, 1_100, 30  # of a file; with more, files that fit would be refused
VIDEO_TOKENS = 8_000  # half a minute, at what Gemini counts for a second
BASE64_RATIO = 4 / 3  # characters per byte
VIDEOS = ("video_url", "input_video", "video")  # fields of a part
MAX_TEXT_BYTES = 1 << 16  # an unknown part above this size is counted as data, not as text


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one part, and whether the figure is known rather than assumed. `key` names the content of a part whose
    cost the body does not show, so that what usage shows of it can be remembered: its URL, its id or its data."""

    tokens: int
    certain: bool = False
    key: str = field(default="", compare=False)


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
    for kind in VIDEOS:
        if kind in part:
            return Cost(VIDEO_TOKENS, key=compact(part[kind]))
    text = compact(part)
    return Cost(len(text)) if len(text) < MAX_TEXT_BYTES else Cost(_pages(len(text)), key=text)


def _image(part: dict[str, Json], images: Images) -> Cost:
    image = part["image_url"]
    found = image if isinstance(image, dict) else {"url": image, "detail": part.get("detail")}
    url = found.get("url")
    size = size_of(url) if isinstance(url, str) else None
    low = found.get("detail") == "low"
    return Cost(
        images.cost(size, low), images.certain(size, low), key_of(url, found.get("file_id"), found.get("detail"))
    )


def _audio(audio: Json, second: int) -> Cost:
    found = mapping(audio)
    rate = AUDIO_BYTES_PER_SECOND.get(str(found.get("format")), OTHER_AUDIO_BYTES_PER_SECOND)
    return Cost(AUDIO_OVERHEAD + int(_bytes(found.get("data")) / rate * second))


def _file(file: Json) -> Cost:
    found = mapping(file)
    return Cost(_pages(_bytes(found.get("file_data"))), key=key_of(*(found.get(name) for name in FILES)))


def key_of(*names: Json) -> str:
    """The key of a part, from the fields that name its content; empty if none does."""
    return "|".join(name for name in names if isinstance(name, str) and name)


def unshown(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    """Those costs that a body does not show, of parts that can be told apart."""
    return tuple(cost for cost in costs if cost.key and not cost.certain)


def _pages(size: int) -> int:
    return PAGE_TOKENS * min(MAX_PAGES, 1 + size // PAGE_BYTES)


def _bytes(data: Json) -> int:
    return int(len(data) / BASE64_RATIO) if isinstance(data, str) else 0
