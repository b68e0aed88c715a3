"""Image sizes from the first bytes of data URLs, and what images of a size cost."""

import struct
from base64 import b64encode

import pytest

from proxy.tokens.images import Crops, Flat, Images, Patches, Size, Tiles, size_of


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\0\0\0"


def jpeg(width: int, height: int, before: int = 16, kind: int = 0xC0) -> bytes:
    segment = b"\xff\xe0" + struct.pack(">H", before + 2) + b"x" * before
    tables = b"\xff\xc4\x00\x04ab"  # its marker lies among those of frames, but it is none
    return (
        b"\xff\xd8"
        + segment
        + tables
        + b"\xff\xff"
        + bytes([kind])
        + struct.pack(">HBHH", 17, 8, height, width)
        + b"\0" * 12
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + rest + b"\0" * 20


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        gif(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, kind=0xC2),
        jpeg(640, 480, before=60_000),
        webp(b"VP8X", b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
        webp(b"VP8L", b"\0" * 5 + (639 | 479 << 14).to_bytes(4, "little")),
        webp(b"VP8 ", b"\0" * 10 + struct.pack("<HH", 640 | 1 << 14, 480)),
    ],
)
def test_the_size_stands_in_the_first_bytes(data: bytes) -> None:
    assert size_of(url(data)) == (640, 480)
    assert size_of(url(data + b"\0" * 100_000)) == (640, 480)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/a.png",
        "data:image/png,iVBORw0KGgo",
        url(b"BM" + b"\0" * 60),
        url(png(0, 480)),
        url(png(640, 480)[:20]),
        url(b"\xff\xd8\xff"),
        url(b"\xff\xd8\xff\xe0\xff\xff" + b"\0" * 99),
        "data:image/png;base64,####",
        "data:image/png;base64,",
    ],
)
def test_the_size_of_anything_else_is_unknown(text: str) -> None:
    assert size_of(text) is None


def test_line_breaks_and_missing_padding_do_no_harm() -> None:
    text = b64encode(png(640, 480)).decode().rstrip("=")
    lines = "\r\n".join(text[i : i + 20] for i in range(0, len(text), 20))
    assert size_of(f"data:image/png;base64,{lines}") == (640, 480)


@pytest.mark.parametrize(
    ("images", "size", "tokens"),
    [
        (Tiles(85, 170), (1, 1), 255),
        (Tiles(85, 170), (512, 512), 255),
        (Tiles(85, 170), (1024, 1024), 765),  # the figures of OpenAI's guide
        (Tiles(85, 170), (2048, 4096), 1105),
        (Tiles(85, 170), (10_000, 10), 765),
        (Tiles(2833, 5667), (16, 16), 8500),
        (Patches(32, 1536), (1024, 1024), 1025),
        (Patches(32, 1536), (1800, 2400), 1453),  # the guide's 1452, and what surrounds them
        (Patches(32, 1536, 1.5), (16, 16), 3),
        (Patches(32, 1536), (1_000_000, 1), 1537),
        (Patches(32, 2500, 1.2), (1245, 1395), 2061),  # gpt-5.5 was recorded to take 2,060
        (Patches(32, 2500, 1.2), (9000, 9000), 3001),
        (Patches(28, 1568, extra=3), (800, 440), 467),
        (Patches(32, 16384, extra=0, nearest=True), (330, 291), 90),
        (Patches(32, 16384, extra=0, nearest=True), (5, 5), 1),
        (Patches(28, 2600, min_tokens=256), (28, 28), 256),
        (Crops(), (384, 384), 258),
        (Crops(), (960, 540), 7 * 258),
        (Flat(1089), (5000, 5000), 1089),
    ],
)
def test_an_image_of_known_size_costs_what_was_recorded(images: Images, size: Size, tokens: int) -> None:
    assert images.cost(size, low=False) == tokens
    assert images.certain(size, low=False)


@pytest.mark.parametrize(
    ("images", "tokens"), [(Tiles(85, 170), 765), (Patches(32, 1536, 1.62), 1660), (Crops(), 1290), (Flat(9), 9)]
)
def test_an_image_of_unknown_size_is_taken_for_one_of_a_thousand_by_a_thousand(images: Images, tokens: int) -> None:
    assert images.cost(None, low=False) == tokens
    assert images.certain(None, low=False) is isinstance(images, Flat)


def test_low_detail_costs_the_base_whatever_the_size() -> None:
    assert Tiles(85, 170).cost(None, low=True) == Tiles(85, 170).cost((9000, 9000), low=True) == 85
    assert Tiles(85, 170).certain(None, low=True)


def test_different_costs_have_different_names() -> None:
    rows: list[Images] = [
        *(Tiles(85, 170), Tiles(70, 140), Crops(), Flat(1089), Patches(32, 1536), Patches(28, 1536)),
        *(Patches(32, 1536, 1.5), Patches(32, 1536, extra=3), Patches(32, 1568), Patches(32, 1536, min_tokens=256)),
    ]
    assert len({row.name for row in rows}) == len(rows)
