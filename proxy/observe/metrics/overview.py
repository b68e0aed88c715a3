"""The overview of the page: sums over the values that /metrics shows. A figure has one home, the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.model.outcome import UNFITTED
from proxy.observe.metrics.buffers import Labels
from proxy.observe.metrics.costs import ACCEPTED, ASKED, ASKED_NET, COST_METRICS, PRICED, SENT, SENT_NET, TOO_LONG
from proxy.observe.metrics.outcome_metrics import LOAD_BUCKETS, METRICS, REQUESTS, RESULTS
from proxy.observe.metrics.worker_values import Cells

MAX_MODELS = 100
BEFORE, AFTER = "plimsoll_window_load_before_ratio", "plimsoll_window_load_after_ratio"
PROMPT, PROMPT_SENT = "plimsoll_prompt_tokens_total", "plimsoll_prompt_sent_tokens_total"
CUT = "plimsoll_cut_tokens_total"
FAILED = ("upstream_error", "broken_off", "bug")
CHANGED = ("fitted", "healed")
_ROWS = {metric.name: metric for metric in (*METRICS, *COST_METRICS)}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of all metrics by name, over all workers. `by_caller`: some have the label `CALLER`."""

    cells: Mapping[str, Cells]
    by_caller: bool = False

    def rows(self, name: str) -> Iterator[tuple[dict[str, str], Sequence[float]]]:
        """The samples of a metric that are not zero: labels by name, and numbers."""
        metric = _ROWS.get(name)
        names: Labels = () if metric is None else metric.all_labels(self.by_caller)
        for labels, numbers in self.cells.get(name, {}).items():
            if any(numbers):  # most are there so that rates have a beginning
                yield dict(zip(names, labels, strict=False)), numbers

    def total(self, name: str, **where: str) -> float:
        """The sum of a counter or a gauge over the samples with these labels."""
        return sum(n[0] for labels, n in self.rows(name) if all(labels.get(k) == v for k, v in where.items()))

    def by(self, name: str, label: str) -> defaultdict[str, float]:
        """The sums of a counter by one label."""
        found: defaultdict[str, float] = defaultdict(float)
        for row, numbers in self.rows(name):
            found[row.get(label, "")] += numbers[0]
        return found

    def by_pair(self, name: str, label: str, other: str) -> defaultdict[tuple[str, str], float]:
        """The sums of a counter by two labels."""
        found: defaultdict[tuple[str, str], float] = defaultdict(float)
        for row, numbers in self.rows(name):
            found[row.get(label, ""), row.get(other, "")] += numbers[0]
        return found

    def histogram(self, name: str) -> list[float]:
        """The counts of a histogram's buckets and the sum of its values; empty without a value."""
        return self.histograms(name, "").get("", [])

    def histograms(self, name: str, label: str) -> dict[str, list[float]]:
        """The same by one label. In one pass: there may be thousands of samples."""
        found: dict[str, list[float]] = {}
        for row, numbers in self.rows(name):
            value = row.get(label, "")
            known = found.get(value)
            found[value] = [*numbers] if known is None else [a + b for a, b in zip(known, numbers, strict=True)]
        return found

    def read(self, name: str) -> Mapping[Labels, float]:
        """The samples of a metric that is read at a scrape, by the values of its labels."""
        return {labels: numbers[0] for labels, numbers in self.cells.get(name, {}).items()}

    def one(self, name: str) -> float:
        """The sum of a metric that is read at a scrape."""
        return sum(self.read(name).values())


def quantile(share: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """An estimate as Prometheus' `histogram_quantile`: linear in the bucket, the last bound for what is over it. None
    without a value."""
    total = sum(counts)
    if not total:
        return None
    rank, below = share * total, 0.0
    for place, count in enumerate(counts):
        if count and below + count >= rank:
            if place >= len(bounds):
                return bounds[-1]
            lower = bounds[place - 1] if place else min(0.0, bounds[0])
            return lower + (bounds[place] - lower) * (rank - below) / count
        below += count
    return bounds[-1]


def not_above(highest: float, load: float | None) -> float | None:
    """A quantile of loads, but no more than the highest load that is known, if that is in the same bucket. One in a
    lower bucket says nothing: the highest of all is no longer known."""
    if load is None:
        return None
    lower = max((bound for bound in LOAD_BUCKETS if bound < load), default=0.0)
    return highest if lower < highest < load else load


def figures(values: Values) -> dict[str, Any]:
    """The JSON of all that follows from the metrics. Times in seconds, money in US dollars."""
    return {
        "requests": _requests(values),
        "tokens": _tokens(values),
        "money": _money(values),
        "own_seconds": _times(values, "plimsoll_own_seconds"),
        "upstream_seconds": _times(values, "plimsoll_upstream_seconds"),
        "first_byte_seconds": _times(values, "plimsoll_first_byte_seconds"),
        "load": {
            "bounds": list(LOAD_BUCKETS),
            "before": _counts(values.histogram(BEFORE)),
            "after": _counts(values.histogram(AFTER)),
        },
        "models": _models(values),
        "unfitted": _unfitted(values),
        "redis": _redis(values),
        "memory": {
            "budget_bytes": int(values.one("plimsoll_memory_budget_bytes")),
            "used_bytes": int(values.one("plimsoll_memory_used_bytes")),
            "waiting": int(values.one("plimsoll_memory_waiting_requests")),
            "refused": int(values.one("plimsoll_memory_refused_total")),
        },
        "extra_calls": {
            "calls": int(values.one("plimsoll_extra_calls_total")),
            "tokens": int(values.one("plimsoll_extra_tokens_total")),
            "budget_left_tokens": int(values.one("plimsoll_extra_budget_left_tokens")),
        },
        "rules": {
            "valid": bool(values.one("plimsoll_rules_last_reload_successful")),
            "loaded_at": values.one("plimsoll_rules_last_reload_success_timestamp_seconds"),
        },
    }


def _requests(values: Values) -> dict[str, Any]:
    by_result: Counter[str] = Counter()
    total = measured = 0
    for (endpoint, result), count in values.by_pair(REQUESTS, "endpoint", "result").items():
        total += int(count)
        if endpoint not in UNFITTED:
            measured += int(count)
            by_result[result] += int(count)
    results = {**{result: 0 for result, _ in RESULTS}, **by_result}
    heals = values.by("plimsoll_heals_total", "result")
    cut = sum(results[result] for result in CHANGED)
    return {
        "total": total,
        "measured": measured,
        "in_flight": int(values.one("plimsoll_requests_in_flight")),
        "results": results,
        "cut": cut,
        "cut_share": round(cut / measured, 5) if measured else None,
        "healed": int(heals["healed"]),
        "heal_failed": int(heals["failed"]),
        "rescued": int(values.total("plimsoll_rescued_requests_total")),
        "unfit": results["unfit"],
        "failed": sum(results[result] for result in FAILED),
    }


def _tokens(values: Values) -> dict[str, Any]:
    return {
        "prompt": int(values.total(PROMPT)),
        "prompt_sent": int(values.total(PROMPT_SENT)),
        "saved": int(values.total(CUT)),
        "steps": _steps(values, "plimsoll_steps_total", CUT),
        "planned": _steps(values, "plimsoll_planned_steps_total", "plimsoll_planned_cut_tokens_total"),
        "reported": None,
        "cached": int(values.total("plimsoll_cached_prompt_tokens_total")),
        "completion": int(values.total("plimsoll_completion_tokens_total")),
    }


def _steps(values: Values, requests: str, tokens: str) -> list[dict[str, Any]]:
    counts, cut = values.by(requests, "step"), values.by(tokens, "step")
    found = [{"step": s, "requests": int(n), "tokens": int(cut[s])} for s, n in counts.items() if n]
    return sorted(found, key=lambda one: (-one["tokens"], one["step"]))


def _money(values: Values) -> dict[str, Any]:
    priced = values.by(PRICED.name, "basis")
    known = priced["usage"] + priced["count"]
    asked, sent = values.total(ASKED.name), values.total(SENT.name, original=ACCEPTED)
    asked_net, sent_net = values.total(ASKED_NET.name), values.total(SENT_NET.name, original=ACCEPTED)
    money = {
        "asked_net": asked_net,
        "sent_net": sent_net,
        "saved_net": asked_net - sent_net,
        "asked": asked,
        "sent": sent,
        "saved": asked - sent,
        "too_long_net": values.total(SENT_NET.name, original=TOO_LONG),
    }
    shown = {name: round(usd, 8) + 0.0 if known else None for name, usd in money.items()}
    return {**shown, "priced": int(known), "unpriced": int(priced["unpriced"])}


def _times(values: Values, name: str) -> dict[str, Any]:
    found, bounds = values.histogram(name), _ROWS[name].buckets
    counts = _counts(found)
    number = sum(counts)
    return {
        "p50": quantile(0.5, bounds, counts),
        "p99": quantile(0.99, bounds, counts),
        "mean": found[-1] / number if number else None,
        "count": number,
    }


def _counts(histogram: Sequence[float]) -> list[int]:
    return [int(count) for count in histogram[:-1]] or [0] * (len(LOAD_BUCKETS) + 1)


def _models(values: Values) -> list[dict[str, Any]]:
    """The models that were measured, the one nearest its line first."""
    requests: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for labels, numbers in values.rows(REQUESTS):
        if numbers[0] and labels["endpoint"] not in UNFITTED:
            requests[labels["model"]][labels["result"]] += int(numbers[0])
    windows = {labels[0]: (labels[1], int(number)) for labels, number in values.read("plimsoll_window_tokens").items()}
    prompt, sent, cut = (values.by(name, "model") for name in (PROMPT, PROMPT_SENT, CUT))
    saved_net = values.by(ASKED_NET.name, "model")
    for (model, original), usd in values.by_pair(SENT_NET.name, "model", "original").items():
        saved_net[model] -= usd if original == ACCEPTED else 0.0
    loads = values.histograms(BEFORE, "model")
    found: list[dict[str, Any]] = []
    for model, results in requests.items():
        counts = _counts(loads.get(model, ()))
        source, window = windows.get(model, ("", 0))
        found.append(
            {
                "model": model,
                "requests": sum(results.values()),
                "window": window,
                "source": source,
                "load_p50": quantile(0.5, LOAD_BUCKETS, counts),
                "load_p95": quantile(0.95, LOAD_BUCKETS, counts),
                "prompt": int(prompt[model]),
                "prompt_sent": int(sent[model]),
                "saved": int(cut[model]),
                "cut": sum(results[result] for result in CHANGED),
                "unfit": results["unfit"],
                "saved_net": round(saved_net[model], 8) + 0.0,
            }
        )
    found.sort(key=lambda one: (-(one["load_p95"] or 0.0), one["model"]))
    return found[:MAX_MODELS]


def _unfitted(values: Values) -> list[dict[str, Any]]:
    found = values.by("plimsoll_unfitted_requests_total", "endpoint")
    rows = [{"endpoint": name, "requests": int(count)} for name, count in found.items() if count]
    return sorted(rows, key=lambda row: (-int(row["requests"]), row["endpoint"]))


def _redis(values: Values) -> dict[str, Any]:
    breakers = values.read("plimsoll_cache_breaker_open")
    failures = values.read("plimsoll_cache_troubles_total")
    opened = sorted(labels[0] for labels, is_open in breakers.items() if is_open)
    return {
        "configured": bool(breakers),
        "healthy": not opened,
        "open_breakers": opened,
        "failures": {labels[0]: int(count) for labels, count in failures.items() if count},
    }
