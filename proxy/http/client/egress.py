"""Settings of outgoing connections: the forward proxy, additional certificate authorities and the client certificate.

It opens no connection. Errors name the setting, never a proxy's URL, because the URL may contain a password.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from proxy.errors import ConfigError
from proxy.http.client.dialer import Address, Proxy

PORTS = {"http": 80, "https": 443}
WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class Egress:
    """The settings.

    http_proxy, https_proxy: URLs of the forward proxies for upstreams of that scheme.
    no_proxy: hosts to which connections are direct.
    ca: a PEM file of certificate authorities, trusted in addition to the default ones.
    certificate, key: PEM files of the client certificate for mutual TLS. `certificate` may contain the key.
    names: the settings of these files, for errors.
    """

    https_proxy: str | None = field(default=None, repr=False)
    http_proxy: str | None = field(default=None, repr=False)
    no_proxy: Sequence[str] = ()
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, str, str] = ("PLIMSOLL_UPSTREAM_CA", "PLIMSOLL_UPSTREAM_CERT", "PLIMSOLL_UPSTREAM_KEY")

    def proxy_for(
        self, scheme: str, host: str, port: int, default_context: Callable[[], ssl.SSLContext]
    ) -> Proxy | None:
        """Returns the forward proxy for an upstream, or None for a direct connection, as to every loopback host.
        `default_context` makes a TLS context with the default authorities. Raises ConfigError."""
        name, url = ("HTTPS_PROXY", self.https_proxy) if scheme == "https" else ("HTTP_PROXY", self.http_proxy)
        if not url or is_loopback(host) or any(bypasses(entry, host, port) for entry in self.no_proxy):
            return None
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")  # like curl
            default_port = PORTS[parts.scheme]
            where, at = parts.hostname, parts.port or default_port
        except (ValueError, KeyError):
            where = None
        if not where or not where.isascii():
            raise ConfigError(f"{name} must be an http or https URL such as http://proxy.example:3128")
        tls = self.with_authorities(default_context()) if parts.scheme == "https" else None
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        authorization = b"Basic " + base64.b64encode(login) if login != b":" else b""
        return Proxy(Address(where, at, tls), authorization)

    def with_authorities(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Adds the authorities of `ca` to a TLS context and returns it. Raises ConfigError."""
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"{self.names[0]}, {self.ca}: {_reason(error)}") from None
        return context

    def with_client_certificate(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Adds the client certificate to a TLS context and returns it. Raises ConfigError."""
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")  # prevents a prompt
            except (OSError, ssl.SSLError) as error:
                text = f"{self.names[1]} and {self.names[2]}, {self.certificate}: {_reason(error)}"
                raise ConfigError(text) from None
        elif self.key is not None:
            raise ConfigError(f"{self.names[2]} needs {self.names[1]}")
        return context


DIRECT = Egress()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no PEM file that can be used ({error.reason or 'empty'})"
    return error.strerror or type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback name or address, which no proxy can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def bypasses(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY matches a host: `*`, a domain and its subdomains, an IP address or a CIDR range.
    Each may have a port."""
    entry, host = entry.strip().lower(), host.lower()
    if entry == WILDCARD:
        return True
    name, colon, only = entry.rpartition(":")
    if colon and only.isdecimal() and (":" not in name or name.endswith("]")):
        if int(only) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        domain = entry.removeprefix("*").lstrip(".")
        return bool(domain) and (host == domain or host.endswith("." + domain))
