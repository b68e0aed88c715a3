"""Makes what requests to the upstreams of upstreams.toml are sent with; it opens no connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from proxy.config.settings import Settings
from proxy.config.upstreams import UpstreamRow
from proxy.errors import ConfigError
from proxy.http.callbacks import Event, ignore
from proxy.http.client.egress import Egress
from proxy.http.client.pool import Timeouts
from proxy.upstreams.access import Access, access_of, key_of
from proxy.upstreams.litellm import LiteLLM
from proxy.upstreams.routing import Route
from proxy.upstreams.upstream import Sender, Upstream


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
    if route.row.translates:
        return LiteLLM(route.row, key, Timeouts(settings.connect_timeout, settings.read_timeout), event)
    return _over_http(settings, route.row, access_of(route.row, key, route.names), event)


def _over_http(settings: Settings, row: UpstreamRow, access: Access, event: Event) -> Upstream:
    timeouts = Timeouts(settings.connect_timeout, settings.read_timeout)
    return Upstream(
        row.url,
        timeouts,
        egress=_egress(row, settings),
        connections=settings.max_connections,
        event=event,
        access=access,
    )


def _egress(row: UpstreamRow, settings: Settings) -> Egress:
    """Proxies and certificates for a row. It does not get the client certificate of the default upstream."""
    ca, cert, cert_key = (None if name is None else Path(name) for name in (row.ca, row.cert, row.cert_key))
    return Egress(
        settings.https_proxy, settings.http_proxy, settings.no_proxy, ca or settings.upstream_ca, cert, cert_key
    )
