"""An upstream's answer as its readers see it, and what its failures mean to a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

from proxy.errors import ClientError
from proxy.http.client.response import Fault, ResponseReader, Sink, TransportError
from proxy.http.tunnel import Detached
from proxy.wire.headers import Header

UNREACHABLE = "upstream_unreachable"

# What a client may be told: status and code.
CLIENT_ERRORS: Final = {
    Fault.CONNECT: (502, UNREACHABLE),
    Fault.CONNECT_TIMEOUT: (504, "upstream_timeout"),
    Fault.OVERLOADED: (503, "overloaded"),
    Fault.CLOSED: (502, "upstream_error"),
    Fault.INCOMPLETE: (502, "upstream_error"),
    Fault.READ_TIMEOUT: (504, "upstream_timeout"),
    Fault.WRITE_TIMEOUT: (504, "upstream_timeout"),
    Fault.PROTOCOL_ERROR: (502, "upstream_error"),
}


class UpstreamError(Exception):
    """No answer, or no whole answer: the HTTP status, code and text that a client may be told (no key, no content)."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    @classmethod
    def of(cls, error: TransportError) -> UpstreamError:
        """What a fault means to a client."""
        status, code = CLIENT_ERRORS[error.fault]
        return cls(status, code, str(error))

    def for_client(self) -> ClientError:
        """What the client gets where no byte of an answer went out; OpenAI's clients may try again."""
        after = 1 if self.status == 503 else 0
        return ClientError(self.status, self.message, code=self.code, retry=True, after=after)


class Reply(Protocol):
    """What an answer is made of, wherever it comes from. `read` gives the bytes that came, b"" at the end."""

    status: int
    headers: list[Header]

    async def read(self) -> bytes:
        """Raises TransportError."""

    async def pipe_to(self, sink: Sink) -> None:
        """Gives what comes to `sink` at once, until that says no or there may be no more."""

    def buffered_body(self) -> bytes | None:
        """All that is left, where the whole answer has come; else None."""

    async def aclose(self) -> None:
        """Gives up what has not come."""


class Answer:
    """An upstream's answer: `status`, `headers` (names in lower case) and the raw bytes of its body, read once.

    `whole` says whether its last byte has been read.
    """

    __slots__ = ("_reply", "_unread", "headers", "status", "whole")

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.whole = False
        self._reply = reply
        self._unread = b""

    async def next(self) -> bytes:
        """The bytes that have come since the last call, b"" at the end. Raises UpstreamError when it breaks off."""
        if self._unread:
            unread, self._unread = self._unread, b""
            return unread
        try:
            data = await self._reply.read()
        except TransportError as error:
            raise UpstreamError.of(error) from error
        self.whole = not data
        return data

    def chunks(self) -> Chunks:
        """The body's bytes as they come, from where reading stands."""
        return Chunks(self)

    async def pipe_to(self, sink: Sink) -> None:
        """Gives what comes to `sink` at once, until that says no or there may be no more: `next` tells."""
        await self._reply.pipe_to(sink)

    def buffered_body(self) -> bytes | None:
        """The rest of the body, where all of it has come already; None where it has not."""
        data = None if self._unread else self._reply.buffered_body()
        if data is not None:
            self.whole = True
        return data

    def detach(self) -> Detached:
        """The connection itself, where the answer is 101. Raises UpstreamError where that is lost already."""
        assert isinstance(self._reply, ResponseReader)
        try:
            return self._reply.detach()
        except TransportError as error:
            raise UpstreamError.of(error) from error

    def put_back(self, data: bytes) -> None:
        """Lets bytes that were read be read again."""
        self._unread = data
        self.whole = self.whole and not data

    async def read(self, limit: int) -> bytes:
        """The body, or where it has more than `limit` bytes (`whole` is then False) its beginning: at least so many
        bytes and what came with them. The rest can still be read."""
        parts: list[bytes] = []
        size = 0
        while size <= limit and (chunk := await self.next()):
            parts.append(chunk)
            size += len(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def close(self) -> None:
        """Ends it: if bytes are still to come, the connection is closed, and the upstream sees that nobody listens."""
        if not self.whole:
            await self._reply.aclose()


class Chunks(AsyncIterator[bytes]):
    """What is left of an answer's body; stopping early loses nothing and leaves nothing to clean up."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __anext__(self) -> bytes:
        if chunk := await self._answer.next():
            return chunk
        raise StopAsyncIteration
