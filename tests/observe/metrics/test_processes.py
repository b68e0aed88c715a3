"""What the supervisor and its workers take together, read from a /proc of this test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.observe.metrics import processes
from proxy.observe.metrics.processes import PAGE_BYTES, TICKS_PER_SECOND, process_totals


def process(proc: Path, pid: int, times: tuple[int, int, int, int], files: int, children: str = "") -> None:
    """A process with these ticks (utime, stime, cutime, cstime), a start at tick 500, 1,000 bytes and 3 pages."""
    fields = ["S", *["0"] * 10, *map(str, times), *["0"] * 4, "500", "1000", "3"]
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "task" / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "task" / str(pid) / "children").write_text(children)
    (proc / str(pid) / "stat").write_text(f"{pid} (a ) b (c) {' '.join(fields)}\n")
    for number in range(files):
        (proc / str(pid) / "fd" / str(number)).touch()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "limits").write_text("Max open files            64                 128       files\n")
    return tmp_path


def test_all_processes_count_and_of_the_parent_its_ended_children_too(proc: Path) -> None:
    parent = os.getppid()
    process(proc, parent, (1, 2, 30, 40), 2, children="900001 900002 ")
    process(proc, 900001, (100, 200, 7, 7), 3)
    found = process_totals(workers=True)  # 900002 has just ended
    assert found is not None
    assert found.cpu_seconds == pytest.approx((1 + 2 + 30 + 40 + 100 + 200) / TICKS_PER_SECOND)
    assert (found.virtual_bytes, found.resident_bytes) == (2_000, 6 * PAGE_BYTES)
    assert (found.open_files, found.max_files) == (5, 3 * 64)
    assert found.started_at == pytest.approx(1000 + 500 / TICKS_PER_SECOND)


def test_where_nothing_can_be_read_there_are_no_totals(proc: Path) -> None:
    assert process_totals(workers=True) is None
    process(proc, os.getppid(), (1, 1, 1, 1), 1)
    (proc / "stat").write_text("cpu 1 2 3\n")
    assert process_totals(workers=True) is None
