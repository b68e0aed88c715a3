"""What Plimsoll takes by load: CPU a request, and memory idle and at its highest, with one worker and with two.

python -m tests.bench.sizing [--seconds 4]

Each load meets a process that has just started. The budget for bodies is that of a container of 512 MiB.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.__main__ import machine, row
from tests.bench.loads import Case, Result, measured
from tests.bench.systems import HOME, System, need, started, upstream

BUDGET = "176MiB"
CASES = (
    Case("1 KB", 1_000, 1, 16),
    Case("40 KB", 40_000, 20, 16),
    Case("40 KB, all new", 40_000, 20, 16, cold=True),
    Case("1 MB", 1_000_000, 500, 16),
    Case("1 MB, two messages longer", 1_000_000, 500, 16, grown=True),
    Case("1 MB, all new", 1_000_000, 500, 16, cold=True),
    Case("stream of 100 chunks", 1_000, 1, 16, stream=True),
)


def plimsoll(port: int, behind: int, workers: int) -> System:
    """Plimsoll as users run it, on both cores."""
    environment = {
        "PLIMSOLL_UPSTREAM": f"http://127.0.0.1:{behind}/v1",
        "PLIMSOLL_WORKERS": str(workers),
        "PLIMSOLL_MAX_MEMORY": BUDGET,
    }
    command = [sys.executable, "-m", "proxy.cli", "serve", "--port", port]
    return started(f"plimsoll-{workers}", port, command, environment, core="0,1")


def memory_mb(system: System) -> float:
    """Memory of all its processes; what they share counts once (PSS), as in a container's limit."""
    files = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in system.processes())
    return sum(int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0]) for text in files) / 1024


def highest_mb(system: System, ended: threading.Event) -> float:
    """The most memory that it took until something has ended, looked at ten times a second."""
    highest = memory_mb(system)
    while not ended.wait(0.1):
        highest = max(highest, memory_mb(system))
    return highest


def loaded(case: Case, system: System, seconds: float) -> tuple[Result, float]:
    """One load, and the most memory during it."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        highest = pool.submit(highest_mb, system, ended)
        try:
            result = measured(case, system, seconds)
        finally:
            ended.set()
        return result, highest.result()


def main() -> None:
    """Measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=4.0)
    seconds = arguments.parse_args().seconds
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    behind = upstream(19100)
    try:
        print(row("workers", "16 clients send", "CPU us/request", "MB idle", "MB at its highest", "errors"))
        print("|---" * 6 + "|", flush=True)
        for workers in (1, 2):
            for case in CASES:
                system = plimsoll(19101, 19100, workers)
                try:
                    idle = memory_mb(system)
                    got, highest = loaded(case, system, seconds)
                    figures = (f"{got.cpu_us:,.0f}", f"{idle:.0f}", f"{highest:.0f}", got.errors)
                    print(row(workers, case.name, *figures), flush=True)
                finally:
                    system.stop()
    finally:
        behind.stop()
    print("\n" + machine())


if __name__ == "__main__":
    main()
