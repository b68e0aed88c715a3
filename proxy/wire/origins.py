"""Host, Origin and Sec-Fetch headers: what they say of the web page that a browser sends a request for.

Theory of operation. A page of another site can send requests to any address: `Origin` names that site, and where a
browser sends none, `Sec-Fetch-Site` says so. By DNS rebinding a page can give an address a name of its own: then its
requests are of the same origin, and only `Host` shows a name that is not the server's. An IP address cannot be rebound.
A request without these headers comes from no browser.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence

from proxy.wire.headers import Header, value_of

MARKS = frozenset((b"origin", b"sec-fetch-site"))  # headers that only browsers send
NAVIGATION = (b"navigate", b"document")
# Names of this machine that nobody else can register; the last two are those that containers have for it.
LOCAL = frozenset(("localhost", "host.docker.internal", "host.containers.internal"))
# Pages of programs that somebody has installed, and of extensions of a browser. No web site has such an origin.
INSTALLED = frozenset(
    {
        *(b"app", b"file", b"tauri", b"vscode-webview", b"vscode-file"),  # as Ollama allows them
        *(b"chrome-extension", b"moz-extension", b"safari-web-extension"),
    }
)


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


def is_local(name: str) -> bool:
    """Whether no stranger can give this name an address: it is an IP address, or in `LOCAL`."""
    return name in LOCAL or is_address(name)


def web_host(origin: bytes) -> bytes | None:
    """The host and port of a web site's origin, in lower case; None for any other origin."""
    scheme, _, host = origin.lower().partition(b"://")
    return host if scheme in (b"http", b"https") else None


def is_installed(origin: bytes, listed: Collection[bytes]) -> bool:
    """Whether an origin is listed, or that of an installed program or extension."""
    return origin.lower() in listed or origin.lower().partition(b"://")[0] in INSTALLED


def is_cross_site(headers: Sequence[Header]) -> bool:
    """Whether a browser says that another site, or another origin of the same site, is behind a request."""
    return value_of(headers, b"sec-fetch-site") not in (None, b"same-origin", b"none")


def opens(method: str, path: str, headers: Sequence[Header]) -> bool:
    """Whether somebody followed a link to the page at `/`: the page that has the link reads nothing of it."""
    modes = (value_of(headers, b"sec-fetch-mode"), value_of(headers, b"sec-fetch-dest"))
    return method == "GET" and path == "/" and modes == NAVIGATION
