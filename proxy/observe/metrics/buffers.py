"""Counters and histograms in plain dictionaries: an addition costs a tenth of prometheus-client's.

They are independent of metrics and of the library.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

Labels = tuple[str, ...]
Exemplar = tuple[str, float]  # a trace id, and the value


class CounterBuffer:
    """The total under each set of labels: `cells` has one value for each."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, values: Sequence[float]) -> None:
        """Adds values to one total."""
        if values:
            cell = self.cells.get(labels)
            if cell is None:
                self.cells[labels] = [float(sum(values))]
            else:
                cell[0] += sum(values)


class HistogramBuffer:
    """How many values fall in each bucket, and their sum, under each set of labels.

    A value of `cells` has a count for each of `bounds` (upper, inclusive), one for what is over all of them, and the
    sum. The counts are not cumulative. `exemplars` has, for some buckets by their place, the trace id of one of the
    values and the value.
    """

    __slots__ = ("_bounds", "_empty", "cells", "exemplars")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._empty = [0.0] * (len(bounds) + 2)
        self.cells: dict[Labels, list[float]] = {}
        self.exemplars: dict[Labels, dict[int, Exemplar]] = {}

    def mark(self, labels: Labels, value: float, trace_id: str) -> None:
        """Makes a value that is added apart from this the exemplar of its bucket."""
        self.exemplars.setdefault(labels, {})[bisect_left(self._bounds, value)] = (trace_id, value)

    def add(self, labels: Labels, values: Sequence[float]) -> None:
        """Adds values."""
        if not values:
            return
        cell = self.cells.get(labels)
        if cell is None:
            cell = self.cells[labels] = self._empty.copy()
        cell[-1] += sum(values)
        bounds = self._bounds
        if len(values) < len(bounds):
            for value in values:
                cell[bisect_left(bounds, value)] += 1
            return
        ordered, below = sorted(values), 0  # a search for each bound: fewer than one for each value
        for place, bound in enumerate(bounds):
            found = bisect_right(ordered, bound, below)
            if found != below:
                cell[place] += found - below
                below = found
        cell[len(bounds)] += len(ordered) - below


class NewestBuffer:
    """The last value under each set of labels."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, values: Sequence[float]) -> None:
        """Sets the last of the values."""
        if values:
            self.cells[labels] = [float(values[-1])]


class Gauge:
    """A number that goes up and down. `on_change` is called after each change."""

    __slots__ = ("_on_change", "value")

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.value = 0
        self._on_change = on_change

    def inc(self) -> None:
        """Adds one."""
        self.value += 1
        if self._on_change is not None:
            self._on_change()

    def dec(self) -> None:
        """Subtracts one."""
        self.value -= 1
        if self._on_change is not None:
            self._on_change()
