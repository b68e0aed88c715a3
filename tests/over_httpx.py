"""An upstream's link over a transport of httpx: `httpx.MockTransport` answers in a test without a socket."""

from __future__ import annotations

from typing import Any

import httpx

from proxy.http.client.pool import WireRequest
from proxy.http.client.response import Fault, Sink, TransportError


class OverHttpx:
    """Sends requests to a transport; their bodies are whole. Every failure of the transport is one to connect."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def send(self, request: WireRequest) -> Incoming:
        """The transport's answer."""
        assert isinstance(request.body, bytes)
        sent = httpx.Request(
            request.method,
            "https://upstream" + request.target.decode("ascii"),
            headers=request.headers,
            content=request.body,
            extensions={"target": request.target},
        )
        try:
            return Incoming(await self._transport.handle_async_request(sent))
        except httpx.TransportError as error:
            raise TransportError(Fault.CONNECT, "no connection") from error

    async def close(self) -> None:
        """Closes the transport."""
        await self._transport.aclose()


class Incoming:
    """An answer of httpx."""

    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.status = response.status_code
        self.headers = [(name.lower(), value) for name, value in response.headers.raw]
        self._stream = response.stream
        self._chunks: Any = aiter(response.stream)

    async def read(self) -> bytes:
        """The next chunk, b"" at the end."""
        async for chunk in self._chunks:
            if chunk:
                return bytes(chunk)
        return b""

    async def pipe_to(self, sink: Sink) -> None:
        """It has nothing to flow."""

    def buffered_body(self) -> bytes | None:
        """Nothing is known to have come."""
        return None

    async def aclose(self) -> None:
        """Gives the rest up."""
        await self._stream.aclose()
