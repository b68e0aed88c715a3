"""What the system says of this process's family: the one that started the workers, and all of them together.

Prometheus' own collector knows one process, and where several serve, a scrape reaches any one of them. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Processes(NamedTuple):
    """Sums over the processes; the start is the first one's, in seconds since the epoch."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    most_files: int
    started_at: float


def family() -> Processes | None:
    """The parent of this process and all of its children; None where the system does not tell. Processor time counts
    that of workers which have ended."""
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
    cpu, resident, virtual, files = sum(map(int, first[13:15])), 0, 0, 0  # of children that were waited for
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):  # one that ends just now
            told = _stat(pid)
            cpu += int(told[11]) + int(told[12])
            virtual += int(told[20])
            resident += int(told[21]) * PAGE
            files += len(os.listdir(PROC / str(pid) / "fd"))
    started = int(booted[1]) + int(first[19]) / TICKS
    return Processes(cpu / TICKS, resident, virtual, files, int(limit[1]) * len(pids), started)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in (PROC / str(pid) / "task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat from the third on: behind the name, which may hold anything."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
