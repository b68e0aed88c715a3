"""An upstream's response for its consumers, and the mapping of transport errors to errors for the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

from proxy.errors import ClientError
from proxy.http.client.response import Fault, ResponseReader, Sink, TransportError
from proxy.http.tunnel import Detached
from proxy.wire.headers import Header

UNREACHABLE = "upstream_unreachable"
KEY_REFUSED = "upstream_key_refused"  # a key of the operator's

SEE_LOG = "see the proxy's log"  # the client is not told which host it is

# The status and code that a client gets for each fault.
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
    """The upstream sent no response, or an incomplete one. `status`, `code` and `message` are for the client: they
    contain no key and no content."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    @property
    def unconnected(self) -> bool:
        """Whether there was no connection at all."""
        cause = self.__cause__
        return isinstance(cause, TransportError) and cause.fault in (Fault.CONNECT, Fault.CONNECT_TIMEOUT)

    @classmethod
    def of(cls, error: TransportError) -> UpstreamError:
        """Converts a transport error."""
        status, code = CLIENT_ERRORS[error.fault]
        return cls(status, code, str(error))

    def for_client(self) -> ClientError:
        """The error for a client that has received no byte of a response. OpenAI's clients may retry it, unless the
        operator's key was refused: it is refused again."""
        after = 1 if self.status == 503 else 0
        said = self.message
        if self.code == UNREACHABLE:
            stop = "." if said.endswith(".") else ""
            said = f"{said.removesuffix('.')} ({SEE_LOG}){stop}"
        return ClientError(self.status, said, code=self.code, retry=self.code != KEY_REFUSED, after=after)


class Reply(Protocol):
    """The source of a response: a `ResponseReader`, or that of another client library. Names of headers are in lower
    case."""

    status: int
    headers: list[Header]

    async def read(self) -> bytes:
        """Returns the bytes received since the last call, b"" at the end. Raises TransportError."""

    async def pipe_to(self, sink: Sink) -> None:
        """Passes received bytes to `sink` until it returns False, or until the end or an error, which `read`
        reports."""

    def buffered_body(self) -> bytes | None:
        """Returns the rest of the body if the whole response has been received, else None. Never waits."""

    async def aclose(self) -> None:
        """Discards the rest of the response."""


class Answer:
    """An upstream's response: `status`, `headers` (names in lower case), and the raw bytes of the body, which can be
    read once. `whole`: the last byte has been read."""

    __slots__ = ("_reply", "_unread", "headers", "status", "whole")

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.whole = False
        self._reply = reply
        self._unread = b""

    async def next(self) -> bytes:
        """Returns the bytes received since the last call, b"" at the end. Raises UpstreamError if the response is
        incomplete."""
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
        """Returns an iterator over the unread bytes of the body, as they arrive."""
        return Chunks(self)

    async def pipe_to(self, sink: Sink) -> None:
        """Passes received bytes to `sink` until it returns False, or until the end or an error, which `next`
        reports."""
        await self._reply.pipe_to(sink)

    def buffered_body(self) -> bytes | None:
        """Returns the rest of the body if all of it has been received, else None. Never waits."""
        data = None if self._unread else self._reply.buffered_body()
        if data is not None:
            self.whole = True
        return data

    def detach(self) -> Detached:
        """Detaches the connection of a 101 response. Raises UpstreamError if the connection is lost."""
        assert isinstance(self._reply, ResponseReader)
        try:
            return self._reply.detach()
        except TransportError as error:
            raise UpstreamError.of(error) from error

    def unread(self, data: bytes) -> None:
        """Puts bytes back, so that they are read again."""
        self._unread = data
        self.whole = self.whole and not data

    async def read(self, limit: int) -> bytes:
        """Returns the body. If the body exceeds `limit` bytes, returns its beginning, which may be longer than `limit`;
        `whole` is then False, and the rest can still be read."""
        parts: list[bytes] = []
        size = 0
        while size <= limit and (chunk := await self.next()):
            parts.append(chunk)
            size += len(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def close(self) -> None:
        """Closes the response. If it is incomplete, closes the connection, so that the upstream stops generating."""
        if not self.whole:
            await self._reply.aclose()


class Chunks(AsyncIterator[bytes]):
    """Iterates over the unread bytes of a response's body. Stopping early loses no bytes and needs no cleanup."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __anext__(self) -> bytes:
        if chunk := await self._answer.next():
            return chunk
        raise StopAsyncIteration
