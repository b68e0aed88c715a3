"""The upstream: requests out, answers in, and the border for what goes wrong. Only `litellm` is another way out.

It changes no byte of a target, of a body or of an answer, follows no redirect and decodes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

import httpx

from proxy.apis import servers
from proxy.apis.paths import takes_key
from proxy.errors import ConfigError
from proxy.http.callbacks import Event, ignore
from proxy.http.client.answer import KEY_REFUSED, Answer, Reply, UpstreamError
from proxy.http.client.egress import DIRECT, PORTS, Egress
from proxy.http.client.pool import MAX_CONNECTIONS, Pool, Timeouts, WireRequest
from proxy.http.client.response import TransportError
from proxy.upstreams.access import Access, response_headers
from proxy.wire.headers import CREDENTIALS, SWITCH, Header, to_upstream, value_of
from proxy.wire.paths import brings_key

DEFAULT = Timeouts()
Body = bytes | AsyncIterator[bytes] | None  # of a request; None: there is none
CLIENT_PREFIX = b"/v1"  # what clients have before a path, and what the upstream's URL brings itself
USUAL = CLIENT_PREFIX + b"/"
BESIDE = tuple(root.encode() for server in servers().values() if server.beside for root in server.roots)
# uvicorn and Node close idle connections after 5 seconds, and a POST that meets the closing is lost. Without TLS
# another connection costs next to nothing.
PLAIN_IDLE = 4.0
CHUNKED = (b"transfer-encoding", b"chunked")
UNAUTHORIZED, FORBIDDEN = 401, 403
REFUSED_KEY = "The upstream refused the key that the proxy's operator gave it."
REFUSED_REQUEST = "The upstream did not permit this request with the key that the proxy's operator gave it."


class Link(Protocol):
    """What sends requests to one origin: a pool of connections."""

    async def send(self, request: WireRequest) -> Reply:
        """Sends a request and waits for the head of its answer. Raises TransportError."""

    async def close(self) -> None:
        """Closes its connections."""


class Sender(Protocol):
    """What requests are sent to: an `Upstream`, or a library that translates them."""

    async def send(self, method: str, target: bytes, headers: Sequence[Header], body: Body = None) -> Answer:
        """Sends a request and waits for the head of its answer. Raises UpstreamError."""

    async def upgrade(self, target: bytes, headers: Sequence[Header]) -> Answer:
        """Sends a WebSocket's handshake. Raises UpstreamError."""

    @property
    def has_key(self) -> bool:
        """Whether the operator pays for its requests."""

    async def close(self) -> None:
        """Closes its connections."""


class Upstream:
    """A provider at a base URL.

    A client's path loses its `/v1` and is appended to the base's: with `https://api.openai.com/v1` the target
    `/v1/models?x` is sent as it is, with `http://host:8000` it becomes `/models?x`, and a path that does not
    begin with `/v1/` is appended whole; one that such servers have beside their `/v1` (`proxy.model.server`) stands
    beside the base's. Raises ConfigError where the URL is none that can be sent to.

    Connections leave as `egress` says, unless a `link` is given that has its own way. With `access` it is another
    upstream than the clients' own: no credential of a client goes to it (`proxy.upstreams.access`).
    """

    def __init__(
        self,
        base: str,
        timeouts: Timeouts = DEFAULT,
        api_key: str | None = None,
        egress: Egress = DIRECT,
        connections: int = MAX_CONNECTIONS,
        event: Event = ignore,
        link: Link | None = None,
        access: Access | None = None,
    ) -> None:
        self._url = _base_url(base)
        self.base_path = self._url.raw_path.rstrip(b"/")
        self._host = (b"host", self._url.netloc)
        self.use_key(api_key)
        self.access = access
        self._link: Link = link or _pool(self._url, timeouts, egress, connections, event)

    def use_key(self, api_key: str | None) -> None:
        """Sends this key from now on with requests that came without one; None: no key."""
        self._key = f"Bearer {api_key}".encode() if api_key else b""

    async def send(self, method: str, target: bytes, headers: Sequence[Header], body: Body = None) -> Answer:
        """Sends a client's request and waits for the head of the answer.

        `target` is the client's own, `headers` are as the client sent them: what may not be forwarded is left out
        here, and the length is set to the body's. A streamed body is sent as it comes, under the client's
        content-length or in chunks; what it raises is raised here. Otherwise raises UpstreamError. Our own key goes
        along where the client sent none and the endpoint is one that it is meant for (`takes_key`).
        """
        ready = self._headers(method, target, headers, body)
        try:
            answer = Answer(await self._link.send(WireRequest(method, self.target(target), ready, body or b"")))
        except TransportError as error:
            raise UpstreamError.of(error) from error
        return answer if self.access is None else await self._checked(answer)

    async def upgrade(self, target: bytes, headers: Sequence[Header]) -> Answer:
        """Sends a client's WebSocket handshake: the answer is 101, and its connection may be taken, or says why not.
        Otherwise as `send`."""
        ready = [*self._headers("GET", target, headers, None), *SWITCH]
        try:
            answer = Answer(await self._link.send(WireRequest("GET", self.target(target), ready, b"", upgrades=True)))
        except TransportError as error:
            raise UpstreamError.of(error) from error
        return answer if self.access is None else await self._checked(answer)

    async def _checked(self, answer: Answer) -> Answer:
        """The answer of another upstream than the clients' own. Raises UpstreamError where it refuses the operator's
        key: its words may contain a part of the key, and the client's own key is not meant."""
        if self.has_key and answer.status in (UNAUTHORIZED, FORBIDDEN):
            await answer.close()
            raise refused_key(answer.status)
        answer.headers = response_headers(answer.headers, keyed=self.has_key)
        return answer

    def target(self, target: bytes) -> bytes:
        """The target as the upstream gets it: behind the base's path, otherwise the client's own bytes."""
        if self.access is not None:
            target = self.access.target(target)
        if target.startswith(USUAL):
            return self.base_path + target[len(CLIENT_PREFIX) :]
        if target.startswith(BESIDE):
            return self.base_path.removesuffix(CLIENT_PREFIX) + target
        rest = target[len(CLIENT_PREFIX) :]
        if target.startswith(CLIENT_PREFIX) and rest[:1] in (b"?", b""):
            return (self.base_path + rest) if self.base_path else b"/" + rest
        return self.base_path + target

    def _headers(self, method: str, target: bytes, headers: Sequence[Header], body: Body) -> list[Header]:
        if self.access is not None:
            ours = [self._host, *self.access.request_headers(method, target, headers)]
        else:
            ours = [self._host, *to_upstream(headers)]
            if self._key and self._lends_key(method, target, headers):
                ours.append((b"authorization", self._key))
        if body is not None and not isinstance(body, bytes):
            return ours if value_of(ours, b"content-length") is not None else [*ours, CHUNKED]
        right = (b"content-length", b"%d" % len(body) if body else b"0")
        if right in ours:  # a client's own: the server takes one only
            return ours
        others = [h for h in ours if h[0] != b"content-length"]
        return ours if body is None and len(others) == len(ours) else [*others, right]

    def _lends_key(self, method: str, target: bytes, headers: Sequence[Header]) -> bool:
        """As received: a client that hides its own key from us (`connection: authorization`) does not get ours."""
        if any(name in CREDENTIALS for name, _ in headers) or not takes_key(method, target):
            return False
        return not brings_key(target, headers)

    @property
    def has_key(self) -> bool:
        """Whether it has a key of the operator's."""
        return bool(self._key) if self.access is None else self.access.key is not None

    @property
    def server(self) -> str:
        """The host of its URL, in lower case."""
        return self._url.host.lower()

    def beside(self, ending: str) -> Upstream:
        """The same upstream with a base path that lacks this ending. It has the same connections and keys."""
        other = copy.copy(self)
        other.base_path = self.base_path.removesuffix(ending.encode())
        return other

    @property
    def in_use(self) -> int:
        """The number of requests under way."""
        return self._link.in_use if isinstance(self._link, Pool) else 0

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


def refused_key(status: int) -> UpstreamError:
    """What a client is told where an upstream refused the operator's key, in words of ours."""
    return UpstreamError(502, KEY_REFUSED, REFUSED_KEY if status == UNAUTHORIZED else REFUSED_REQUEST)


def httpx_timeout(timeouts: Timeouts) -> httpx.Timeout:
    """These timeouts as libraries over httpx take them."""
    return httpx.Timeout(timeouts.read, connect=timeouts.connect, write=timeouts.write)


def _base_url(base: str) -> httpx.URL:
    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise ConfigError(f"the upstream's URL is none: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError("the upstream must be an http or https URL without password, query and fragment")
    return url


def _pool(url: httpx.URL, timeouts: Timeouts, egress: Egress, most: int, event: Event) -> Pool:
    host, plain = url.raw_host.decode("ascii"), url.scheme == "http"
    port = url.port or PORTS[url.scheme]
    proxy = egress.proxy_for(url.scheme, host, port, httpx.create_ssl_context)
    if plain:
        if egress.certificate or egress.key:
            raise ConfigError(f"{egress.names[1]} and {egress.names[2]} need an https URL")
        return Pool(host, port, None, replace(timeouts, idle=min(timeouts.idle, PLAIN_IDLE)), proxy, most, event)
    # certifi's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR
    tls = egress.with_client_certificate(egress.with_authorities(httpx.create_ssl_context()))
    tls.set_alpn_protocols(["http/1.1"])
    return Pool(host, port, tls, timeouts, proxy, most, event)
