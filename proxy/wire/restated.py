"""A response whose usage is restated while it passes: with more tokens in the prompt. It reads lines and JSON, and does
no I/O.

Of a stream nothing waits but a line that is not whole yet, which no client can read either. A plain response waits for
its end, as it does at every client; blanks before it, which some upstreams send to keep a connection alive, do not.
"""

from __future__ import annotations

import re

from proxy.model.api import Api
from proxy.wire.tap import STREAM, STREAMS, kind_of

MOST_HELD = 16 << 20  # bytes that wait at most; a longer line, or plain response, passes as it is
LINES = re.compile(rb"[^\r\n]*(?:\r\n|[\r\n])")  # "Lines must be separated by either CRLF, LF or CR" (WHATWG HTML)
DATA = re.compile(rb"data:[ ]?")


class Restater:
    """One response, fed chunk by chunk, without its content-encoding; `content_type` is the value of its header. A
    response that is neither a stream nor JSON passes as it is."""

    __slots__ = ("_api", "_held", "_kind", "_more", "_size")

    def __init__(self, api: Api, content_type: str, more: int) -> None:
        self._api, self._more = api, more
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
            return self._with_more(lines)
        if self._kind not in STREAMS and not self._size and not chunk.strip():
            return chunk
        self._held.append(chunk)
        self._size += len(chunk)
        return b"" if self._size <= MOST_HELD else self._given_up()

    def end(self) -> bytes:
        """The rest, once the response has ended. A line without an end is no event, and passes as it is."""
        kind, rest = self._kind, self._given_up()
        return rest if kind in STREAMS else whole_with_more(self._api, rest, self._more)

    def _given_up(self) -> bytes:
        rest, self._held, self._size, self._kind = b"".join(self._held), [], 0, ""
        return rest

    def _with_more(self, lines: bytes) -> bytes:
        if self._api.usage_key not in lines:
            return lines
        return b"".join(map(self._line, LINES.findall(lines)))

    def _line(self, line: bytes) -> bytes:
        if self._api.usage_key not in line:
            return line
        data = DATA.match(line) if self._kind == STREAM else None
        start = 0 if data is None else data.end()
        if data is None and self._kind == STREAM:  # a comment, a name
            return line
        return line[:start] + self._api.response.with_more_prompt(line[start:], self._more)


def whole_with_more(api: Api, body: bytes, more: int) -> bytes:
    """A whole plain response with so many tokens more in its prompt."""
    return api.response.with_more_prompt(body, more) if api.usage_key in body else body
