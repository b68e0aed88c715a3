"""What is counted, one row each; the only module that knows prometheus. It sees outcomes, never requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from proxy.types import Note, Outcome

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"  # the label of a model that no table knows: a client must not be able to grow our labels
LOADS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5, 2.0, 4.0, 10.0)
OWN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
UPSTREAM_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ERRORS = (-0.25, -0.1, -0.05, -0.02, -0.01, -0.001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.25)

Sample = tuple[tuple[str, ...], float]
Named = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it is called, what it says, and which samples an outcome adds to it."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Outcome, Named], Iterable[Sample]]
    buckets: tuple[float, ...] = ()


def _one(*labels: str) -> list[Sample]:
    return [(labels, 1)]


def _cuts(notes: Sequence[Note]) -> list[Sample]:
    return [((n.step,), n.tokens_before - n.tokens_after) for n in notes if n.tokens_after < n.tokens_before]


def _steps(notes: Sequence[Note]) -> list[Sample]:
    return [((n.step,), 1) for n in notes]


def _switches(o: Outcome, named: Named) -> list[Sample]:
    return _one(named(o.model), named(o.model_sent)) if o.model_sent and o.model_sent != o.model else []


def _some(labels: tuple[str, ...], value: float | None) -> list[Sample]:
    return [] if value is None else [(labels, value)]


def _error(o: Outcome) -> list[Sample]:
    if o.usage is None or not o.usage.prompt or o.prompt_sent is None:
        return []
    return [((o.quality,), (o.prompt_sent - o.usage.prompt) / o.usage.prompt)]


def _cached(o: Outcome) -> float | None:
    return o.usage.cached if o.usage else None


METRICS = (
    Metric(
        "plimsoll_requests_total",
        "Requests by what became of them.",
        ("endpoint", "result", "status"),
        lambda o, named: _one(o.endpoint, o.result, str(o.status)),
    ),
    Metric(
        "plimsoll_model_requests_total",
        "Fitted requests by model; a model that no table knows is called other.",
        ("model",),
        lambda o, named: _one(named(o.model)) if o.model else [],
    ),
    Metric(
        "plimsoll_window_load_before_ratio",
        "How full the window would have been with what the client sent.",
        (),
        lambda o, named: _some((), o.load_before),
        LOADS,
    ),
    Metric(
        "plimsoll_window_load_after_ratio",
        "How full the window was with what went upstream.",
        (),
        lambda o, named: _some((), o.load_after),
        LOADS,
    ),
    Metric(
        "plimsoll_prompt_tokens_total",
        "Prompt tokens as clients sent them.",
        ("model",),
        lambda o, named: _some((named(o.model),), o.prompt),
    ),
    Metric(
        "plimsoll_prompt_sent_tokens_total",
        "Prompt tokens as they went upstream.",
        ("model",),
        lambda o, named: _some((named(o.model_sent or o.model),), o.prompt_sent),
    ),
    Metric("plimsoll_cut_tokens_total", "Prompt tokens cut, by step.", ("step",), lambda o, named: _cuts(o.notes)),
    Metric(
        "plimsoll_steps_total", "How often each step changed a request.", ("step",), lambda o, named: _steps(o.notes)
    ),
    Metric(
        "plimsoll_reply_asked_tokens_total",
        "Reply limits that clients asked for.",
        (),
        lambda o, named: _some((), o.reply_asked),
    ),
    Metric(
        "plimsoll_reply_granted_tokens_total",
        "Reply limits that went upstream.",
        (),
        lambda o, named: _some((), o.reply_sent),
    ),
    Metric("plimsoll_switches_total", "Switches to another model.", ("from", "to"), _switches),
    Metric(
        "plimsoll_refusals_total",
        "Answers that a request was too long, by the rule that knew them and whether the request was healed.",
        ("rule", "healed"),
        lambda o, named: [((rule, str(o.healed).lower()), 1) for rule in o.refusals],
    ),
    Metric(
        "plimsoll_counts_total",
        "Counts by how far they may be trusted.",
        ("quality",),
        lambda o, named: _one(o.quality) if o.quality else [],
    ),
    Metric(
        "plimsoll_count_error_ratio",
        "Our count of the prompt against the upstream's own usage: (ours - theirs) / theirs.",
        ("quality",),
        lambda o, named: _error(o),
        ERRORS,
    ),
    Metric(
        "plimsoll_cached_prompt_tokens_total",
        "Prompt tokens that upstreams took from their own prompt cache.",
        (),
        lambda o, named: _some((), _cached(o)),
    ),
    Metric(
        "plimsoll_own_seconds",
        "Time spent in our own code, upstream's time apart.",
        ("endpoint",),
        lambda o, named: [((o.endpoint,), o.own_seconds)],
        OWN_SECONDS,
    ),
    Metric(
        "plimsoll_upstream_seconds",
        "Time from the request's departure to the end of its answer.",
        ("endpoint",),
        lambda o, named: [((o.endpoint,), o.upstream_seconds)] if o.upstream_seconds else [],
        UPSTREAM_SECONDS,
    ),
    Metric(
        "plimsoll_first_byte_seconds",
        "Time from the request's departure to the first byte of its answer's body.",
        ("endpoint",),
        lambda o, named: _some((o.endpoint,), o.first_byte_seconds),
        UPSTREAM_SECONDS,
    ),
)


class Metrics:
    """The registry of one process. `known` says which model names may be labels; `figures` are read at each scrape:
    name -> (help, function that gives label values -> number)."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self.registry = CollectorRegistry()
        self._known = known
        self._names: dict[str, str] = {}
        self._made = [(m, self._make(m)) for m in METRICS]
        self._children: dict[tuple[str, tuple[str, ...]], Callable[[float], None]] = {}
        self.in_flight = Gauge(
            "plimsoll_requests_in_flight",
            "Requests that are under way.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def _make(self, metric: Metric) -> Counter | Histogram:
        if metric.buckets:
            return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def named(self, model: str) -> str:
        """The model's name as a label: itself where a table knows it."""
        label = self._names.get(model)
        if label is None:
            label = model if len(self._names) < 1000 and self._known(model) else OTHER
            if len(self._names) < 1000:
                self._names[model] = label
        return label

    def observe(self, outcome: Outcome) -> None:
        """Adds one outcome to every metric that it says something about."""
        for metric, made in self._made:
            for labels, value in metric.samples(outcome, self.named):
                key = (metric.name, labels)
                add = self._children.get(key)
                if add is None:
                    child = made.labels(*labels) if labels else made
                    add = self._children[key] = child.observe if isinstance(child, Histogram) else child.inc
                add(value)

    def watch(
        self, name: str, help: str, labels: tuple[str, ...], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        """A gauge whose figures are read when they are asked for (cache hits by tier, a breaker's state)."""
        gauge = Gauge(name, help, labels, registry=self.registry, multiprocess_mode="livesum")
        self._watched = [*getattr(self, "_watched", []), (gauge, read)]

    def exposition(self) -> bytes:
        """What GET /metrics answers, all workers together."""
        for gauge, read in getattr(self, "_watched", []):
            for labels, value in read().items():
                (gauge.labels(*labels) if labels else gauge).set(value)
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if folder and Path(folder).is_dir():
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self.registry)
