"""What is counted, one row each; the only module that knows prometheus. It sees outcomes, never requests."""

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
OTHER = "other"  # the label of a model that no table knows: a client must not be able to grow our labels
MOST_MODELS = 100  # labels; a table knows thousands, and clients choose among them
REMEMBERED = 1_000  # spellings of models
GATHERED = 100  # outcomes that are added up at once; it takes less than a millisecond
LATE = 1.0  # seconds after which what one worker counted can be read at any other
LOADS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5, 2.0, 4.0, 10.0)
OWN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
UPSTREAM_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ERRORS = (-0.25, -0.1, -0.05, -0.02, -0.01, -0.001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.25)

Samples = Iterable[tuple[Labels, float]]
Named = Callable[[str], str]


class Shared(Protocol):
    """What a cache tells of itself: totals since its start, and which of its breakers are open (1) now."""

    def lookups(self) -> Mapping[tuple[str, str], int]:
        """By tier and result."""

    def failures(self) -> Mapping[tuple[str], int]:
        """By kind."""

    def open_breakers(self) -> Mapping[tuple[str], int]:
        """By what it breaks."""


class Held(Protocol):
    """What a memory budget tells of itself, over all workers; refusals are this worker's own."""

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


class Account(Protocol):
    """What is told of extra calls: totals since the start, and what is left of their budget."""

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
    """One metric: what it is called, what it says, and which samples outcomes add to it; a histogram with `buckets`,
    else a counter.

    Most tell one `value` of an outcome (None: nothing; no function: that it was) under labels that depend on nothing
    but its `Group`. Others tell `samples` of an outcome, and are asked only of those that `tell` something, in groups
    `among` which there may be such.
    """

    name: str
    help: str
    labels: Labels
    of: Callable[[Group, Named], Labels | None] = lambda group, named: ()
    value: Callable[[Outcome], float | None] | None = None
    buckets: tuple[float, ...] = ()
    samples: Callable[[Outcome, Named], Samples] | None = None
    tell: Callable[[Outcome], object] = bool
    among: Callable[[Group], bool] | None = None


class Group(NamedTuple):
    """What many outcomes have in common: all that labels of metrics are made of."""

    endpoint: str
    result: str
    status: int
    model: str
    model_sent: str
    quality: str


GROUP = attrgetter(*Group._fields)


@dataclass(frozen=True, slots=True)
class Figure(Generic[S]):
    """One metric that is read from its source when it is asked for: a total by its name, else a gauge of what is so
    now, which of several workers is added up or the largest."""

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
        lambda of, named: (of.endpoint, of.result, str(of.status)),
    ),
    Metric(
        "plimsoll_model_requests_total",
        "Requests to fitted endpoints by model; a model that no table contains is other.",
        ("model",),
        lambda of, named: (named(of.model),) if of.model else None,
    ),
    Metric(
        "plimsoll_window_load_before_ratio",
        "Load of the window, (prompt + reserve) / window, as the client sent the request.",
        (),
        value=attrgetter("load_before"),
        buckets=LOADS,
    ),
    Metric(
        "plimsoll_window_load_after_ratio",
        "Load of the window, (prompt + reserve) / window, as the request was sent upstream.",
        (),
        value=attrgetter("load_after"),
        buckets=LOADS,
    ),
    Metric(
        "plimsoll_prompt_tokens_total",
        "Prompt tokens as clients sent them.",
        ("model",),
        lambda of, named: (named(of.model),),
        attrgetter("prompt"),
    ),
    Metric(
        "plimsoll_prompt_sent_tokens_total",
        "Prompt tokens as sent upstream.",
        ("model",),
        lambda of, named: (named(of.model_sent or of.model),),
        attrgetter("prompt_sent"),
    ),
    Metric(
        "plimsoll_cut_tokens_total",
        "Prompt tokens removed, by step.",
        ("step",),
        samples=lambda o, named: _cuts(o.notes),
        tell=attrgetter("notes"),
    ),
    Metric(
        "plimsoll_steps_total",
        "Requests that a step changed, by step.",
        ("step",),
        samples=lambda o, named: [((note.step,), 1) for note in o.notes],
        tell=attrgetter("notes"),
    ),
    Metric(
        "plimsoll_planned_cut_tokens_total",
        "Prompt tokens that would have been removed, by step, in requests whose mode is observe.",
        ("step",),
        samples=lambda o, named: _cuts(o.planned),
        tell=attrgetter("planned"),
    ),
    Metric(
        "plimsoll_planned_steps_total",
        "Requests that a step would have changed, by step, in requests whose mode is observe.",
        ("step",),
        samples=lambda o, named: [((note.step,), 1) for note in o.planned],
        tell=attrgetter("planned"),
    ),
    Metric(
        "plimsoll_unfitted_requests_total",
        "Requests that passed through without being measured, by endpoint; an unknown endpoint is other.",
        ("endpoint",),
        samples=lambda o, named: [((family(o.path),), 1)],
        among=lambda of: of.endpoint in UNFITTED,
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
        lambda of, named: (named(of.model), named(of.model_sent)) if of.model_sent not in ("", of.model) else None,
    ),
    Metric(
        "plimsoll_refusals_total",
        "Upstream errors that said a request was too long, by the rule that matched and whether a retry succeeded.",
        ("rule", "healed"),
        samples=lambda o, named: [((rule, str(o.healed).lower()), 1) for rule in o.refusals],
        tell=attrgetter("refusals"),
    ),
    Metric(
        "plimsoll_counts_total",
        "Counted requests by the quality of the count: exact, calibrated or estimated.",
        ("quality",),
        lambda of, named: (of.quality,) if of.quality else None,
    ),
    Metric(
        "plimsoll_counts_dropped_total",
        "Requests that fit by their size in bytes and were never counted, because the queue for counting was full.",
        (),
        samples=lambda o, named: [((), 1)],
        tell=attrgetter("uncounted"),
    ),
    Metric(
        "plimsoll_count_error_ratio",
        "Error of the prompt's count against the upstream's usage: (counted - reported) / reported.",
        ("quality",),
        lambda of, named: (of.quality,) if of.status == 200 else None,
        lambda o: (
            (o.prompt_sent - o.usage.prompt) / o.usage.prompt
            if o.usage is not None and o.usage.prompt and o.prompt_sent is not None
            else None
        ),
        ERRORS,
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
        samples=lambda o, named: [((named(o.model_sent),), 1)],
        tell=attrgetter("truncated"),
    ),
    Metric(
        "plimsoll_websocket_bytes_total",
        "Bytes through closed WebSockets: in (from clients) and out (to clients).",
        ("direction",),
        samples=lambda o, named: [(("in",), o.bytes_in), (("out",), o.bytes_out)],
        tell=lambda o: o.bytes_in or o.bytes_out,
        among=lambda of: of.endpoint in UNFITTED,
    ),
    Metric(
        "plimsoll_own_seconds",
        "Time spent in the proxy itself, without the time of the upstream.",
        ("endpoint",),
        lambda of, named: (of.endpoint,),
        attrgetter("own_seconds"),
        OWN_SECONDS,
    ),
    Metric(
        "plimsoll_upstream_seconds",
        "Time from sending a request upstream to the end of the response.",
        ("endpoint",),
        lambda of, named: (of.endpoint,),
        lambda o: o.upstream_seconds or None,
        UPSTREAM_SECONDS,
    ),
    Metric(
        "plimsoll_first_byte_seconds",
        "Time from sending a request upstream to the first byte of the response body.",
        ("endpoint",),
        lambda of, named: (of.endpoint,),
        attrgetter("first_byte_seconds"),
        UPSTREAM_SECONDS,
    ),
)

FIGURES: tuple[Figure[Shared], ...] = (
    Figure(
        "plimsoll_cache_lookups_total",
        "Cache lookups of token counts, summaries and model records, by tier and result.",
        ("tier", "result"),
        lambda cache: cache.lookups().items(),
    ),
    Figure(
        "plimsoll_cache_troubles_total",
        "Failures of the shared cache, by kind; no request fails or waits long because of them.",
        ("kind",),
        lambda cache: cache.failures().items(),
    ),
    Figure(
        "plimsoll_cache_breaker_open",
        "1 while the shared cache is not used because it failed, else 0.",
        ("breaker",),
        lambda cache: cache.open_breakers().items(),
    ),
)

EXTRA_FIGURES: tuple[Figure[Account], ...] = (
    Figure(
        "plimsoll_extra_calls_total",
        "Extra calls (summaries, embeddings) by kind and result; results but ok and failed are calls not made.",
        ("kind", "result"),
        lambda account: account.calls().items(),
    ),
    Figure(
        "plimsoll_extra_tokens_total",
        "Prompt and reply tokens of extra calls, as upstreams reported them.",
        ("kind",),
        lambda account: account.tokens().items(),
    ),
    Figure(
        "plimsoll_extra_seconds_total",
        "Time of extra calls.",
        ("kind",),
        lambda account: account.seconds().items(),
    ),
    Figure(
        "plimsoll_extra_budget_left_tokens",
        "Tokens left of the operator's budget for extra calls in the current 24 hours.",
        (),
        lambda account: [((), account.left)],
        "sum",
    ),
)


MEMORY: tuple[Figure[Held], ...] = (
    Figure(
        "plimsoll_memory_budget_bytes",
        "Memory that request bodies of all workers may use (PLIMSOLL_MAX_MEMORY).",
        (),
        lambda budget: [((), budget.total)],
        "newest",
    ),
    Figure(
        "plimsoll_memory_used_bytes",
        "Memory reserved for request bodies: four times their size.",
        (),
        lambda budget: [((), budget.used)],
        "newest",
    ),
    Figure(
        "plimsoll_memory_waiting_requests",
        "Requests waiting for memory before their bodies are read.",
        (),
        lambda budget: [((), budget.waiting)],
        "newest",
    ),
    Figure(
        "plimsoll_memory_refused_total",
        "Request bodies refused for lack of memory: after waiting (wait), while growing (growth), or too large (size).",
        ("reason",),
        lambda budget: [((reason,), count) for reason, count in budget.refused.items()],
    ),
)


def model_label(windows: Windows, model: str) -> str:
    """The label of a model: the name that a table or the user's row knows it by. A client may write one model's name
    in endless ways, and each label is a series for ever."""
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

    `label` names models as labels, `shared` is the cache, `account` the extra calls, `budget` the memory for bodies:
    their figures are read when somebody asks. Outcomes are gathered, and added up when somebody asks. With several
    workers `folder` is where each writes its values, within `LATE` seconds, for the others to read.
    """

    def __init__(
        self,
        label: Named = lambda model: OTHER,
        shared: Shared | None = None,
        account: Account | None = None,
        budget: Held | None = None,
        folder: Path | None = None,
    ) -> None:
        self._files = None if folder is None else WorkerFiles(folder)
        self.in_flight = Gauge(None if folder is None else self._soon)
        self._label = label
        self._labels: Bounded[str, str] = Bounded(REMEMBERED)
        self._models: set[str] = set()
        self._new: list[Outcome] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tallies = [(m, HistogramBuffer(m.buckets) if m.buckets else CounterBuffer()) for m in METRICS]
        self._figures = [
            *([] if shared is None else _read_from(FIGURES, shared)),
            *([] if account is None else _read_from(EXTRA_FIGURES, account)),
            *([] if budget is None else _read_from(MEMORY, budget)),
        ]
        self._rows = [Row(m.name, m.help, m.labels, m.buckets) for m in METRICS]
        self._rows += [*(row for row, _ in self._figures), IN_FLIGHT]
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(_Family()) if self._files else ProcessCollector(registry=self._registry)

    def named(self, model: str) -> str:
        """A model's label; `other` for one that nobody knows, and for new ones once there are `MOST_MODELS`."""
        label = self._labels.get(model)
        if label is None:
            label = self._label(model)
            if label not in self._models and len(self._models) >= MOST_MODELS:
                label = OTHER
            self._models.add(label)
            self._labels.put(model, label)
        return label

    def observe(self, outcome: Outcome) -> None:
        """Adds one outcome to every metric that it says something about. Takes some 3 us: many are added up at once."""
        self._new.append(outcome)
        if len(self._new) >= GATHERED:
            self._add_up()
        if self._files is not None:
            self._soon()

    def _add_up(self) -> None:
        new, self._new = self._new, []
        groups: dict[tuple[str, ...], list[Outcome]] = {}
        for outcome in new:
            groups.setdefault(GROUP(outcome), []).append(outcome)
        for key, outcomes in groups.items():
            group = Group._make(key)
            for metric, tally in self._tallies:
                if metric.samples is not None:
                    if metric.among is None or metric.among(group):
                        for outcome in filter(metric.tell, outcomes):
                            for labels, value in metric.samples(outcome, self.named):
                                tally.add(labels, (value,))
                elif (told := metric.of(group, self.named)) is not None:
                    if metric.value is None:
                        tally.add(told, (len(outcomes),))
                    else:
                        tally.add(told, [v for v in map(metric.value, outcomes) if v is not None])

    def _soon(self) -> None:
        """Where another worker is asked, it must find what this one counted."""
        if self._timer is None:
            with contextlib.suppress(RuntimeError):  # no event loop: then whoever counts also publishes
                self._timer = asyncio.get_running_loop().call_later(LATE, self.publish)

    def publish(self) -> None:
        """Lets other workers read what this one counted. Never raises: a full disk must not stop the serving."""
        self._timer = None
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.write(self._snapshot())

    def _snapshot(self) -> Snapshot:
        """The values of this process."""
        self._add_up()
        made = Snapshot(time.monotonic(), {metric.name: tally.cells for metric, tally in self._tallies}, {})
        for row, read in self._figures:
            (made.gauges if row.mode else made.counters)[row.name] = {labels: [value] for labels, value in read()}
        made.gauges[IN_FLIGHT.name] = {(): [self.in_flight.value]}
        return made

    def _snapshots(self) -> list[Snapshot]:
        if self._files is None:
            return [self._snapshot()]
        self.publish()  # else the next scrape, of another worker, could find less than this one: a reset
        return [self._snapshot(), *self._files.others()]

    def collect(self) -> Iterable[MetricFamily]:
        """The metrics of this moment, all workers together."""
        cells = merged(self._snapshots(), {row.name: row.mode for row in self._rows if row.mode})
        for row in self._rows:
            found = cells.get(row.name, {})
            if self._files is None or found or not row.labels:
                yield row.family(found, signed_sum=self._files is not None)

    def exposition(self) -> bytes:
        """What GET /metrics answers."""
        return generate_latest(self._registry)

    def end(self, pid: int) -> None:
        """A worker has ended: what it counted stays, its requests in flight do not."""
        if self._files is not None:
            with contextlib.suppress(OSError):
                self._files.end(pid)


def _read_from(figures: Iterable[Figure[S]], source: S) -> list[tuple[Row, Callable[[], Samples]]]:
    """A row and a reader for each figure of one source: a total by its name, else a gauge."""
    return [
        (
            Row(figure.name, figure.help, figure.labels, mode=None if figure.name.endswith("_total") else figure.mode),
            partial(figure.read, source),
        )
        for figure in figures
    ]


class _Family(Collector):
    """What prometheus' ProcessCollector tells of one process, of all workers together."""

    def collect(self) -> Iterable[MetricFamily]:
        """The metrics of this moment."""
        told = processes.process_totals()
        if told is None:
            return
        yield CounterMetricFamily(
            "process_cpu_seconds_total", "User and system CPU time of all processes.", told.cpu_seconds
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Resident memory of all processes.", told.resident_bytes
        )
        yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory of all processes.", told.virtual_bytes)
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors of all processes.", told.open_files)
        yield GaugeMetricFamily(
            "process_max_fds", "Maximum number of open file descriptors of all processes.", told.max_files
        )
        yield GaugeMetricFamily(
            "process_start_time_seconds", "Start time of the first process since the epoch.", told.started_at
        )
