"""CPU time, memory and file descriptors of this process, or of the supervisor and all its workers together.

With several workers a scrape reaches any one of them. The names are those of Prometheus' own clients. Read from /proc
(Linux only).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proxy.observe.metrics.text_formats import Family, Row

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessTotals(NamedTuple):
    """Sums over all processes. `started_at` is the first one's start in seconds since 1970."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    max_files: int
    started_at: float


ROWS = (
    Row("process_cpu_seconds_total", "User and system CPU time of all processes.", ()),
    Row("process_resident_memory_bytes", "Resident memory of all processes.", (), mode="sum"),
    Row("process_virtual_memory_bytes", "Virtual memory of all processes.", (), mode="sum"),
    Row("process_open_fds", "Open file descriptors of all processes.", (), mode="sum"),
    Row("process_max_fds", "Maximum number of open file descriptors of all processes.", (), mode="sum"),
    Row("process_start_time_seconds", "Start time of the first process since the epoch.", (), mode="sum"),
)  # in the order of `ProcessTotals`


def families(totals: ProcessTotals | None) -> Iterator[Family]:
    """The totals as metrics; none without totals."""
    for row, value in zip(ROWS, totals or (), strict=totals is not None):
        yield row, {(): [value]}, {}


def process_totals(workers: bool) -> ProcessTotals | None:
    """The totals of this process; of `workers`, those of its parent and all children of that, with the CPU time of
    ended ones. None if /proc cannot be read; never raises."""
    try:
        parent = os.getppid() if workers else os.getpid()
        pids = [parent, *_children(parent)] if workers else [parent]
        first = _stat(parent)
        booted = re.search(r"^btime (\d+)", (PROC / "stat").read_text(), re.MULTILINE)
        limit = re.search(r"^Max open files\s+(\d+)", (PROC / "self" / "limits").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    if booted is None or limit is None:
        return None
    cpu = sum(map(int, first[13:15])) if workers else 0  # cutime and cstime: of ended children
    resident = virtual = files = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):  # the process has just ended
            stat = _stat(pid)
            cpu += int(stat[11]) + int(stat[12])  # utime and stime
            virtual += int(stat[20])
            resident += int(stat[21]) * PAGE_BYTES
            files += len(os.listdir(PROC / str(pid) / "fd"))
    started = int(booted[1]) + int(first[19]) / TICKS_PER_SECOND
    return ProcessTotals(cpu / TICKS_PER_SECOND, resident, virtual, files, int(limit[1]) * len(pids), started)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in (PROC / str(pid) / "task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat (proc(5)) from the third on: those after the name, which may contain anything."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
