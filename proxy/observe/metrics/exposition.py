"""Aggregates outcomes and other values to metrics, and writes them for Prometheus.

It receives outcomes, never requests. A scrape takes the event loop only for a copy of this process's values. What other
workers wrote is read, and all is added up and written, in a thread: other requests go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from proxy.config import model_names
from proxy.config.model_table import Entry
from proxy.config.windows import Windows
from proxy.fit.money import PricesOf
from proxy.model.outcome import Outcome
from proxy.model.ports import Agreement
from proxy.observe.metrics import processes
from proxy.observe.metrics.aggregation import Aggregator, Folded, LabelOf, unnoticed
from proxy.observe.metrics.buffers import Gauge, HistogramBuffer
from proxy.observe.metrics.costs import no_prices
from proxy.observe.metrics.gen_ai import GenAi
from proxy.observe.metrics.groups import OTHER
from proxy.observe.metrics.read_metrics import (
    BUDGET_METRICS,
    BUILD_METRICS,
    CACHE_METRICS,
    EXTRA_CALL_METRICS,
    MEMORY_METRICS,
    RECORDING_METRICS,
    RELOAD_METRICS,
    TRACE_METRICS,
    BudgetStatistics,
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
from proxy.observe.metrics.text_formats import OPENMETRICS, TEXT, Family, Row, exposition
from proxy.observe.metrics.worker_values import (
    Cells,
    Snapshot,
    WorkerFiles,
    decoded,
    encoded,
    merged,
    merged_exemplars,
)

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


def table_name(windows: Windows, model: str) -> str:
    """What the tables call a model, of embeddings too; `OTHER` if none knows it."""
    label = model_label(windows, model)
    return windows.of_embeddings(model) or label if label == OTHER else label


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


IN_FLIGHT = Row("plimsoll_requests_in_flight", "Requests in progress.", (), mode="sum")


class Metrics:
    """The metrics of one worker process, and of all of them where there are several.

    label: returns the label of a model's name.
    endpoints: the names of the APIs, whose rows start at 0 where an alert reads them.
    prices: returns the list prices of a model.
    by_caller: whether callers are told apart, by the outcomes' `caller`.
    gen_ai: OpenTelemetry's names, if they are wanted.
    cache, extra_calls, budget, reloads, traces, build, recording, budgets: sources that are read at a scrape.
    folder: with several workers, the folder for the values of each. Others see them within `PUBLISH_DELAY_S`.
    folded: is called once a label is `other` because there are too many of its kind.
    agreed: what replicas agree to tell apart, if they know of each other.

    Outcomes are buffered, and aggregated at a scrape or in batches. Must be created before the workers are forked.
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
        traces: TraceStatistics | None = None,
        prices: PricesOf = no_prices,
        build: BuildFacts | None = None,
        by_caller: bool = False,
        gen_ai: GenAi | None = None,
        recording: RecordingStatistics | None = None,
        folded: Folded = unnoticed,
        agreed: Agreement | None = None,
        budgets: BudgetStatistics | None = None,
    ) -> None:
        self._files = None if folder is None else WorkerFiles(folder)
        self.in_flight = Gauge(None if folder is None else self._schedule_publish)
        self.shows_traces = False  # until somebody scrapes OpenMetrics
        self.by_caller = by_caller
        self.reads_headers = by_caller  # whether outcomes are to have what headers say: the caller, the trace
        self._pending: list[Outcome] = []
        self._timer: asyncio.TimerHandle | None = None
        self._aggregator = Aggregator(label, endpoints, prices, by_caller, gen_ai, folded, agreed)
        self._read_metrics = [
            *([] if cache is None else _read_from(CACHE_METRICS, cache)),
            *([] if extra_calls is None else _read_from(EXTRA_CALL_METRICS, extra_calls)),
            *([] if budgets is None else _read_from(BUDGET_METRICS, budgets)),
            *([] if budget is None else _read_from(MEMORY_METRICS, budget)),
            *([] if reloads is None else _read_from(RELOAD_METRICS, reloads)),
            *([] if traces is None else _read_from(TRACE_METRICS, traces)),
            *([] if recording is None else _read_from(RECORDING_METRICS, recording)),
            *([] if build is None else _read_from(BUILD_METRICS, build)),
        ]
        metrics = [one.metric for one in self._aggregator.series]
        self._rows = [
            Row(m.name, m.help, m.all_labels(by_caller), m.buckets, "newest" if m.newest else None) for m in metrics
        ]
        self._rows += [*(row for row, _ in self._read_metrics), IN_FLIGHT]
        self._scrapes: dict[bool, asyncio.Task[bytes]] = {}  # under way, by whether they are OpenMetrics

    def use_rules(self, label: LabelOf, prices: PricesOf, providers: Mapping[str, str] | None = None) -> None:
        """Labels and prices further outcomes by other rules. `providers`: those of upstreams, for gen_ai's names."""
        self._aggregate()
        if self._aggregator.gen_ai is not None and providers is not None:
            self._aggregator.gen_ai.providers = providers
        self._aggregator.use_rules(label, prices)

    def label(self, model: str) -> str:
        """The label of a model's name."""
        return self._aggregator.label(model)

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

    def publish(self) -> bytes:
        """Writes the values for the other workers, and returns them. Never raises: a full disk must not stop the
        server."""
        self._timer, data = None, encoded(self._snapshot())
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.write(data)
        return data

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

    def own(self, names: Collection[str]) -> dict[str, Cells]:
        """The current values of these metrics in this process alone, by name. They change with the next requests."""
        self._aggregate()
        return {one.metric.name: one.buffer.cells for one in self._aggregator.series if one.metric.name in names}

    def values(self) -> dict[str, Cells]:
        """The current values of all workers together, by the names of the metrics."""
        return self._merged(self._snapshots(self.publish()))

    async def values_in_thread(self) -> dict[str, Cells]:
        """The same, of which only a copy of this process's values takes the event loop."""
        data = self.publish()
        return await asyncio.to_thread(lambda: self._merged(self._snapshots(data)))

    def _snapshots(self, data: bytes) -> list[Snapshot]:
        """Those of this process, as it published them, and of all others: a later scrape of another worker must not
        find lower totals, which Prometheus takes for a reset."""
        return [decoded(data), *(self._files.others() if self._files is not None else ())]

    def _merged(self, snapshots: Iterable[Snapshot]) -> dict[str, Cells]:
        return merged(snapshots, {row.name: row.mode for row in self._rows if row.mode})

    def _families(self, data: bytes) -> Iterable[Family]:
        """The metrics of all workers together; `data` are the values of this one."""
        snapshots = self._snapshots(data)
        cells, exemplars = self._merged(snapshots), merged_exemplars(snapshots)
        for row in self._rows:
            found = cells.get(row.name, {})
            if found or not row.labels:
                yield row, found, exemplars.get(row.name, {})
        yield from processes.families(processes.process_totals(self._files is not None))

    def exposition(self, openmetrics: bool = False) -> bytes:
        """The metrics in Prometheus' text format, or in OpenMetrics."""
        return exposition(self._families(self.publish()), openmetrics)

    async def scrape(self, accept: str = "") -> tuple[bytes, bytes]:
        """The content type and the body of the response to GET /metrics, by the request's Accept header: OpenMetrics,
        which has exemplars, or Prometheus' text format. Scrapes at the same time share one body."""
        openmetrics = prefers_openmetrics(accept)
        if openmetrics:
            self.shows_traces = self.reads_headers = self._aggregator.exemplars = True
        running = self._scrapes.get(openmetrics)
        if running is None:
            running = self._scrapes[openmetrics] = asyncio.create_task(self._written(openmetrics))
            running.add_done_callback(lambda done: self._scrapes.pop(openmetrics))
        return OPENMETRICS if openmetrics else TEXT, await asyncio.shield(running)

    async def _written(self, openmetrics: bool) -> bytes:
        data = self.publish()
        return await asyncio.to_thread(lambda: exposition(self._families(data), openmetrics))

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
