"""The framing of streams whose lines are JSON, one object each (`application/x-ndjson`)."""

from __future__ import annotations

from collections.abc import Iterator

MEDIA_TYPE = "application/x-ndjson"
END = b"\n"  # of an object


def objects(data: bytes, finished: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Every line with something in it, as a nameless event. `finished`: without a line whose end is missing."""
    *lines, last = data.split(END)
    for line in lines if finished else (*lines, last):
        if text := line.strip():
            yield b"", text
