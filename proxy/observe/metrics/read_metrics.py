"""The metrics that are read from their sources at a scrape: caches, extra calls, memory, reloads, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.worker_values import Mode

Samples = Iterable[tuple[Labels, float]]
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """The versions of what runs. `table_at`: the newest date in the model table, in seconds since 1970; 0: unknown."""

    version: str
    python: str
    litellm: str
    table_at: float = 0.0


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


class BudgetStatistics(Protocol):
    """Statistics of the budgets of callers."""

    def states(self) -> Iterable[tuple[Labels, float, int]]:
        """By budget and caller: the share that is used, and the stage."""


class ReloadStatistics(Protocol):
    """Statistics of reloads of rules and keys."""

    valid: bool  # whether the last one succeeded
    loaded_at: float  # of the last one that succeeded, in seconds since 1970

    def reloads(self) -> Mapping[tuple[str], int]:
        """By result."""


class TraceStatistics(Protocol):
    """Statistics of exported traces: totals since the start."""

    def results(self) -> Mapping[tuple[str], int]:
        """Traced requests, by result."""


class RecordingStatistics(Protocol):
    """Statistics of recorded requests: totals since the start."""

    def results(self) -> Mapping[tuple[str], int]:
        """Requests, by what became of their lines."""


class ExtraCallStatistics(Protocol):
    """Statistics of extra calls: totals since the start, and the rest of their budget."""

    def calls(self) -> Mapping[tuple[str, str], int]:
        """By kind and result."""

    def tokens(self) -> Mapping[tuple[str], int]:
        """By kind."""

    def seconds(self) -> Mapping[tuple[str], float]:
        """By kind."""

    @property
    def budget(self) -> int:
        """Tokens."""

    @property
    def left_here(self) -> int:
        """Tokens."""


@dataclass(frozen=True, slots=True)
class ReadMetric(Generic[S]):
    """One metric that is read from its source at a scrape: a counter if its name ends in `_total`, else a gauge.
    `mode`: how the gauges of several workers are combined."""

    name: str
    help: str
    labels: Labels
    read: Callable[[S], Samples]
    mode: Mode = "max"


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
        "Extra calls by kind (summary, embeddings, count, key) and result; but for ok and failed none was made.",
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
        "plimsoll_extra_budget_tokens",
        "Tokens of the operator's budget for extra calls in 24 hours (PLIMSOLL_EXTRA_CALLS_BUDGET).",
        (),
        lambda extra_calls: [((), extra_calls.budget)],
        "sum",
    ),
    ReadMetric(
        "plimsoll_extra_budget_left_tokens",
        "Tokens left of the operator's budget for extra calls in the current 24 hours.",
        (),
        lambda extra_calls: [((), extra_calls.left_here)],
        "sum",
    ),
)

BUDGET_METRICS: tuple[ReadMetric[BudgetStatistics], ...] = (
    ReadMetric(
        "plimsoll_budget_used_ratio",
        "Share of a budget of callers.toml that is used in its period, by budget and caller; without Redis, of the "
        "share that the worker has.",
        ("budget", "caller"),
        lambda budgets: [(labels, used) for labels, used, _ in budgets.states()],
    ),
    ReadMetric(
        "plimsoll_budget_stage",
        "Stage of a budget in its period, 0 to 3: from 1 on the window of its requests is smaller.",
        ("budget", "caller"),
        lambda budgets: [(labels, stage) for labels, _, stage in budgets.states()],
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
        "Request bodies refused for lack of memory: after waiting (wait), while growing (growth), too large (size), "
        "or of a caller that held over half (half).",
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

TRACE_METRICS: tuple[ReadMetric[TraceStatistics], ...] = (
    ReadMetric(
        "plimsoll_traced_requests_total",
        "Traced requests by what became of their spans: exported, dropped (the queue was full) or failed.",
        ("result",),
        lambda traces: traces.results().items(),
    ),
)

RECORDING_METRICS: tuple[ReadMetric[RecordingStatistics], ...] = (
    ReadMetric(
        "plimsoll_recorded_requests_total",
        "Recorded requests by what became of their lines: written, dropped (the queue was full) or failed.",
        ("result",),
        lambda recording: recording.results().items(),
    ),
)

BUILD_METRICS: tuple[ReadMetric[BuildFacts], ...] = (
    ReadMetric(
        "plimsoll_build_info",
        "1, with the versions of Plimsoll, Python and litellm's model table.",
        ("version", "python", "litellm"),
        lambda build: [((build.version, build.python, build.litellm), 1)],
    ),
    ReadMetric(
        "plimsoll_model_table_timestamp_seconds",
        "Newest date in the model table, in seconds since the epoch: the table was published after it.",
        (),
        lambda build: [((), build.table_at)] if build.table_at else [],
    ),
)
