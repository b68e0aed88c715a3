"""The metrics, one row each. Only this module uses prometheus-client. It receives outcomes, never requests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from proxy.config import model_names
from proxy.config.model_table import Entry
from proxy.config.windows import Windows
from proxy.model.bounded import Bounded
from proxy.model.outcome import UNFITTED, Outcome
from proxy.model.plan import Note
from proxy.observe import processes
from proxy.observe.buffers import CounterBuffer, Gauge, HistogramBuffer, Labels
from proxy.observe.worker_values import Cells, Mode, Snapshot, WorkerFiles, merged
from proxy.wire.paths import family

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"  # the label of a model that no table contains: clients must not be able to add series
MAX_MODEL_LABELS = 100  # tables contain thousands of models, and clients choose among them
LABEL_CACHE_SIZE = 1_000  # entries: names as clients write them
BATCH_SIZE = 100  # outcomes that are aggregated together; it takes less than a millisecond
PUBLISH_DELAY_S = 1.0  # until other workers can read the values of this one
LOAD_BUCKETS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5, 2.0, 4.0, 10.0)
OWN_SECONDS_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
UPSTREAM_SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
COUNT_ERRORS = (-0.25, -0.1, -0.05, -0.02, -0.01, -0.001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.25)

Samples = Iterable[tuple[Labels, float]]
LabelOf = Callable[[str], str]


class CacheStatistics(Protocol):
    """Statistics of the shared cache: totals since the start, and which breakers are open now (1)."""

    def lookups(self) -> Mapping[tuple[str, str], int]:
        """By tier and result."""

    def failures(self) -> Mapping[tuple[str], int]:
        """By kind."""

    def open_breakers(self) -> Mapping[tuple[str], int]:
        """By the name of the breaker."""


class MemoryStatistics(Protocol):
    """Statistics of the memory budget, over all workers; `refused` is of this worker."""

    total: int

    @property
    def refused(self) -> Mapping[str, int]:
        """By reason."""

    @property
    def used(self) -> int:
        """Bytes."""

    @property
    def waiting(self) -> int:
        """Requests."""


class ReloadStatistics(Protocol):
    """Statistics of reloads of rules and keys."""

    valid: bool  # whether the last one succeeded
    loaded_at: float  # of the last one that succeeded, in seconds since 1970

    def reloads(self) -> Mapping[tuple[str], int]:
        """By result."""


class ExtraCallStatistics(Protocol):
    """Statistics of extra calls: totals since the start, and the rest of their budget."""

    def calls(self) -> Mapping[tuple[str, str], int]:
        """By kind and result."""

    def tokens(self) -> Mapping[tuple[str], int]:
        """By kind."""

    def seconds(self) -> Mapping[tuple[str], float]:
        """By kind."""

    @property
    def left(self) -> int:
        """Tokens."""


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric and the samples that an outcome adds to it: a histogram if it has `buckets`, else a counter.

    Most metrics take one `value` from an outcome (None: no sample; without `value`: the sample 1). Their labels depend
    only on the outcome's `Group` (`labels_of` returns None: no sample). Other metrics return `samples` of an outcome.
    They are called only for outcomes that `selects` accepts, in groups that `group_selects` accepts.
    """

    name: str
    help: str
    labels: Labels
    labels_of: Callable[[Group, LabelOf], Labels | None] = lambda group, label_of: ()
    value: Callable[[Outcome], float | None] | None = None
    buckets: tuple[float, ...] = ()
    samples: Callable[[Outcome, LabelOf], Samples] | None = None
    selects: Callable[[Outcome], object] = bool
    group_selects: Callable[[Group], bool] | None = None


class Group(NamedTuple):
    """The fields of an outcome from which labels are made. Outcomes are aggregated by group."""

    endpoint: str
    result: str
    status: int
    model: str
    model_sent: str
    quality: str


GROUP = attrgetter(*Group._fields)


@dataclass(frozen=True, slots=True)
class ReadMetric(Generic[S]):
    """One metric that is read from its source at a scrape: a counter if its name ends in `_total`, else a gauge.
    `mode`: how the gauges of several workers are combined."""

    name: str
    help: str
    labels: Labels
    read: Callable[[S], Samples]
    mode: Mode = "max"


def _cuts(notes: Iterable[Note]) -> Samples:
    return [((n.step,), n.tokens_before - n.tokens_after) for n in notes if n.tokens_after < n.tokens_before]


METRICS = (
    Metric(
        "plimsoll_requests_total",
        "Requests by endpoint, result and status.",
        ("endpoint", "result", "status"),
        lambda group, label_of: (group.endpoint, group.result, str(group.status)),
    ),
    Metric(
        "plimsoll_model_requests_total",
        "Requests to fitted endpoints by model; a model that no table contains is other.",
        ("model",),
        lambda group, label_of: (label_of(group.model),) if group.model else None,
    ),
    Metric(
        "plimsoll_window_load_before_ratio",
        "Load of the window, (prompt + reserve) / window, as the client sent the request.",
        (),
        value=attrgetter("load_before"),
        buckets=LOAD_BUCKETS,
    ),
    Metric(
        "plimsoll_window_load_after_ratio",
        "Load of the window, (prompt + reserve) / window, as the request was sent upstream.",
        (),
        value=attrgetter("load_after"),
        buckets=LOAD_BUCKETS,
    ),
    Metric(
        "plimsoll_prompt_tokens_total",
        "Prompt tokens as clients sent them.",
        ("model",),
        lambda group, label_of: (label_of(group.model),),
        attrgetter("prompt"),
    ),
    Metric(
        "plimsoll_prompt_sent_tokens_total",
        "Prompt tokens as sent upstream.",
        ("model",),
        lambda group, label_of: (label_of(group.model_sent or group.model),),
        attrgetter("prompt_sent"),
    ),
    Metric(
        "plimsoll_cut_tokens_total",
        "Prompt tokens removed, by step.",
        ("step",),
        samples=lambda o, label_of: _cuts(o.notes),
        selects=attrgetter("notes"),
    ),
    Metric(
        "plimsoll_steps_total",
        "Requests that a step changed, by step.",
        ("step",),
        samples=lambda o, label_of: [((note.step,), 1) for note in o.notes],
        selects=attrgetter("notes"),
    ),
    Metric(
        "plimsoll_planned_cut_tokens_total",
        "Prompt tokens that would have been removed, by step, in requests whose mode is observe.",
        ("step",),
        samples=lambda o, label_of: _cuts(o.planned),
        selects=attrgetter("planned"),
    ),
    Metric(
        "plimsoll_planned_steps_total",
        "Requests that a step would have changed, by step, in requests whose mode is observe.",
        ("step",),
        samples=lambda o, label_of: [((note.step,), 1) for note in o.planned],
        selects=attrgetter("planned"),
    ),
    Metric(
        "plimsoll_unfitted_requests_total",
        "Requests that passed through without being measured, by endpoint; an unknown endpoint is other.",
        ("endpoint",),
        samples=lambda o, label_of: [((family(o.path),), 1)],
        group_selects=lambda group: group.endpoint in UNFITTED,
    ),
    Metric(
        "plimsoll_reply_asked_tokens_total",
        "Reply tokens requested by clients: the sum of their reply limits.",
        (),
        value=attrgetter("reply_asked"),
    ),
    Metric(
        "plimsoll_reply_granted_tokens_total",
        "Reply tokens requested upstream: the sum of the reply limits sent.",
        (),
        value=attrgetter("reply_sent"),
    ),
    Metric(
        "plimsoll_switches_total",
        "Requests that were sent to another model, by the two models.",
        ("from", "to"),
        lambda group, label_of: (
            (label_of(group.model), label_of(group.model_sent)) if group.model_sent not in ("", group.model) else None
        ),
    ),
    Metric(
        "plimsoll_refusals_total",
        "Upstream errors that said a request was too long, by the rule that matched and whether a retry succeeded.",
        ("rule", "healed"),
        samples=lambda o, label_of: [((rule, str(o.healed).lower()), 1) for rule in o.refusals],
        selects=attrgetter("refusals"),
    ),
    Metric(
        "plimsoll_counts_total",
        "Counted requests by the quality of the count: exact, calibrated or estimated.",
        ("quality",),
        lambda group, label_of: (group.quality,) if group.quality else None,
    ),
    Metric(
        "plimsoll_counts_dropped_total",
        "Requests that fit by their size in bytes and were never counted, because the queue for counting was full.",
        (),
        samples=lambda o, label_of: [((), 1)],
        selects=attrgetter("uncounted"),
    ),
    Metric(
        "plimsoll_count_error_ratio",
        "Error of the prompt's count against the upstream's usage: (counted - reported) / reported.",
        ("quality",),
        lambda group, label_of: (group.quality,) if group.status == 200 else None,
        lambda o: (
            (o.prompt_sent - o.usage.prompt) / o.usage.prompt
            if o.usage is not None and o.usage.prompt and o.prompt_sent is not None
            else None
        ),
        COUNT_ERRORS,
    ),
    Metric(
        "plimsoll_cached_prompt_tokens_total",
        "Prompt tokens that upstreams reported as read from their prompt cache.",
        (),
        value=lambda o: o.usage.cached if o.usage is not None else None,
    ),
    Metric(
        "plimsoll_completion_tokens_total",
        "Reply tokens that upstreams reported.",
        (),
        value=lambda o: o.usage.completion if o.usage is not None else None,
    ),
    Metric(
        "plimsoll_truncated_prompts_total",
        "Prompts that the upstream truncated silently: its usage reports far fewer tokens than were sent.",
        ("model",),
        samples=lambda o, label_of: [((label_of(o.model_sent),), 1)],
        selects=attrgetter("truncated"),
    ),
    Metric(
        "plimsoll_websocket_bytes_total",
        "Bytes through closed WebSockets: in (from clients) and out (to clients).",
        ("direction",),
        samples=lambda o, label_of: [(("in",), o.bytes_in), (("out",), o.bytes_out)],
        selects=lambda o: o.bytes_in or o.bytes_out,
        group_selects=lambda group: group.endpoint in UNFITTED,
    ),
    Metric(
        "plimsoll_own_seconds",
        "Time spent in the proxy itself, without the time of the upstream.",
        ("endpoint",),
        lambda group, label_of: (group.endpoint,),
        attrgetter("own_seconds"),
        OWN_SECONDS_BUCKETS,
    ),
    Metric(
        "plimsoll_upstream_seconds",
        "Time from sending a request upstream to the end of the response.",
        ("endpoint",),
        lambda group, label_of: (group.endpoint,),
        lambda o: o.upstream_seconds or None,
        UPSTREAM_SECONDS_BUCKETS,
    ),
    Metric(
        "plimsoll_first_byte_seconds",
        "Time from sending a request upstream to the first byte of the response body.",
        ("endpoint",),
        lambda group, label_of: (group.endpoint,),
        attrgetter("first_byte_seconds"),
        UPSTREAM_SECONDS_BUCKETS,
    ),
)

CACHE_METRICS: tuple[ReadMetric[CacheStatistics], ...] = (
    ReadMetric(
        "plimsoll_cache_lookups_total",
        "Cache lookups of token counts, summaries and model records, by tier and result.",
        ("tier", "result"),
        lambda cache: cache.lookups().items(),
    ),
    ReadMetric(
        "plimsoll_cache_troubles_total",
        "Failures of the shared cache, by kind; no request fails or waits long because of them.",
        ("kind",),
        lambda cache: cache.failures().items(),
    ),
    ReadMetric(
        "plimsoll_cache_breaker_open",
        "1 while the shared cache is not used because it failed, else 0.",
        ("breaker",),
        lambda cache: cache.open_breakers().items(),
    ),
)

EXTRA_CALL_METRICS: tuple[ReadMetric[ExtraCallStatistics], ...] = (
    ReadMetric(
        "plimsoll_extra_calls_total",
        "Extra calls (summaries, embeddings) by kind and result; results but ok and failed are calls not made.",
        ("kind", "result"),
        lambda extra_calls: extra_calls.calls().items(),
    ),
    ReadMetric(
        "plimsoll_extra_tokens_total",
        "Prompt and reply tokens of extra calls, as upstreams reported them.",
        ("kind",),
        lambda extra_calls: extra_calls.tokens().items(),
    ),
    ReadMetric(
        "plimsoll_extra_seconds_total",
        "Time of extra calls.",
        ("kind",),
        lambda extra_calls: extra_calls.seconds().items(),
    ),
    ReadMetric(
        "plimsoll_extra_budget_left_tokens",
        "Tokens left of the operator's budget for extra calls in the current 24 hours.",
        (),
        lambda extra_calls: [((), extra_calls.left)],
        "sum",
    ),
)


MEMORY_METRICS: tuple[ReadMetric[MemoryStatistics], ...] = (
    ReadMetric(
        "plimsoll_memory_budget_bytes",
        "Memory that request bodies of all workers may use (PLIMSOLL_MAX_MEMORY).",
        (),
        lambda budget: [((), budget.total)],
        "newest",
    ),
    ReadMetric(
        "plimsoll_memory_used_bytes",
        "Memory reserved for request bodies: four times their size.",
        (),
        lambda budget: [((), budget.used)],
        "newest",
    ),
    ReadMetric(
        "plimsoll_memory_waiting_requests",
        "Requests waiting for memory before their bodies are read.",
        (),
        lambda budget: [((), budget.waiting)],
        "newest",
    ),
    ReadMetric(
        "plimsoll_memory_refused_total",
        "Request bodies refused for lack of memory: after waiting (wait), while growing (growth), or too large (size).",
        ("reason",),
        lambda budget: [((reason,), count) for reason, count in budget.refused.items()],
    ),
)


RELOAD_METRICS: tuple[ReadMetric[ReloadStatistics], ...] = (
    ReadMetric(
        "plimsoll_rules_reloads_total",
        "Reloads of rules and keys by each worker, by result.",
        ("result",),
        lambda reloads: reloads.reloads().items(),
    ),
    ReadMetric(
        "plimsoll_rules_last_reload_successful",
        "1 if the last reload of rules and keys succeeded, 0 if the old ones stay because a file is wrong.",
        (),
        lambda reloads: [((), int(reloads.valid))],
        "newest",
    ),
    ReadMetric(
        "plimsoll_rules_last_reload_success_timestamp_seconds",
        "Time since the epoch of the last load of rules and keys that succeeded.",
        (),
        lambda reloads: [((), reloads.loaded_at)],
    ),
)


def model_label(windows: Windows, model: str) -> str:
    """The label of a model: its name in a table or in the user's row. A client can write the name of one model in many
    ways, and each label is a time series that never ends."""
    found = windows.lookup(model)
    if isinstance(found.entry, Entry):
        return model_names.without_vendor(found.entry.name)
    row = found.entry or found.row
    return OTHER if row is None else row.model


class Row(NamedTuple):
    """One metric as Prometheus reads it: `bounds` of a histogram's buckets, `mode` of a gauge; else a counter."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...] = ()
    mode: Mode | None = None

    def family(self, cells: Cells, signed_sum: bool = False) -> MetricFamily:
        """The metric with its samples. One without labels always has a sample. A histogram of values that may be
        negative has its sum only with `signed_sum`, because Prometheus reads a sum as a counter."""
        if not self.labels and not cells:
            cells = {(): [0.0] * (len(self.bounds) + 2 if self.bounds else 1)}
        if self.bounds:
            return self._histogram(cells, signed_sum)
        kind = "gauge" if self.mode else "counter"
        made = MetricFamily(self.name.removesuffix("_total") if kind == "counter" else self.name, self.help, kind)
        for values, (number,) in cells.items():
            made.add_sample(self.name, self._labelled(values), number)
        return made

    def _histogram(self, cells: Cells, signed_sum: bool) -> MetricFamily:
        made = MetricFamily(self.name, self.help, "histogram")
        bounds = (*map(str, self.bounds), "+Inf")
        for values, cell in cells.items():
            labels, counts = self._labelled(values), tuple(accumulate(cell[:-1]))
            for bound, count in zip(bounds, counts, strict=True):
                made.add_sample(f"{self.name}_bucket", {**labels, "le": bound}, count)
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
    cache, extra_calls, budget, reloads: sources of metrics that are read at a scrape.
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
    ) -> None:
        self._files = None if folder is None else WorkerFiles(folder)
        self.in_flight = Gauge(None if folder is None else self._schedule_publish)
        self._label = label
        self._labels: Bounded[str, str] = Bounded(LABEL_CACHE_SIZE)
        self._models: set[str] = set()
        self._pending: list[Outcome] = []
        self._timer: asyncio.TimerHandle | None = None
        self._buffers = [(m, HistogramBuffer(m.buckets) if m.buckets else CounterBuffer()) for m in METRICS]
        self._read_metrics = [
            *([] if cache is None else _read_from(CACHE_METRICS, cache)),
            *([] if extra_calls is None else _read_from(EXTRA_CALL_METRICS, extra_calls)),
            *([] if budget is None else _read_from(MEMORY_METRICS, budget)),
            *([] if reloads is None else _read_from(RELOAD_METRICS, reloads)),
        ]
        self._rows = [Row(m.name, m.help, m.labels, m.buckets) for m in METRICS]
        self._rows += [*(row for row, _ in self._read_metrics), IN_FLIGHT]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(_ProcessTotals()) if self._files else ProcessCollector(registry=self._registry)

    def use_label(self, label: LabelOf) -> None:
        """Labels further outcomes with the models of other rules."""
        self._aggregate()
        self._label = label
        self._labels = Bounded(LABEL_CACHE_SIZE)

    def label_of(self, model: str) -> str:
        """The label of a model: `other` if no table contains it, or if there are `MAX_MODEL_LABELS` labels already."""
        label = self._labels.get(model)
        if label is None:
            label = self._label(model)
            if label not in self._models and len(self._models) >= MAX_MODEL_LABELS:
                label = OTHER
            self._models.add(label)
            self._labels.put(model, label)
        return label

    def observe(self, outcome: Outcome) -> None:
        """Adds one outcome. Costs about 3 us, because outcomes are aggregated in batches."""
        self._pending.append(outcome)
        if len(self._pending) >= BATCH_SIZE:
            self._aggregate()
        if self._files is not None:
            self._schedule_publish()

    def _aggregate(self) -> None:
        pending, self._pending = self._pending, []
        groups: dict[tuple[str, ...], list[Outcome]] = {}
        for outcome in pending:
            groups.setdefault(GROUP(outcome), []).append(outcome)
        for key, outcomes in groups.items():
            group = Group._make(key)
            for metric, buffer in self._buffers:
                if metric.samples is not None:
                    if metric.group_selects is None or metric.group_selects(group):
                        for outcome in filter(metric.selects, outcomes):
                            for labels, value in metric.samples(outcome, self.label_of):
                                buffer.add(labels, (value,))
                elif (group_labels := metric.labels_of(group, self.label_of)) is not None:
                    if metric.value is None:
                        buffer.add(group_labels, (len(outcomes),))
                    else:
                        buffer.add(group_labels, [v for v in map(metric.value, outcomes) if v is not None])

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
        made = Snapshot(time.monotonic(), {metric.name: buffer.cells for metric, buffer in self._buffers}, {})
        for row, read in self._read_metrics:
            (made.gauges if row.mode else made.counters)[row.name] = {labels: [value] for labels, value in read()}
        made.gauges[IN_FLIGHT.name] = {(): [self.in_flight.value]}
        return made

    def _snapshots(self) -> list[Snapshot]:
        if self._files is None:
            return [self._snapshot()]
        self.publish()  # a later scrape of another worker must not find lower totals: Prometheus takes that for a reset
        return [self._snapshot(), *self._files.others()]

    def collect(self) -> Iterable[MetricFamily]:
        """The current metrics of all workers together."""
        cells = merged(self._snapshots(), {row.name: row.mode for row in self._rows if row.mode})
        for row in self._rows:
            found = cells.get(row.name, {})
            if self._files is None or found or not row.labels:
                yield row.family(found, signed_sum=self._files is not None)

    def exposition(self) -> bytes:
        """The body of the response to GET /metrics, in Prometheus' text format."""
        return generate_latest(self._registry)

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
