"""Questions of our own to an upstream, on behalf of a client: with its own headers, where it may see them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from proxy.serve.listing import Headers
from proxy.serve.upstream import CREDENTIALS, Upstream
from proxy.wire.headers import Header

# Headers that speak of the client's own body and request.
NOT_OURS = (b"content-", b"accept", b"transfer-", b"if-", b"idempotency-", b"x-request-id")
JSON: Header = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Asking:
    """Who is asked. `foreign`: it is not the upstream that clients talk to, and must not see their headers."""

    upstream: Upstream
    foreign: bool = False

    async def post(self, target: bytes, body: bytes, headers: Headers, limit: int) -> tuple[int, bytes]:
        """The status of the answer, and its body or the beginning of it (over `limit` bytes). Raises UpstreamError."""
        ours = [] if self.foreign else [h for h in headers if not h[0].startswith(NOT_OURS)]
        answer = await self.upstream.send("POST", target, [*ours, JSON], body)
        try:
            return answer.status, await answer.read(limit)
        finally:
            await answer.close()

    async def close(self) -> None:
        """Closes the connections that are of nobody else."""
        if self.foreign:
            await self.upstream.close()


def caller_of(headers: Headers) -> bytes:
    """On whose behalf it is asked: a digest of a request's credentials."""
    made = blake2b(digest_size=16)
    for name, value in sorted(header for header in headers if header[0] in CREDENTIALS):
        made.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    return made.digest()
