"""Aggregates outcomes and other values to metrics, and writes them for Prometheus. Only this module uses
prometheus-client. It receives outcomes, never requests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from proxy.config import model_names
from proxy.config.model_table import Entry
from proxy.config.windows import Windows
from proxy.fit.money import PricesOf
from proxy.model.outcome import Outcome
from proxy.observe.metrics import processes
from proxy.observe.metrics.aggregation import NONE_KNOWN, Aggregator, Known, LabelOf
from proxy.observe.metrics.buffers import Gauge, HistogramBuffer, Labels
from proxy.observe.metrics.costs import no_prices
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.outcome_metrics import OTHER
from proxy.observe.metrics.read_metrics import (
    BUILD_METRICS,
    CACHE_METRICS,
    EXTRA_CALL_METRICS,
    MEMORY_METRICS,
    RECORDING_METRICS,
    RELOAD_METRICS,
    TRACE_METRICS,
    BuildFacts,
    CacheStatistics,
    ExtraCallStatistics,
    MemoryStatistics,
    ReadMetric,
    RecordingStatistics,
    ReloadStatistics,
    Samples,
    TraceStatistics,
)
from proxy.observe.metrics.worker_values import Cells, Exemplars, Mode, Snapshot, WorkerFiles, merged, merged_exemplars

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BATCH_SIZE = 100  # outcomes that are aggregated together; it takes less than a millisecond
PUBLISH_DELAY_S = 1.0  # until other workers can read the values of this one

S = TypeVar("S")


def model_label(windows: Windows, model: str) -> str:
    """The label of a model: its name in a table or in the user's row. A client can write the name of one model in many
    ways, and each label is a time series that never ends."""
    found = windows.lookup(model)
    if isinstance(found.entry, Entry) and not found.part:
        return model_names.without_vendor(found.entry.name)
    if named := windows.priced_name(model):  # of embeddings too
        return named
    if isinstance(found.entry, Entry):
        return model_names.without_vendor(found.entry.name)
    row = found.entry or found.row
    return OTHER if row is None else row.model


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header (RFC 9110, 12.5.1) weighs OpenMetrics 1.0 at least as high as Prometheus' own format."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.lower().split(","):
        media, *parameters = (one.strip() for one in part.split(";"))
        given = dict(one.split("=", 1) for one in parameters if "=" in one)
        if media in weights and not given.get("version", "").startswith("0.0.1"):
            weights[media] = max(weights[media], _weight(given.get("q", "1")))
    return 0 < weights["application/openmetrics-text"] >= weights["text/plain"]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class Row(NamedTuple):
    """One metric as Prometheus reads it: `bounds` of a histogram's buckets, `mode` of a gauge; else a counter."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...] = ()
    mode: Mode | None = None

    def family(self, cells: Cells, exemplars: Exemplars, signed_sum: bool = False) -> MetricFamily:
        """The metric with its samples. One without labels always has a sample. A histogram of values that may be
        negative has its sum only with `signed_sum`, because Prometheus reads a sum as a counter."""
        if not self.labels and not cells:
            cells = {(): [0.0] * (len(self.bounds) + 2 if self.bounds else 1)}
        if self.bounds:
            return self._histogram(cells, exemplars, signed_sum)
        kind = "gauge" if self.mode else "counter"
        made = MetricFamily(self.name.removesuffix("_total") if kind == "counter" else self.name, self.help, kind)
        for values, (number,) in cells.items():
            made.add_sample(self.name, self._labelled(values), number)
        return made

    def _histogram(self, cells: Cells, exemplars: Exemplars, signed_sum: bool) -> MetricFamily:
        made = MetricFamily(self.name, self.help, "histogram")
        bounds = (*map(str, self.bounds), "+Inf")
        for values, cell in cells.items():
            labels, counts = self._labelled(values), tuple(accumulate(cell[:-1]))
            marks = exemplars.get(values, {})
            for place, (bound, count) in enumerate(zip(bounds, counts, strict=True)):
                shown = None if place not in marks else Exemplar({"trace_id": marks[place][0]}, marks[place][1])
                made.add_sample(f"{self.name}_bucket", {**labels, "le": bound}, count, exemplar=shown)
            made.add_sample(f"{self.name}_count", labels, counts[-1])
            if signed_sum or self.bounds[0] >= 0:
                made.add_sample(f"{self.name}_sum", labels, cell[-1])
        return made

    def _labelled(self, values: Labels) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


IN_FLIGHT = Row("plimsoll_requests_in_flight", "Requests in progress.", (), mode="sum")


class Metrics(Collector):
    """The metrics of one worker process, and of all of them where there are several.

    label: returns the label of a model's name.
    endpoints, known: the names of the APIs, and values of labels, that start at 0.
    prices: returns the list prices of a model.
    by_caller: whether callers are told apart, by the outcomes' `caller`.
    gen_ai: OpenTelemetry's names, if they are wanted.
    cache, extra_calls, budget, reloads, traces, build, recording: sources of metrics that are read at a scrape.
    folder: with several workers, the folder for the values of each. Others see them within `PUBLISH_DELAY_S`.

    Outcomes are buffered, and aggregated at a scrape or in batches.
    """

    def __init__(
        self,
        label: LabelOf = lambda model: OTHER,
        cache: CacheStatistics | None = None,
        extra_calls: ExtraCallStatistics | None = None,
        budget: MemoryStatistics | None = None,
        folder: Path | None = None,
        reloads: ReloadStatistics | None = None,
        endpoints: Iterable[str] = (),
        known: Known = NONE_KNOWN,
        traces: TraceStatistics | None = None,
        prices: PricesOf = no_prices,
        build: BuildFacts | None = None,
        by_caller: bool = False,
        gen_ai: GenAi | None = None,
        recording: RecordingStatistics | None = None,
    ) -> None:
        self._files = None if folder is None else WorkerFiles(folder)
        self.in_flight = Gauge(None if folder is None else self._schedule_publish)
        self.shows_traces = False  # until somebody scrapes OpenMetrics
        self.reads_headers = by_caller  # whether outcomes are to have what headers say: the caller, the trace
        self._pending: list[Outcome] = []
        self._timer: asyncio.TimerHandle | None = None
        self._aggregator = Aggregator(label, endpoints, known, prices, by_caller, gen_ai)
        self._read_metrics = [
            *([] if cache is None else _read_from(CACHE_METRICS, cache)),
            *([] if extra_calls is None else _read_from(EXTRA_CALL_METRICS, extra_calls)),
            *([] if budget is None else _read_from(MEMORY_METRICS, budget)),
            *([] if reloads is None else _read_from(RELOAD_METRICS, reloads)),
            *([] if traces is None else _read_from(TRACE_METRICS, traces)),
            *([] if recording is None else _read_from(RECORDING_METRICS, recording)),
            *([] if build is None else _read_from(BUILD_METRICS, build)),
        ]
        metrics = [one.metric for one in self._aggregator.series]
        base = self._aggregator.base_labels
        self._rows = [
            Row(m.name, m.help, m.all_labels(base), m.buckets, "newest" if m.newest else None) for m in metrics
        ]
        self._rows += [*(row for row, _ in self._read_metrics), IN_FLIGHT]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(_ProcessTotals()) if self._files else ProcessCollector(registry=self._registry)

    def use_rules(
        self, label: LabelOf, known: Known, prices: PricesOf, providers: Mapping[str, str] | None = None
    ) -> None:
        """Labels and prices further outcomes by other rules. `providers`: those of upstreams, for gen_ai's names."""
        self._aggregate()
        if self._aggregator.gen_ai is not None and providers is not None:
            self._aggregator.gen_ai.providers = providers
        self._aggregator.use_rules(label, known, prices)

    def label(self, model: str) -> str:
        """The label of a model's name."""
        return self._aggregator.models.of(model)

    def observe(self, outcome: Outcome) -> None:
        """Adds one outcome. Costs about 3 us, because outcomes are aggregated in batches."""
        self._pending.append(outcome)
        if len(self._pending) >= BATCH_SIZE:
            self._aggregate()
        if self._files is not None:
            self._schedule_publish()

    def _aggregate(self) -> None:
        pending, self._pending = self._pending, []
        self._aggregator.add(pending)

    def _schedule_publish(self) -> None:
        """Schedules `publish`, so that a scrape of another worker includes the values of this one."""
        if self._timer is None:
            with contextlib.suppress(RuntimeError):  # without an event loop, the user of this object calls `publish`
                self._timer = asyncio.get_running_loop().call_later(PUBLISH_DELAY_S, self.publish)

    def publish(self) -> None:
        """Writes the values for the other workers. Never raises: a full disk must not stop the server."""
        self._timer = None
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.write(self._snapshot())

    def _snapshot(self) -> Snapshot:
        """The values of this process."""
        self._aggregate()
        made = Snapshot(time.monotonic(), {}, {}, {})
        for one in self._aggregator.series:
            (made.gauges if one.metric.newest else made.counters)[one.metric.name] = one.buffer.cells
            if one.metric.exemplars and isinstance(one.buffer, HistogramBuffer):
                made.exemplars[one.metric.name] = one.buffer.exemplars
        for row, read in self._read_metrics:
            (made.gauges if row.mode else made.counters)[row.name] = {labels: [value] for labels, value in read()}
        made.gauges[IN_FLIGHT.name] = {(): [self.in_flight.value]}
        return made

    def _snapshots(self) -> list[Snapshot]:
        if self._files is None:
            return [self._snapshot()]
        self.publish()  # a later scrape of another worker must not find lower totals: Prometheus takes that for a reset
        return [self._snapshot(), *self._files.others()]

    def values(self) -> dict[str, Cells]:
        """The current values of all workers together, by the names of the metrics."""
        return self._merged(self._snapshots())

    def _merged(self, snapshots: Iterable[Snapshot]) -> dict[str, Cells]:
        return merged(snapshots, {row.name: row.mode for row in self._rows if row.mode})

    def collect(self) -> Iterable[MetricFamily]:
        """The current metrics of all workers together."""
        snapshots = self._snapshots()
        cells = self._merged(snapshots)
        exemplars = merged_exemplars(snapshots)
        for row in self._rows:
            found = cells.get(row.name, {})
            if self._files is None or found or not row.labels:
                yield row.family(found, exemplars.get(row.name, {}), signed_sum=self._files is not None)

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def scrape(self, accept: str = "") -> tuple[bytes, bytes]:
        """The content type and the body of the response to GET /metrics, by the request's Accept header: OpenMetrics,
        which has exemplars, or Prometheus' text format."""
        if not prefers_openmetrics(accept):
            return CONTENT_TYPE, self.exposition()
        self.shows_traces = self.reads_headers = self._aggregator.exemplars = True
        return openmetrics.CONTENT_TYPE_LATEST.encode(), openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]

    def end(self, pid: int) -> None:
        """Handles the exit of a worker: its counters stay, its gauges are removed."""
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.end(pid)


def _read_from(metrics: Iterable[ReadMetric[S]], source: S) -> list[tuple[Row, Callable[[], Samples]]]:
    """A row and a reader for each metric of one source."""
    return [
        (
            Row(metric.name, metric.help, metric.labels, mode=None if metric.name.endswith("_total") else metric.mode),
            partial(metric.read, source),
        )
        for metric in metrics
    ]


class _ProcessTotals(Collector):
    """The metrics of prometheus-client's ProcessCollector, summed over all workers."""

    def collect(self) -> Iterable[MetricFamily]:
        """The current metrics."""
        totals = processes.process_totals()
        if totals is None:
            return
        yield CounterMetricFamily(
            "process_cpu_seconds_total", "User and system CPU time of all processes.", totals.cpu_seconds
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Resident memory of all processes.", totals.resident_bytes
        )
        yield GaugeMetricFamily(
            "process_virtual_memory_bytes", "Virtual memory of all processes.", totals.virtual_bytes
        )
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors of all processes.", totals.open_files)
        yield GaugeMetricFamily(
            "process_max_fds", "Maximum number of open file descriptors of all processes.", totals.max_files
        )
        yield GaugeMetricFamily(
            "process_start_time_seconds", "Start time of the first process since the epoch.", totals.started_at
        )
