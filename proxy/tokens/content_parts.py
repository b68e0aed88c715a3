"""Parts of a message that are no text: what an image, a sound or a file costs, or may cost where nobody can tell."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.model.lenient_json import Json, compact, mapping
from proxy.tokens.images import Images, size_of

SOUND = {"wav": 48_000, "pcm16": 48_000, "mp3": 16_000}  # bytes a second as recorded requests had them
COMPRESSED = 4_000  # bytes a second of any other sound
SOUND_FRAME = 5
PAGE_BYTES, PAGE_TOKENS, MOST_PAGES = 40_000, 1_100, 30  # of a file; more would refuse what may well fit
BASE64 = 4 / 3
OTHER_BYTES = 1 << 16  # a longer part of a kind that we do not know holds data, not text


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one part; whether that is certain."""

    tokens: int
    certain: bool = False


def text_of_part(part: Json) -> str | None:
    """The text of a part of text or refusal; None where it is something else."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else None


def cost_of_part(part: Json, images: Images, second: int) -> Cost:
    """What any other part costs a model with these images and so many tokens for a second of sound."""
    if not isinstance(part, dict):
        return Cost(0, True)
    if "image_url" in part:
        return _image(part, images)
    if "input_audio" in part:
        return _sound(part["input_audio"], second)
    if "file" in part:
        return _file(part["file"])
    size = len(compact(part))
    return Cost(size if size < OTHER_BYTES else _pages(size))


def _image(part: dict[str, Json], images: Images) -> Cost:
    image = part["image_url"]
    found = image if isinstance(image, dict) else {"url": image, "detail": part.get("detail")}
    url = found.get("url")
    size = size_of(url) if isinstance(url, str) else None
    low = found.get("detail") == "low"
    return Cost(images.cost(size, low), images.certain(size, low))


def _sound(sound: Json, second: int) -> Cost:
    found = mapping(sound)
    rate = SOUND.get(str(found.get("format")), COMPRESSED)
    return Cost(SOUND_FRAME + int(_bytes(found.get("data")) / rate * second))


def _file(file: Json) -> Cost:
    return Cost(_pages(_bytes(mapping(file).get("file_data"))))


def _pages(size: int) -> int:
    return PAGE_TOKENS * min(MOST_PAGES, 1 + size // PAGE_BYTES)


def _bytes(data: Json) -> int:
    return int(len(data) / BASE64) if isinstance(data, str) else 0
