"""The traces of one process: which requests are sampled, and how their spans reach the collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proxy import __version__
from proxy.config.otel import CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, TraceSettings
from proxy.config.settings import Settings
from proxy.config.upstreams import DEFAULT, UpstreamRow
from proxy.http.client.egress import Egress
from proxy.model.outcome import Outcome
from proxy.observe.tracing.otlp import BODIES
from proxy.observe.tracing.spans import Server, Servers, spans_of, upstream_server
from proxy.observe.tracing.trace_exporter import TraceExporter
from proxy.request.tracing import Tracer
from proxy.upstreams.collector import Collector


class Traces:
    """Begins traces, and exports them. `rows` are the upstreams beside that of the settings. Raises ConfigError if a
    file of certificates cannot be used."""

    def __init__(
        self, settings: Settings, chosen: TraceSettings, rows: Iterable[UpstreamRow], event: Callable[..., None]
    ) -> None:
        files = (chosen.certificate, chosen.client_certificate, chosen.client_key)
        names = (CERTIFICATE.name, CLIENT_CERTIFICATE.name, CLIENT_KEY.name)
        egress = Egress(settings.https_proxy, settings.http_proxy, settings.no_proxy, *files, names=names)
        self.tracer = Tracer(chosen.sampler)
        self._collector = Collector(chosen, egress)
        self.exporter = TraceExporter(self.body, self._collector.post, event)
        self._encoded = BODIES[chosen.protocol]
        self._resource = {"service.version": __version__, **dict(chosen.resource)}
        self._scheme = "http" if settings.tls_cert is None else "https"
        self._default = upstream_server(settings.upstream)
        self.use_upstreams(rows)

    def use_upstreams(self, rows: Iterable[UpstreamRow]) -> None:
        """From now on these are the upstreams beside that of the settings."""
        named = {row.name: upstream_server(row.url) if row.url else Server(row.provider) for row in rows}
        self._servers: Servers = {"": self._default, DEFAULT: self._default, **named}

    def body(self, outcomes: Sequence[Outcome]) -> bytes:
        """The body of an export, as it is sent."""
        servers = self._servers
        spans = (span for outcome in outcomes for span in spans_of(outcome, servers, self._scheme))
        return self._collector.packed(self._encoded(self._resource, __version__, spans))

    async def close(self) -> None:
        """Exports what is queued, in bounded time."""
        await self.exporter.close()
        await self._collector.close()


def make_traces(settings: Settings, rows: Iterable[UpstreamRow], event: Callable[..., None]) -> Traces | None:
    """The traces that the settings ask for; None if they are off. Raises as `Traces`."""
    return None if settings.traces is None else Traces(settings, settings.traces, rows, event)
