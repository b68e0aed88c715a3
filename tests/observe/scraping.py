"""What a scrape of metrics shows, and values that tests count."""

from __future__ import annotations

from prometheus_client import parser

from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Note
from proxy.observe.metrics.exposition import Metrics

CLAMPED = Note("clamp_output", 100, 100, 4096, 1200, "gpt-4", "gpt-4")
SWITCHED = Note("switch_model", 9000, 9100, 3000, 3000, "gpt-4", "gpt-4o")
UNCOUNTED = Outcome("chat", "passed", 200, model="gpt-4o", usage=Usage(10, 2, 4), upstream_seconds=0.5, attempts=1)


class Cache:
    """A cache that says what a test makes it say."""

    def __init__(self) -> None:
        self.hits = 0
        self.open = 0

    def lookups(self) -> dict[tuple[str, str], int]:
        return {("local", "hit"): self.hits, ("local", "miss"): 3, ("redis", "hit"): 0, ("redis", "miss"): 1}

    def failures(self) -> dict[tuple[str], int]:
        return {("late",): 2, ("errors",): 0}

    def open_breakers(self) -> dict[tuple[str], int]:
        return {("reading",): self.open, ("writing",): 0}


def scraped(metrics: Metrics) -> dict[str, float]:
    """Each sample by its name and labels, as Prometheus would read them."""
    families = parser.text_string_to_metric_families(metrics.exposition().decode())
    return {
        name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(labels.items())) + "}" if labels else ""): value
        for family in families
        for name, labels, value, *_ in family.samples
    }


def counted(*outcomes: Outcome) -> dict[str, float]:
    metrics = Metrics(lambda model: model)
    for outcome in outcomes:
        metrics.observe(outcome)
    return scraped(metrics)
