"""Image sizes from the first bytes of data URLs."""

import struct
from base64 import b64encode

import pytest

from proxy.model.image_size import size_of


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
