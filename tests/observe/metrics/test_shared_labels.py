"""Sets of labels: all workers tell the same ones apart, and no more than there may be."""

from __future__ import annotations

import json
import os

import pytest

from proxy.observe.metrics.shared_labels import MAX_SET_BYTES, SIZE, SharedLabels

MOST = 50


def in_workers(count: int, labels: SharedLabels, kinds: int = 1) -> list[list[int]]:
    """Of each of some processes: the sets that it tells apart, of 200 that each begins with another one of."""
    pipes = []
    for worker in range(count):
        reading, writing = os.pipe()
        if not os.fork():
            admitted = [
                i % 200
                for i in range(worker * 37, worker * 37 + 400)
                if all(labels.admit(f"kind {kind}", ("chat", f"model-{i % 200}"), MOST) for kind in range(kinds))
            ]
            os.write(writing, json.dumps(sorted(set(admitted))).encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    found = []
    for reading in pipes:
        with os.fdopen(reading, "rb") as pipe:
            found.append(json.load(pipe))
        os.wait()
    return found


def test_M2_workers_tell_the_same_sets_apart_whichever_came_first() -> None:
    labels = SharedLabels()
    found = in_workers(4, labels)
    assert all(len(one) == MOST for one in found), [len(one) for one in found]
    assert all(one == found[0] for one in found)
    assert {i for i in range(200) if labels.admit("kind 0", ("chat", f"model-{i}"), MOST)} == set(found[0])


def test_a_worker_that_is_replaced_finds_what_the_last_one_told_apart() -> None:
    labels = SharedLabels()
    assert in_workers(1, labels) == in_workers(1, labels)


def test_kinds_are_counted_apart() -> None:
    labels = SharedLabels()
    assert labels.admit("pair", ("a",), 1) and not labels.admit("pair", ("b",), 1)
    assert labels.admit("caller", ("b",), 1) and labels.admit("pair", ("a",), 1)


def test_what_is_asked_first_is_first_once_in_all_workers() -> None:
    labels = SharedLabels()
    assert labels.is_first("told")
    assert not labels.is_first("told") and labels.is_first("another")


@pytest.mark.parametrize("name", ["", "x" * MAX_SET_BYTES, '\0\n"', "\N{GREEK SMALL LETTER ALPHA}" * 100])
def test_any_name_is_kept_as_it_is_or_not_at_all(name: str) -> None:
    labels = SharedLabels()
    kept = labels.admit("pair", ("chat", name), MOST)
    assert kept == (len(name.encode()) < MAX_SET_BYTES)
    assert labels.admit("pair", ("chat", "next"), MOST)


def test_memory_that_is_full_takes_no_more_and_keeps_what_it_has() -> None:
    labels, most = SharedLabels(), SIZE
    kept = [labels.admit("pair", (f"{i}", "x" * 900), most) for i in range(SIZE // 900 + 2)]
    assert kept[0] and not kept[-1]
    assert labels.admit("pair", ("0", "x" * 900), most) and not labels.admit("pair", ("z", "x" * 900), most)
