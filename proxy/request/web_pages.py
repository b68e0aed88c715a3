"""Which requests of web pages the data port serves: none of a stranger's where that would spend or read something.

Theory of operation. A client has a key of its own, or it is served with the operator's key, or by an upstream that
takes no key. Any page that a browser shows can make requests of the last two kinds, so they are refused if they are
made for a page of another origin (`wire/origins.py`).

* A near port is one of this machine: it listens on loopback, or `PLIMSOLL_HOSTS` says under which names it is reached
  (a container's port that is published on loopback). There every request must have a `Host` of its own, also one with a
  key: after DNS rebinding a page can send any header. A key counts only as a header, which no page can send across
  origins without a preflight, and no preflight of a stranger is passed on.
* Any other port serves a stranger's page, unless that would be lent the operator's key. Its `Host` is whatever the
  ingress before it has, and proves nothing: an `Origin` that equals it is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.apis.paths import takes_key
from proxy.config.settings import Settings
from proxy.errors import ClientError
from proxy.http.receiving import Scope, target_of
from proxy.request.learned_endpoint import is_loopback
from proxy.wire.headers import CREDENTIALS, Header, value_of
from proxy.wire.origins import MARKS, is_cross_site, is_installed, is_local, name_of, opens, web_host
from proxy.wire.paths import brings_key

MAX_HOSTS = 64  # values of Host that were found to be ours and are not parsed again
WANTED_METHOD, WANTED_HEADERS = b"access-control-request-method", b"access-control-request-headers"  # of a preflight


@dataclass(frozen=True, slots=True)
class WebPages:
    """Refuses requests for web pages of strangers. `near`: whether `Host` must be ours; `hosts` are our names besides
    those that we always have, `origins` are those of pages that may do what other clients may."""

    near: bool = False
    hosts: frozenset[str] = frozenset()
    origins: frozenset[bytes] = frozenset()
    _seen: set[bytes] = field(default_factory=set)

    def check(self, scope: Scope, lends: bool) -> None:
        """Raises `ClientError` for a request that is not served. `lends`: requests without a key get the operator's."""
        if not (self.near or lends):
            return
        headers = scope["headers"]
        names = dict(headers)  # for all but a few requests two look-ups are enough
        if self.near and (host := names.get(b"host", b"")) not in self._seen:
            self._check_host(host)
        if MARKS.isdisjoint(names):
            return
        if self.is_strange(headers) and not opens(scope["method"], scope["path"], headers):
            if not self._may_pass(scope["method"], target_of(scope), headers):
                raise foreign_origin()

    def _check_host(self, host: bytes) -> None:
        """A request without a host comes from no browser."""
        if host and not self._is_ours(host):
            raise foreign_host()
        if len(self._seen) < MAX_HOSTS:  # clients choose them
            self._seen.add(host)

    def _is_ours(self, host: bytes) -> bool:
        name = name_of(host)
        return is_local(name) or name in self.hosts

    def is_strange(self, headers: Sequence[Header]) -> bool:
        """Whether a request is made for a page of another origin that is not listed."""
        origin = value_of(headers, b"origin")
        if origin is None:
            return is_cross_site(headers)
        if is_installed(origin, self.origins):
            return False
        host = value_of(headers, b"host") or b""
        return web_host(origin) != host.lower().strip() or not self._is_ours(host)

    def _may_pass(self, method: str, target: bytes, headers: Sequence[Header]) -> bool:
        """Whether a stranger's page spends nothing by a request: it has a key of its own, or gets none of ours."""
        keyed = any(name in CREDENTIALS and not _is_password(value) for name, value in headers)
        if keyed or self.near:
            return keyed
        if method == "OPTIONS" and (wanted := value_of(headers, WANTED_METHOD)) is not None:
            method = wanted.decode("latin-1")
            named = (value_of(headers, WANTED_HEADERS) or b"").lower().split(b",")
            keyed = any(name.strip() in CREDENTIALS for name in named)
        return keyed or brings_key(target, headers) or not takes_key(method, target)


def _is_password(value: bytes) -> bool:
    """Whether it is no key, but what a browser sends by itself: a page can put a password into a link's address."""
    return value[:6].lower() == b"basic "


def foreign_host() -> ClientError:
    """A request has a `Host` that is not ours: its name may have been rebound."""
    text = "This name is not one of the proxy's own: use an IP address or localhost, or name it in PLIMSOLL_HOSTS."
    return ClientError(403, text, code="foreign_host")


def foreign_origin() -> ClientError:
    """A browser sends a request for a page of another origin."""
    text = "A page of another origin may not use this proxy, unless PLIMSOLL_ORIGINS names it."
    return ClientError(403, text, code="foreign_origin")


def web_pages(settings: Settings) -> WebPages:
    """The rules of a data port with these settings."""
    near = bool(settings.hosts) or is_loopback(settings.host)
    return WebPages(near, frozenset(settings.hosts), frozenset(origin.encode() for origin in settings.origins))
