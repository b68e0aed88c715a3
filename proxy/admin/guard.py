"""Who may use the proxy's own paths: no other web page, whatever name it gives this address. It adds the headers that
say so to browsers.

Theory of operation. A page of another site can send requests to any address (it cannot read the answers without a CORS
header, and there is none), and by DNS rebinding it can give this address a name of its own, so that it reads them too.
The first is seen by `Origin` and `Sec-Fetch-Site`, the second by `Host`: it has a name that is not ours. An IP address
cannot be rebound, so probes and scrapes by address work. A request without these headers comes from no browser.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from proxy.apis import error_body
from proxy.errors import ClientError
from proxy.http.relay import Receive, Scope, Send, send_error
from proxy.wire.headers import Header, value_of

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
NAVIGATION = (b"navigate", b"document")
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

FOREIGN_HOST = ClientError(
    403,
    "This name is not one of the proxy's own: use an IP address or localhost, or name it in PLIMSOLL_ADMIN_NAMES.",
    code="foreign_host",
)
FOREIGN_ORIGIN = ClientError(403, "A page of another site may not use this path.", code="foreign_origin")


def name_of(host: bytes) -> str:
    """The name or address of a Host header, or of what follows the scheme of an origin; without the port."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses what comes from pages of other sites. `names`: further names of this proxy. `private`: names without a
    dot and those of `PRIVATE` are its names, too: the port is reached from other machines."""

    names: frozenset[str] = frozenset()
    private: bool = False

    def refusal(self, scope: Scope) -> ClientError | None:
        """The error for a request that may not use any of the proxy's own paths; None if it may."""
        headers = scope["headers"]
        host = value_of(headers, b"host")
        if host and not self.is_own(name_of(host)):
            return FOREIGN_HOST
        origin = value_of(headers, b"origin")
        if origin is not None and not self._is_same(origin, host or b""):
            return FOREIGN_ORIGIN
        site = value_of(headers, b"sec-fetch-site")
        if site not in (None, b"same-origin", b"none") and not _opens(scope):
            return FOREIGN_ORIGIN
        return None

    def is_own(self, name: str) -> bool:
        """Whether a name is one of this proxy."""
        if is_address(name) or name == "localhost" or name.endswith(".localhost") or name in self.names:
            return True
        return self.private and ("." not in name or name.endswith(PRIVATE))

    def _is_same(self, origin: bytes, host: bytes) -> bool:
        """Whether an origin is the page that this proxy serves: it has the name of the request, or one of `names`."""
        scheme, _, rest = origin.lower().partition(b"://")
        if scheme not in (b"http", b"https"):
            return False
        return rest == host.lower().strip() or name_of(rest) in self.names

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


def _opens(scope: Scope) -> bool:
    """Whether somebody followed a link to the page itself: that reads nothing."""
    headers = scope["headers"]
    modes = (value_of(headers, b"sec-fetch-mode"), value_of(headers, b"sec-fetch-dest"))
    return scope["method"] == "GET" and scope["path"] == "/" and modes == NAVIGATION
