"""The framing of server-sent events: where an event ends, its name and its data."""

from __future__ import annotations

import re
from collections.abc import Iterator

END = b"\n\n"  # of an event, with normalised line ends
MARK = b"\xef\xbb\xbf"  # a stream may begin with a byte order mark
NEAR_END = 2_048  # bytes before its end in which a stream usually reports usage and finish reason


def with_lf(data: bytes) -> bytes:
    """The data with \\n at every end of line.

    "Lines must be separated by either CRLF, LF or CR" (WHATWG HTML, server-sent events).
    """
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def events(data: bytes, finished: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of every event in data with normalised line ends.

    `finished`: without an event whose blank line is missing. Comments, and events without data, are skipped: OpenRouter
    sends ten of them while a model thinks.
    """
    for block in _blocks(data.removeprefix(MARK), finished):
        name, lines = b"", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                lines.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.strip()
        payload = b"\n".join(lines).strip()
        if payload:
            yield name, payload


def _blocks(data: bytes, finished: bool) -> Iterator[bytes]:
    start = 0
    while (end := data.find(END, start)) >= 0:
        yield data[start:end]
        start = end + len(END)
    if not finished:
        yield data[start:]


def last_match(pattern: re.Pattern[bytes], data: bytes) -> int:
    """The offset of a pattern's last match, -1 if there is none; the end of `data` is searched first."""
    for begin in (max(0, len(data) - NEAR_END), 0):
        places = [match.start() for match in pattern.finditer(data, begin)]
        if places:
            return places[-1]
    return -1
