"""The values of one row under each set of its labels. Those that an alert reads start at 0."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.observe.metrics.buffers import CounterBuffer, HistogramBuffer, Labels, NewestBuffer
from proxy.observe.metrics.outcome_metrics import Metric

Buffer = CounterBuffer | HistogramBuffer | NewestBuffer


@dataclass(slots=True)
class Series:
    """One row, its values, and the bases that have their zeros."""

    metric: Metric
    buffer: Buffer
    begun: set[Labels] = field(default_factory=set)

    @classmethod
    def of(cls, metric: Metric) -> Series:
        """The series of a row without values."""
        if metric.newest:
            return cls(metric, NewestBuffer())
        return cls(metric, HistogramBuffer(metric.buckets) if metric.buckets else CounterBuffer())

    def begin(self, base: Labels) -> None:
        """Starts the zeros of a base, once."""
        self.begun.add(base)
        for labels in self.metric.starts_at_zero(base):
            self.buffer.add(labels, (0.0,))
