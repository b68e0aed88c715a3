"""The traces of one process: which requests are sampled, and how their spans reach the collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy import __version__
from proxy.config.otel import CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY
from proxy.config.settings import Settings
from proxy.http.client.egress import Egress
from proxy.model.outcome import Outcome
from proxy.observe.otlp import BODIES
from proxy.observe.spans import spans_of, upstream_server
from proxy.observe.trace_exporter import TraceExporter
from proxy.request.tracing import Tracer
from proxy.upstreams.collector import Collector


@dataclass(frozen=True, slots=True)
class Traces:
    """What begins traces, and what exports them."""

    tracer: Tracer
    exporter: TraceExporter
    collector: Collector

    async def close(self) -> None:
        """Exports what is queued, in bounded time."""
        await self.exporter.close()
        await self.collector.close()


def make_traces(settings: Settings, event: Callable[..., None]) -> Traces | None:
    """The traces that the settings ask for; None if they are off. Raises ConfigError if a file of certificates cannot
    be used."""
    chosen = settings.traces
    if chosen is None:
        return None
    files = (chosen.certificate, chosen.client_certificate, chosen.client_key)
    names = (CERTIFICATE.name, CLIENT_CERTIFICATE.name, CLIENT_KEY.name)
    collector = Collector(
        chosen, Egress(settings.https_proxy, settings.http_proxy, settings.no_proxy, *files, names=names)
    )
    server, encoded = upstream_server(settings.upstream), BODIES[chosen.protocol]
    resource = {"service.version": __version__, **dict(chosen.resource)}

    def body(outcomes: Sequence[Outcome]) -> bytes:
        spans = (span for outcome in outcomes for span in spans_of(outcome, server))
        return collector.packed(encoded(resource, __version__, spans))

    return Traces(Tracer(chosen.sampler), TraceExporter(body, collector.post, event), collector)
