"""CPU time, memory and file descriptors of the supervisor and all its workers together, read from /proc (Linux only).

prometheus-client's own collector covers one process, and with several workers a scrape reaches any one of them.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessTotals(NamedTuple):
    """Sums over all processes. `started_at` is the supervisor's start in seconds since 1970."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    max_files: int
    started_at: float


def process_totals() -> ProcessTotals | None:
    """The totals of this process's parent and all children of that; CPU time includes that of ended workers. None if
    /proc cannot be read; never raises."""
    try:
        parent = os.getppid()
        pids = [parent, *_children(parent)]
        first = _stat(parent)
        booted = re.search(r"^btime (\d+)", (PROC / "stat").read_text(), re.MULTILINE)
        limit = re.search(r"^Max open files\s+(\d+)", (PROC / "self" / "limits").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    if booted is None or limit is None:
        return None
    cpu, resident, virtual, files = sum(map(int, first[13:15])), 0, 0, 0  # cutime and cstime: of ended children
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
