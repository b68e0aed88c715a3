"""The metric values of several worker processes: each writes its values to a file, and any of them adds all up.

Theory of operation. A file holds all values of one worker and is replaced as a whole, so that a reader never sees half
of it. The file of a worker that has ended keeps its counters and loses its gauges: a total must never fall, but
requests in flight end with their process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proxy.observe.metrics.buffers import Exemplar, Labels

Cells = Mapping[Labels, Sequence[float]]  # the numbers of one metric, by the values of its labels
Exemplars = dict[Labels, dict[int, Exemplar]]
Mode = Literal["sum", "max", "newest"]  # how the gauges of several workers become one


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """The values of one worker by the names of the metrics, at a time of the system's monotonic clock. `exemplars`: of
    histograms, by labels and by the place of the bucket."""

    at: float
    counters: dict[str, dict[Labels, list[float]]]
    gauges: dict[str, dict[Labels, list[float]]]
    exemplars: dict[str, Exemplars] = {}  # msgspec copies the default


_DECODER = msgspec.msgpack.Decoder(Snapshot)
_ENCODER = msgspec.msgpack.Encoder()


def encoded(snapshot: Snapshot) -> bytes:
    """The values as they are written: a copy, which later values do not change."""
    return _ENCODER.encode(snapshot)


def decoded(data: bytes) -> Snapshot:
    """What `encoded` made."""
    return _DECODER.decode(data)


class WorkerFiles:
    """The files of all workers in one folder: one for each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid, self._name = 0, ""

    def write(self, data: bytes) -> None:
        """Replaces this process's encoded values. Raises OSError."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._name = f"{self._pid}-{time.monotonic_ns()}"  # process ids are reused
        self._replace(self._name, data)

    def _replace(self, name: str, data: bytes) -> None:
        draft = self._folder / f".{name}"
        draft.write_bytes(data)
        draft.replace(self._folder / name)

    def end(self, pid: int) -> None:
        """Removes the gauges of a worker that has exited. Raises OSError."""
        for path in self._folder.glob(f"{pid}-*"):
            ended = decoded(path.read_bytes())
            self._replace(path.name, encoded(Snapshot(ended.at, ended.counters, {}, ended.exemplars)))

    def others(self) -> Iterator[Snapshot]:
        """The values of all other workers."""
        for path in self._folder.glob("[0-9]*"):
            if path.name != self._name:
                with contextlib.suppress(OSError):
                    yield decoded(path.read_bytes())


def merged_exemplars(snapshots: Iterable[Snapshot]) -> dict[str, Exemplars]:
    """The newest exemplar of each bucket."""
    total: dict[str, Exemplars] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.at):
        for name, by_labels in snapshot.exemplars.items():
            found = total.setdefault(name, {})
            for labels, marks in by_labels.items():
                found[labels] = {**found.get(labels, {}), **marks}
    return total


def merged(snapshots: Iterable[Snapshot], modes: Mapping[str, Mode]) -> dict[str, Cells]:
    """The values of all workers: counters are added, each gauge is combined by its mode."""
    total: dict[str, dict[Labels, list[float]]] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.at):
        for name, cells in snapshot.counters.items():
            _merge(total.setdefault(name, {}), cells, "sum")
        for name, cells in snapshot.gauges.items():
            _merge(total.setdefault(name, {}), cells, modes[name])
    return {**total}


def _merge(total: dict[Labels, list[float]], cells: Cells, mode: Mode) -> None:
    for labels, values in cells.items():
        before = total.get(labels)
        if before is None or mode == "newest":
            total[labels] = [*values]
        elif mode == "max":
            total[labels] = [*map(max, before, values)]
        else:
            total[labels] = [a + b for a, b in zip(before, values, strict=True)]
