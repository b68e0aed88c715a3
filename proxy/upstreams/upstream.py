"""The upstream: requests out, answers in; the only module that talks to providers, and the border for what goes wrong.

It changes no byte of a target, of a body or of an answer, follows no redirect and decodes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Protocol

import httpx

from proxy.errors import ClientError, ConfigError
from proxy.http.client.egress import DIRECT, PORTS, Egress
from proxy.http.client.pool import MOST, Pool, Timeouts, WireRequest
from proxy.http.client.response import Fault, LinkError, ResponseReader, Sink
from proxy.http.tunnel import Taken
from proxy.wire.headers import SWITCH, Header, to_upstream, value_of
from proxy.wire.paths import brings_key, takes_key

DEFAULT = Timeouts()
CLIENT_PREFIX = b"/v1"  # what clients have before a path, and what the upstream's URL brings itself
CREDENTIALS = frozenset((b"authorization", b"api-key", b"x-api-key"))
# uvicorn and Node close idle connections after 5 seconds, and a POST that meets the closing is lost. Without TLS
# another connection costs next to nothing.
PLAIN_IDLE = 4.0
CHUNKED = (b"transfer-encoding", b"chunked")

UNREACHABLE = "upstream_unreachable"

# What a client may be told: status and code.
MEANING: Final = {
    Fault.CONNECT: (502, UNREACHABLE),
    Fault.CONNECT_TIMEOUT: (504, "upstream_timeout"),
    Fault.FULL: (503, "overloaded"),
    Fault.CLOSED: (502, "upstream_error"),
    Fault.LOST: (502, "upstream_error"),
    Fault.SILENT: (504, "upstream_timeout"),
    Fault.STALLED: (504, "upstream_timeout"),
    Fault.ILLEGAL: (502, "upstream_error"),
}

# What httpx's exceptions are to us, the most special first.
FAULTS: Final[tuple[tuple[type[httpx.TransportError], Fault], ...]] = (
    (httpx.ConnectTimeout, Fault.CONNECT_TIMEOUT),
    (httpx.WriteTimeout, Fault.STALLED),
    (httpx.TimeoutException, Fault.SILENT),
    (httpx.ConnectError, Fault.CONNECT),
    (httpx.ProxyError, Fault.CONNECT),
    (httpx.ProtocolError, Fault.ILLEGAL),
    (httpx.TransportError, Fault.LOST),
)


class UpstreamError(Exception):
    """No answer, or no whole answer: the HTTP status, code and text that a client may be told (no key, no content)."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    @classmethod
    def of(cls, error: LinkError) -> UpstreamError:
        """What a fault means to a client."""
        status, code = MEANING[error.fault]
        return cls(status, code, str(error))

    def for_client(self) -> ClientError:
        """What the client gets where no byte of an answer went out; OpenAI's clients may try again."""
        after = 1 if self.status == 503 else 0
        return ClientError(self.status, self.message, kind="server_error", code=self.code, retry=True, after=after)


class Reply(Protocol):
    """What an answer is made of, wherever it comes from. `read` gives the bytes that came, b"" at the end."""

    status: int
    headers: list[Header]

    async def read(self) -> bytes:
        """Raises LinkError."""

    async def flow_into(self, sink: Sink) -> None:
        """Gives what comes to `sink` at once, until that says no or there may be no more."""

    def at_hand(self) -> bytes | None:
        """All that is left, where the whole answer has come; else None."""

    async def aclose(self) -> None:
        """Gives up what has not come."""


class Answer:
    """An upstream's answer: `status`, `headers` (names in lower case) and the raw bytes of its body, read once.

    `whole` says whether its last byte has been read.
    """

    __slots__ = ("_held", "_reply", "headers", "status", "whole")

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.whole = False
        self._reply = reply
        self._held = b""

    async def next(self) -> bytes:
        """The bytes that have come since the last call, b"" at the end. Raises UpstreamError when it breaks off."""
        if self._held:
            held, self._held = self._held, b""
            return held
        try:
            data = await self._reply.read()
        except LinkError as error:
            raise UpstreamError.of(error) from error
        self.whole = not data
        return data

    def chunks(self) -> Chunks:
        """The body's bytes as they come, from where reading stands."""
        return Chunks(self)

    async def flow_into(self, sink: Sink) -> None:
        """Gives what comes to `sink` at once, until that says no or there may be no more: `next` tells."""
        await self._reply.flow_into(sink)

    def at_hand(self) -> bytes | None:
        """The rest of the body, where all of it has come already; None where it has not."""
        data = None if self._held else self._reply.at_hand()
        if data is not None:
            self.whole = True
        return data

    def take(self) -> Taken:
        """The connection itself, where the answer is 101. Raises UpstreamError where that is lost already."""
        assert isinstance(self._reply, ResponseReader)
        try:
            return self._reply.take()
        except LinkError as error:
            raise UpstreamError.of(error) from error

    def put_back(self, data: bytes) -> None:
        """Lets bytes that were read be read again."""
        self._held = data
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


class Upstream:
    """A provider at a base URL.

    A client's path loses its `/v1` and is appended to the base's: with `https://api.openai.com/v1` the target
    `/v1/models?x` is sent as it is, with `http://host:8000` it becomes `/models?x`, and a path that does not
    begin with `/v1/` is appended whole. Raises ConfigError where the URL is none that can be sent to.

    Connections are our own (`pool`), and leave as `egress` says, unless a `transport` of httpx's interface is given.
    """

    def __init__(
        self,
        base: str,
        timeouts: Timeouts = DEFAULT,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        egress: Egress = DIRECT,
        connections: int = MOST,
    ) -> None:
        self._url = _base_url(base)
        self._path = self._url.raw_path.rstrip(b"/")
        self._host = (b"host", self._url.netloc)
        self._key = f"Bearer {api_key}".encode() if api_key else b""
        self._link: Pool | _OverHttpx = (
            _pool(self._url, timeouts, egress, connections)
            if transport is None
            else _OverHttpx(transport, self._url, timeouts)
        )

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None = None,
    ) -> Answer:
        """Sends a client's request and waits for the head of the answer.

        `target` is the client's own, `headers` are as the client sent them: what may not be forwarded is left out
        here, and the length is set to the body's. A streamed body is sent as it comes, under the client's
        content-length or in chunks; what it raises is raised here. Otherwise raises UpstreamError. Our own key goes
        along where the client sent none and the endpoint is one that it is meant for (`takes_key`).
        """
        ready = self._headers(method, target, headers, body)
        try:
            return Answer(await self._link.send(WireRequest(method, self.target(target), ready, body or b"")))
        except LinkError as error:
            raise UpstreamError.of(error) from error

    async def upgrade(self, target: bytes, headers: Sequence[Header]) -> Answer:
        """Sends a client's WebSocket handshake: the answer is 101, and its connection may be taken, or says why not.
        Otherwise as `send`."""
        ready = [*self._headers("GET", target, headers, None), *SWITCH]
        try:
            return Answer(await self._link.send(WireRequest("GET", self.target(target), ready, b"", upgrades=True)))
        except LinkError as error:
            raise UpstreamError.of(error) from error

    def target(self, target: bytes) -> bytes:
        """The target as the upstream gets it: behind the base's path, otherwise the client's own bytes."""
        rest = target[len(CLIENT_PREFIX) :]
        if target.startswith(CLIENT_PREFIX) and rest[:1] in (b"/", b"?", b""):
            return (self._path + rest) if self._path or rest.startswith(b"/") else b"/" + rest
        return self._path + target

    def _headers(
        self, method: str, target: bytes, headers: Sequence[Header], body: bytes | AsyncIterator[bytes] | None
    ) -> list[Header]:
        ours = [self._host, *to_upstream(headers)]
        if self._key and self._lends_key(method, target, headers):
            ours.append((b"authorization", self._key))
        length = value_of(ours, b"content-length")
        if body is not None and not isinstance(body, bytes):
            return ours if length is not None else [*ours, CHUNKED]
        right = b"%d" % len(body) if body else b"0"
        if length == right or (length is None and body is None):
            return ours
        return [*(h for h in ours if h[0] != b"content-length"), (b"content-length", right)]

    def _lends_key(self, method: str, target: bytes, headers: Sequence[Header]) -> bool:
        """As received: a client that hides its own key from us (`connection: authorization`) does not get ours."""
        if any(name in CREDENTIALS for name, _ in headers) or not takes_key(method, target):
            return False
        return not brings_key(target, headers)

    @property
    def has_key(self) -> bool:
        """Whether it has a key of its own for clients that send none."""
        return bool(self._key)

    @property
    def connections(self) -> int:
        """How many connections of our own are open."""
        return len(self._link) if isinstance(self._link, Pool) else 0

    @property
    def proxy(self) -> str:
        """Host and port of the forward proxy before it, if there is one."""
        return self._link.proxy if isinstance(self._link, Pool) else ""

    async def close(self) -> None:
        """Closes its connections."""
        await self._link.close()


def _base_url(base: str) -> httpx.URL:
    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise ConfigError(f"the upstream's URL is none: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError("the upstream must be an http or https URL without password, query and fragment")
    return url


def _pool(url: httpx.URL, timeouts: Timeouts, egress: Egress, most: int) -> Pool:
    host, plain = url.raw_host.decode("ascii"), url.scheme == "http"
    port = url.port or PORTS[url.scheme]
    proxy = egress.proxy_for(url.scheme, host, port, httpx.create_ssl_context)
    if plain:
        if egress.certificate or egress.key:
            raise ConfigError("PLIMSOLL_UPSTREAM_CERT and PLIMSOLL_UPSTREAM_KEY need an https upstream")
        return Pool(host, port, None, replace(timeouts, idle=min(timeouts.idle, PLAIN_IDLE)), proxy, most)
    # certifi's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR
    tls = egress.identified(egress.trusting(httpx.create_ssl_context()))
    tls.set_alpn_protocols(["http/1.1"])
    return Pool(host, port, tls, timeouts, proxy, most)


class _OverHttpx:
    """Sends over a transport of httpx's interface, which must heed the extension `target`, as httpx's own does."""

    def __init__(self, transport: httpx.AsyncBaseTransport, url: httpx.URL, timeouts: Timeouts) -> None:
        self._transport, self._url = transport, url
        self._timeout = {**asdict(timeouts), "pool": timeouts.connect}

    async def send(self, wired: WireRequest) -> Reply:
        if wired.upgrades:
            raise LinkError(Fault.CONNECT, "Connections of httpx cannot be taken over.")
        request = httpx.Request(
            wired.method,
            self._url,
            headers=wired.headers,
            stream=_Outgoing(wired.body),
            extensions={"target": wired.target, "timeout": self._timeout},
        )
        try:
            return _Incoming(await self._transport.handle_async_request(request))
        except httpx.TransportError as error:
            raise _fault(error) from error

    async def close(self) -> None:
        await self._transport.aclose()


class _Outgoing(httpx.AsyncByteStream):
    def __init__(self, body: bytes | AsyncIterator[bytes]) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        async for chunk in self._body:
            yield chunk


class _Incoming:
    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.status = response.status_code
        self.headers = [(name.lower(), value) for name, value in response.headers.raw]
        self._stream = response.stream
        self._chunks: Any = aiter(response.stream)

    async def read(self) -> bytes:
        try:
            while True:
                if chunk := await anext(self._chunks):
                    return bytes(chunk)
        except StopAsyncIteration:
            return b""
        except httpx.TransportError as error:
            raise _fault(error) from error

    async def flow_into(self, sink: Sink) -> None:
        return  # httpx has nothing to flow

    def at_hand(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        await self._stream.aclose()


def _fault(error: httpx.TransportError) -> LinkError:
    fault = next(fault for kind, fault in FAULTS if isinstance(error, kind))
    return LinkError(fault, f"The upstream failed: {fault.value}.")
