"""The values of one row under each set of its labels. Known labels start at 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.observe.metrics.buffers import CounterBuffer, HistogramBuffer, Labels, NewestBuffer
from proxy.observe.metrics.outcome_metrics import Metric

Buffer = CounterBuffer | HistogramBuffer | NewestBuffer


@dataclass(slots=True)
class Series:
    """One row, its values, and the bases that have their zeros. `known` are labels besides those of the row."""

    metric: Metric
    buffer: Buffer
    known: Sequence[Labels] = ()
    begun: set[Labels] = field(default_factory=set)

    @classmethod
    def of(cls, metric: Metric, known: Sequence[Labels] = ()) -> Series:
        """The series of a row without values."""
        if metric.newest:
            return cls(metric, NewestBuffer(), known)
        return cls(metric, HistogramBuffer(metric.buckets) if metric.buckets else CounterBuffer(), known)

    def know(self, known: Sequence[Labels]) -> None:
        """Starts further sets of labels at 0, for the bases that are there."""
        self.known, begun, self.begun = known, self.begun, set()
        for base in begun:
            self.begin(base)

    def begin(self, base: Labels) -> None:
        """Starts the known sets of labels of a base at 0, once."""
        self.begun.add(base)
        for labels in self.metric.starts_at_zero(base, self.known):
            self.buffer.add(labels, (0.0,))
