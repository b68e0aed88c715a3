"""A response in which something is restated while it passes: the tokens of its prompt, or edits that were made before.
It reads lines and JSON, and does no I/O.

Of a stream nothing waits but a line that is not whole yet, which no client can read either. A plain response waits for
its end, as it does at every client; blanks before it, which some upstreams send to keep a connection alive, do not.
"""

from __future__ import annotations

import re

import msgspec

from proxy.model.api import Api
from proxy.wire.tap import STREAM, STREAMS, kind_of

MOST_HELD = 16 << 20  # bytes that wait at most; a longer line, or plain response, passes as it is
LINES = re.compile(rb"[^\r\n]*(?:\r\n|[\r\n])")  # "Lines must be separated by either CRLF, LF or CR" (WHATWG HTML)
DATA = re.compile(rb"data:[ ]?")


class Change(msgspec.Struct, frozen=True):
    """What is restated in the answers of an API: `more` tokens in the prompt, and the JSON of edits that were
    `applied`, if any were asked for."""

    api: Api
    more: int = 0
    applied: bytes | None = None

    def may_be_in(self, data: bytes) -> bool:
        """Whether something may be to be restated in these bytes; a quick test."""
        edits = self.api.edits
        if self.more and self.api.usage_key in data:
            return True
        return self.applied is not None and edits is not None and edits.mark in data

    def of(self, data: bytes) -> bytes:
        """An event's data, or a complete response, restated."""
        if self.more:
            data = self.api.response.with_more_prompt(data, self.more)
        if self.applied is not None and self.api.edits is not None:
            data = self.api.edits.report(data, self.applied)
        return data

    def whole(self, body: bytes) -> bytes:
        """A whole plain response, restated."""
        return self.of(body) if self.may_be_in(body) else body


class Restater:
    """One response, fed chunk by chunk, without its content-encoding; `content_type` is the value of its header. A
    response that is neither a stream nor JSON passes as it is."""

    __slots__ = ("_change", "_held", "_kind", "_size")

    def __init__(self, change: Change, content_type: str) -> None:
        self._change = change
        self._kind = kind_of(content_type)
        self._held: list[bytes] = []
        self._size = 0

    @property
    def reads(self) -> bool:
        """Whether it may change anything."""
        return bool(self._kind)

    def feed(self, chunk: bytes) -> bytes:
        """What may pass, now that these bytes are here."""
        if not self._kind:
            return chunk
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1 if self._kind in STREAMS else 0
        if end:
            lines = b"".join((*self._held, chunk[:end]))
            self._held, self._size = [chunk[end:]], len(chunk) - end
            return self._restated(lines)
        if self._kind not in STREAMS and not self._size and not chunk.strip():
            return chunk
        self._held.append(chunk)
        self._size += len(chunk)
        return b"" if self._size <= MOST_HELD else self._given_up()

    def end(self) -> bytes:
        """The rest, once the response has ended. A line without an end is no event, and passes as it is."""
        kind, rest = self._kind, self._given_up()
        return rest if kind in STREAMS else self._change.whole(rest)

    def _given_up(self) -> bytes:
        rest, self._held, self._size, self._kind = b"".join(self._held), [], 0, ""
        return rest

    def _restated(self, lines: bytes) -> bytes:
        if not self._change.may_be_in(lines):
            return lines
        return b"".join(map(self._line, LINES.findall(lines)))

    def _line(self, line: bytes) -> bytes:
        if not self._change.may_be_in(line):
            return line
        data = DATA.match(line) if self._kind == STREAM else None
        start = 0 if data is None else data.end()
        if data is None and self._kind == STREAM:  # a comment, a name
            return line
        return line[:start] + self._change.of(line[start:])
