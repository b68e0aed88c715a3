"""The collector of traces: one URL that exports are posted to (OTLP over HTTP)."""

from __future__ import annotations

import asyncio
import gzip
from urllib.parse import urlsplit

from proxy import __version__
from proxy.config.otel import GZIP, JSON, TraceSettings
from proxy.http.client.answer import UpstreamError
from proxy.http.client.egress import Egress
from proxy.http.client.pool import Timeouts
from proxy.upstreams.upstream import Upstream
from proxy.wire.headers import Header

MAX_RESPONSE = 65_536  # bytes; the rest is not read
CONTENT_TYPES = {JSON: b"application/json"}
PROTOBUF_TYPE = b"application/x-protobuf"


class Collector:
    """The collector that the settings name, through the forward proxies of `egress`. Raises ConfigError where it cannot
    be sent to."""

    def __init__(self, settings: TraceSettings, egress: Egress) -> None:
        timeouts = Timeouts(settings.timeout, settings.timeout, settings.timeout)
        self._upstream = Upstream(settings.url, timeouts, egress=egress, connections=1)
        path = urlsplit(settings.url).path
        self._target = b"/" if not path or path.endswith("/") else b""  # behind the URL, which is used as it is
        self._timeout = settings.timeout
        self._packs = settings.compression == GZIP
        self._headers: list[Header] = [
            (b"user-agent", b"plimsoll/" + __version__.encode()),
            (b"content-type", CONTENT_TYPES.get(settings.protocol, PROTOBUF_TYPE)),
            *((name.encode(), value.encode()) for name, value in settings.headers),
        ]
        if self._packs:
            self._headers.append((b"content-encoding", b"gzip"))

    def packed(self, body: bytes) -> bytes:
        """A body as it is sent."""
        return gzip.compress(body, 1) if self._packs else body

    async def post(self, body: bytes) -> int:
        """Posts a packed body, and returns the status of the response; 0 if there is none in time."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._upstream.send("POST", self._target, self._headers, body)
                try:
                    await answer.read(MAX_RESPONSE)
                finally:
                    await answer.close()
        except (UpstreamError, TimeoutError):
            return 0
        return answer.status

    async def close(self) -> None:
        """Closes its connections."""
        await self._upstream.close()
