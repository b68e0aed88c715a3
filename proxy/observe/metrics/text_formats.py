"""Writes metrics in Prometheus' text format and in OpenMetrics. Only this module uses prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Exemplar
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.openmetrics import exposition as openmetrics_format
from prometheus_client.registry import Collector

from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.worker_values import Cells, Exemplars, Mode

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = openmetrics_format.CONTENT_TYPE_LATEST.encode()


class Row(NamedTuple):
    """One metric as Prometheus reads it: `bounds` of a histogram's buckets, `mode` of a gauge; else a counter."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...] = ()
    mode: Mode | None = None

    @property
    def kind(self) -> str:
        """The type, as Prometheus names it."""
        return "histogram" if self.bounds else "gauge" if self.mode else "counter"


Family = tuple[Row, Cells, Exemplars]  # a metric with its values


def exposition(families: Iterable[Family], openmetrics: bool) -> bytes:
    """All metrics in OpenMetrics or in Prometheus' text format, which has no exemplars."""
    registry = CollectorRegistry()
    registry.register(_Values(families))
    return openmetrics_format.generate_latest(registry) if openmetrics else generate_latest(registry)  # type: ignore[no-untyped-call]


class _Values(Collector):
    """Metrics for one scrape."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[MetricFamily]:
        """The metrics with their samples. One without labels always has a sample."""
        for row, cells, exemplars in self._families:
            if not row.labels and not cells:
                cells = {(): [0.0] * (len(row.bounds) + 2 if row.bounds else 1)}
            yield _histogram(row, cells, exemplars) if row.bounds else _numbers(row, cells)


def _numbers(row: Row, cells: Cells) -> MetricFamily:
    made = MetricFamily(row.name.removesuffix("_total") if row.kind == "counter" else row.name, row.help, row.kind)
    for values, (number,) in cells.items():
        made.add_sample(row.name, _labelled(row, values), number)
    return made


def _histogram(row: Row, cells: Cells, exemplars: Exemplars) -> MetricFamily:
    """That of values that may be negative has no sum: Prometheus reads it as a counter."""
    made = MetricFamily(row.name, row.help, row.kind)
    bounds = (*map(str, row.bounds), "+Inf")
    for values, cell in cells.items():
        labels, counts = _labelled(row, values), tuple(accumulate(cell[:-1]))
        marks = exemplars.get(values, {})
        for place, (bound, count) in enumerate(zip(bounds, counts, strict=True)):
            shown = None if place not in marks else Exemplar({"trace_id": marks[place][0]}, marks[place][1])
            made.add_sample(f"{row.name}_bucket", {**labels, "le": bound}, count, exemplar=shown)
        made.add_sample(f"{row.name}_count", labels, counts[-1])
        if row.bounds[0] >= 0:
            made.add_sample(f"{row.name}_sum", labels, cell[-1])
    return made


def _labelled(row: Row, values: Labels) -> dict[str, str]:
    return dict(zip(row.labels, values, strict=True))
