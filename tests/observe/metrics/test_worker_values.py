"""The values of several workers: written whole, read by any of them, and kept as far as they still hold."""

from __future__ import annotations

import os
from pathlib import Path

from proxy.observe.metrics.worker_values import Snapshot, WorkerFiles, encoded, merged, merged_exemplars

COUNTED = Snapshot(1.0, {"requests": {("chat",): [2.0]}, "seconds": {(): [1.0, 0.0, 0.5]}}, {"flying": {(): [3.0]}})


def test_what_one_process_writes_is_read_by_all_and_replaced_as_a_whole(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path)
    files.write(encoded(Snapshot(0.0, {}, {})))
    files.write(encoded(COUNTED))
    assert list(WorkerFiles(tmp_path).others()) == [COUNTED]
    assert list(files.others()) == []


def test_a_worker_that_has_ended_keeps_its_counters_alone(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path)
    files.write(encoded(COUNTED))
    files.end(os.getpid())
    files.end(1)
    assert list(WorkerFiles(tmp_path).others()) == [Snapshot(1.0, COUNTED.counters, {})]


def test_a_process_id_that_comes_again_is_another_worker(tmp_path: Path) -> None:
    for _ in range(2):
        WorkerFiles(tmp_path).write(encoded(COUNTED))
    assert len(list(WorkerFiles(tmp_path).others())) == 2


def test_counters_are_added_up_bucket_by_bucket() -> None:
    other = Snapshot(2.0, {"requests": {("chat",): [1.0], ("x",): [7.0]}, "seconds": {(): [0.0, 4.0, 9.0]}}, {})
    total = merged([COUNTED, other], {"flying": "sum"})
    assert total["requests"] == {("chat",): [3.0], ("x",): [7.0]}
    assert total["seconds"] == {(): [1.0, 4.0, 9.5]}
    assert COUNTED.counters["requests"] == {("chat",): [2.0]}, "what it was made from is as it was"


def test_gauges_are_added_up_or_the_largest_or_the_newest() -> None:
    snapshots = [Snapshot(at, {}, {name: {(): [value]} for name in "abc"}) for at, value in ((2.0, 1.0), (1.0, 5.0))]
    assert merged(snapshots, {"a": "sum", "b": "max", "c": "newest"}) == {
        "a": {(): [6.0]},
        "b": {(): [5.0]},
        "c": {(): [1.0]},
    }


def test_the_newest_exemplar_of_each_bucket_is_shown() -> None:
    old = Snapshot(1.0, {}, {}, {"h": {("a",): {0: ("old", 0.1), 1: ("only", 1.0)}}})
    new = Snapshot(2.0, {}, {}, {"h": {("a",): {0: ("new", 0.2)}, ("b",): {0: ("other", 0.3)}}})
    assert merged_exemplars([new, old]) == {
        "h": {("a",): {0: ("new", 0.2), 1: ("only", 1.0)}, ("b",): {0: ("other", 0.3)}}
    }
