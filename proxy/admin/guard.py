"""Who may use the proxy's own paths: no other web page, whatever name it gives this address (`wire/origins.py`), and
beyond loopback nobody without a token. It adds the headers that protect responses in browsers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from proxy.apis import error_body
from proxy.errors import ClientError
from proxy.http.receiving import Receive, Scope
from proxy.http.relay import Send, send_error
from proxy.request.web_pages import foreign_host
from proxy.wire.headers import Header, value_of
from proxy.wire.origins import is_cross_site, is_local, name_of, opens, web_host

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
# Names that nobody can register: those of a cluster, and of a private network.
PRIVATE = (".svc", ".svc.cluster.local", ".local", ".internal")
PLAIN = "/"  # the path by which errors have their plain shape, and not that of an API
NOTHING = "default-src 'none'; frame-ancestors 'none'"
PROTECTION: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NAMES = frozenset(name for name, _ in PROTECTION)

OPEN = frozenset(("/metrics", "/healthz", "/readyz"))
FOREIGN_HOST = foreign_host()
TOKEN_UNSET = ClientError(
    403,
    "Others than this machine reach this port: without PLIMSOLL_ADMIN_TOKEN it has metrics and health only.",
    code="token_unset",
)
FOREIGN_ORIGIN = ClientError(403, "A page of another site may not use this path.", code="foreign_origin")


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses what comes from pages of other sites. `names`: further names of this proxy, also in origins. `private`:
    names without a dot and those of `PRIVATE` are its names, too: the port is reached from other machines. `hosts`:
    names that `Host` may have besides. `shut`: others reach the port and no token is set, so only `OPEN`
    is served."""

    names: frozenset[str] = frozenset()
    private: bool = False
    hosts: frozenset[str] = frozenset()
    shut: bool = False

    def refusal(self, scope: Scope) -> ClientError | None:
        """The error for a request that may not use any of the proxy's own paths; None if it may."""
        headers = scope["headers"]
        host = value_of(headers, b"host")
        if host and not self.is_own(name_of(host)):
            return FOREIGN_HOST
        origin = value_of(headers, b"origin")
        if origin is not None and not self._is_same(origin, host or b""):
            return FOREIGN_ORIGIN
        if is_cross_site(headers) and not opens(scope["method"], scope["path"], headers):
            return FOREIGN_ORIGIN
        if self.shut and posixpath.normpath("/" + scope["path"].lstrip("/")) not in OPEN:
            return TOKEN_UNSET
        return None

    def is_own(self, name: str) -> bool:
        """Whether a name is one of this proxy."""
        if is_local(name) or name in self.names or name in self.hosts:
            return True
        return self.private and ("." not in name or name.endswith(PRIVATE))

    def _is_same(self, origin: bytes, host: bytes) -> bool:
        """Whether an origin is the page that this proxy serves: it has the name of the request, or one of `names`."""
        site = web_host(origin)
        return site is not None and (site == host.lower().strip() or name_of(site) in self.names)

    def protected(self, handler: Asgi) -> Asgi:
        """The handler behind this guard. Its responses have the headers that protect them."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            async def with_protection(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": protect(message.get("headers", ()))}
                await send(message)

            refusal = self.refusal(scope)
            if refusal is not None:
                await send_error(with_protection, refusal, error_body(PLAIN, refusal))
            else:
                await handler(scope, receive, with_protection)

        return guarded


def protect(headers: Any) -> list[Header]:
    """The headers of a response with those that protect it, and with a policy that permits nothing if it has none."""
    kept = [(name, value) for name, value in headers if name not in NAMES]
    if not any(name == b"content-security-policy" for name, _ in kept):
        kept.append((b"content-security-policy", NOTHING.encode()))
    return [*kept, *PROTECTION]
