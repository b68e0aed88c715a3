"""Watches an answer's bytes go by and knows what they said: usage, finish reason, [DONE], content, an error inside.

It gets a copy, holds nothing back, and may give up on what it cannot read; it must never fail.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator

from proxy.model.outcome import Usage
from proxy.wire.answers import (
    SAYS_FINISH,
    SAYS_USAGE,
    choices_of,
    fields_of,
    finish_of,
    finish_within,
    has_content,
    is_error,
    plain_usage,
    usage_of,
    usage_within,
)
from proxy.wire.sse import END, events, first_event, unified

__all__ = ["Tap", "first_event", "uncoded"]

# Bytes of an answer that are kept, its last. All that counts in a stream stands at its end: finish reason, usage,
# [DONE], and an error is the last thing in it, too. A plain answer may hold its figures before its content.
KEEP_STREAM = 32_768
KEEP_JSON = 262_144
INFLATED = 1_048_576  # decoded bytes that one chunk may make: what makes more is a bomb, not an answer
USAGE = b'"usage"'
NEAR = 2_048  # bytes before its end in which a stream mostly says all that

STREAM = "text/event-stream"
JSON = ("application/json", "+json")
PLAIN = ("", "identity")
GZIP = ("gzip", "x-gzip")
ENCODED = (*GZIP, "deflate")


class Tap:
    """One answer, fed chunk by chunk as it arrives; `content_type` and `encoding` are its headers' values.

    A chunk costs next to nothing: it is kept, and read when something is asked. An answer that is neither a stream
    of events nor JSON, or that is encoded in a way we do not read, leaves everything as it was at the start.
    """

    __slots__ = (
        *("_content", "_done", "_error", "_finish", "_usage"),
        *("_cut", "_coding", "_encoded", "_inflate", "_kept", "_kind", "_most", "_size", "_stale", "_start"),
    )

    def __init__(self, content_type: str = "", encoding: str = "") -> None:
        self._coding = encoding.strip().lower()
        self._encoded = self._coding in ENCODED
        self._inflate: zlib._Decompress | None = None
        self._start = b""  # of an encoded body, before its first two bytes tell how to read it
        self._kind = _kind(content_type) if self._coding in PLAIN + ENCODED else ""
        self._most = KEEP_STREAM if self._kind == STREAM else KEEP_JSON
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._cut = self._stale = False
        self._usage: Usage | None = None
        self._finish: str | None = None
        self._error: bytes | None = None
        self._done = self._content = False

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body, as they are on the wire."""
        if not self._kind:
            return
        if self._encoded:
            chunk = self._inflated(chunk)
        if not chunk:
            return
        self._kept.append(chunk)
        self._size += len(chunk)
        self._stale = True
        if self._size > self._most:
            self._drop()

    @property
    def usage(self) -> Usage | None:
        """What the upstream said it counted; None where it said nothing yet."""
        if self._stale:  # the one thing that is asked of most answers
            data = b"".join(self._kept)
            if USAGE not in data:
                return self._usage
            found = plain_usage(data) if self._kind == JSON[0] and not self._cut else None
            if found is not None:
                return found
        self._settle()
        return self._usage

    @property
    def finish(self) -> str | None:
        """The last finish reason."""
        self._settle()
        return self._finish

    @property
    def done(self) -> bool:
        """Whether a stream said [DONE]."""
        self._settle()
        return self._done

    @property
    def error(self) -> bytes | None:
        """The first error in a 200: an event's data, or the whole plain answer."""
        self._settle()
        return self._error

    @property
    def content_seen(self) -> bool:
        """Whether anything of an answer came: text, reasoning, a tool call, a refusal to answer."""
        if not self._content:
            self._settle()
        return self._content

    def _inflated(self, chunk: bytes) -> bytes:
        if self._inflate is None:
            self._start = chunk = self._start + chunk
            if len(chunk) < 2:
                return b""
            self._inflate = zlib.decompressobj(_wbits(self._coding, chunk))
        try:
            plain = self._inflate.decompress(chunk, INFLATED)
        except zlib.error:
            plain = None
        if plain is None or self._inflate.unconsumed_tail:
            self._give_up()
            return b""
        return plain

    def _give_up(self) -> None:
        self._kind = ""
        self._kept.clear()
        self._size = 0

    def _drop(self) -> None:
        """Lets the oldest chunks go; what the beginning says (Anthropic's count of the prompt) is read before."""
        if not self._cut:
            self._settle()
            self._cut = self._content = True  # so long an answer is no empty one
        while self._size - len(self._kept[0]) >= self._most:
            self._size -= len(self._kept.popleft())

    def _settle(self) -> None:
        """Reads what was fed since it was read last."""
        if not self._stale:
            return
        self._stale = False
        data = b"".join(self._kept)
        if self._kind == STREAM:
            self._read_stream(unified(data))
        elif self._cut:
            self._read_rest(data)
        else:
            self._read(data)

    def _read_stream(self, data: bytes) -> None:
        if self._cut:
            rest, _, data = data.partition(END)
            self._read_rest(rest)
        for name, payload in events(data):
            if self._content:
                break
            self._read_event(name, payload)
        for block in _telling(data):
            for name, payload in events(block):
                self._read_event(name, payload)

    def _read_event(self, name: bytes, payload: bytes) -> None:
        if payload == b"[DONE]":
            self._done = True
        else:
            self._read(payload, name == b"error")

    def _read(self, payload: bytes, failed: bool = False) -> None:
        """One JSON object: an event, or a plain answer."""
        fields = fields_of(payload)
        if failed or is_error(fields):
            self._error = self._error or payload
        self._usage = usage_of(fields, self._usage)
        for part in (fields, *choices_of(fields)):
            self._finish = finish_of(part) or self._finish
            self._content = self._content or has_content(part)

    def _read_rest(self, rest: bytes) -> None:
        """The end of an object whose beginning is gone."""
        self._usage = usage_within(rest, self._usage)
        self._finish = finish_within(rest) or self._finish


def uncoded(data: bytes, encoding: str, most: int = KEEP_JSON) -> bytes | None:
    """What `data`, the beginning of a body, is without its content-encoding: at most so many bytes.

    None for an encoding that we do not read, or for bytes that are not what it says.
    """
    coding = encoding.strip().lower()
    if coding in PLAIN:
        return data[:most]
    if coding not in ENCODED:
        return None
    try:
        return zlib.decompressobj(_wbits(coding, data)).decompress(data, most)
    except zlib.error:
        return None


def _wbits(coding: str, start: bytes) -> int:
    """How zlib is to read a body that starts so: deflate has zlib's header (RFC 9110, 8.4.1.2), but some send none."""
    if coding in GZIP:
        return 31
    headed = start[:1] and start[0] & 15 == zlib.DEFLATED and int.from_bytes(start[:2]) % 31 == 0
    return zlib.MAX_WBITS if headed else -zlib.MAX_WBITS


def _kind(content_type: str) -> str:
    """How a body is read: as a stream of events, as JSON, or not at all."""
    media = content_type.partition(";")[0].strip().lower()
    if media == STREAM:
        return STREAM
    return JSON[0] if media.endswith(JSON) else ""


def _telling(data: bytes) -> Iterator[bytes]:
    """The events that may say how an answer ended: the last that names usage, a finish reason, an error or [DONE]."""
    usage = _last(SAYS_USAGE, data) if USAGE in data else -1
    places = (usage, _last(SAYS_FINISH, data), data.rfind(b"error"), data.rfind(b"[DONE]"))
    for start in sorted({data.rfind(END, 0, place) for place in places if place >= 0}):
        end = data.find(END, start + len(END))
        yield data[max(start, 0) : end if end >= 0 else len(data)]


def _last(says: re.Pattern[bytes], data: bytes) -> int:
    """Where it is said last, -1 for nowhere; the end is searched first, for there it mostly is."""
    for begin in (max(0, len(data) - NEAR), 0):
        places = [match.start() for match in says.finditer(data, begin)]
        if places:
            return places[-1]
    return -1
