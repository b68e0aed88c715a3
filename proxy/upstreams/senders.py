"""Makes what requests are sent with: to the upstream of the settings, and to those of upstreams.toml. It opens no
connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from proxy.config.settings import Settings
from proxy.errors import ConfigError
from proxy.http.callbacks import Event, ignore
from proxy.http.client.egress import Egress
from proxy.http.client.pool import Timeouts
from proxy.upstreams.access import Access, access_of, key_of
from proxy.upstreams.litellm import LiteLLM
from proxy.upstreams.routing import Route
from proxy.upstreams.upstream import Sender, Upstream


def make_upstream(settings: Settings, url: str | None, key: str | None, event: Event = ignore) -> Upstream:
    """The upstream of the settings, or the one at `url` for requests of our own, with our key for it. Another one than
    the clients' gets no client certificate. Raises `ConfigError`."""
    foreign = url not in (None, settings.upstream)
    cert, cert_key = (None, None) if foreign else (settings.upstream_cert, settings.upstream_key)
    egress = _egress(settings, settings.upstream_ca, cert, cert_key)
    return _over_http(settings, url or settings.upstream, egress, event, key)


def make_senders(
    settings: Settings, routes: Iterable[Route], variables: Mapping[str, str] | None, event: Event = ignore
) -> dict[str, Sender]:
    """A sender for each row, by name. `variables` is the environment, for keys; None: nothing will be sent, and no key
    is read. Raises `ConfigError` with one problem per line."""
    made: dict[str, Sender] = {}
    problems: list[str] = []
    for route in routes:
        try:
            made[route.row.name] = _sender(settings, route, key_of(route.row, variables), event)
        except ConfigError as error:
            problems.append(f"upstreams.toml, upstream {route.row.name}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return made


def _sender(settings: Settings, route: Route, key: str, event: Event) -> Sender:
    row = route.row
    if row.translates:
        return LiteLLM(row, key, _timeouts(settings), event)
    ca, cert, cert_key = (None if name is None else Path(name) for name in (row.ca, row.cert, row.cert_key))
    egress = _egress(settings, ca or settings.upstream_ca, cert, cert_key)
    return _over_http(settings, row.url, egress, event, access=access_of(row, key, route.names))


def _over_http(
    settings: Settings, url: str, egress: Egress, event: Event, key: str | None = None, access: Access | None = None
) -> Upstream:
    connections = settings.max_connections
    return Upstream(url, _timeouts(settings), key, egress, connections, event, access=access)


def _timeouts(settings: Settings) -> Timeouts:
    return Timeouts(settings.connect_timeout, settings.read_timeout)


def _egress(settings: Settings, ca: Path | None, cert: Path | None, cert_key: Path | None) -> Egress:
    """The proxies of the settings, and these certificates."""
    return Egress(settings.https_proxy, settings.http_proxy, settings.no_proxy, ca, cert, cert_key)
