"""What recording costs, where `costs` is too coarse: one process records and does not, in turns of a tenth of a second.

    python -m tests.bench.switched [--case "1 KB, 16"] [--content bodies] [--starts 8] [--seconds 20]

Two processes that do the same differ by some percent, because their memory lies elsewhere, and the speed of a busy host
changes from second to second. Short turns within one process differ in neither. The time of a turn is the CPU time of
the event loop's thread. What the recorder's thread takes is added, divided by all recorded requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.cli.main import main as plimsoll
from proxy.request.observers import Observer, Recording
from proxy.request.reporting import Reporter
from tests.bench.__main__ import CASES, machine
from tests.bench.loads import Case, measured
from tests.bench.systems import HOME, need, started, upstream

UPSTREAM, PORT = 19_130, 19_131
ROOT = Path(__file__).parents[2]
RECORDED, TURNS_FILE = HOME / "switched", "BENCH_TURNS_FILE"
WHOLE = tuple(case for case in CASES if not case.stream)  # streams hold bodies that a turn without recording keeps held
WARM_S, TURN_S = 2.0, 0.1
PAUSE_S = 0.004  # after a switch, for the requests that began before it
MIN_REQUESTS = 20  # in a turn that counts


@dataclass
class Switch:
    """What a serving process counts of its requests."""

    observers: Sequence[Observer] = ()
    on: bool = True
    ended: int = 0
    recorded: int = 0


def serve() -> int:
    """`plimsoll serve`, which records in turns, and writes what the turns took to a file."""
    switch, finish, report_all = Switch(), Reporter.finish, Reporter.report_all
    tasks: list[asyncio.Task[None]] = []

    def counted(self: Reporter, context: object) -> None:
        switch.ended += 1
        switch.recorded += switch.on
        finish(self, context)  # type: ignore[arg-type]

    def switched(self: Reporter) -> None:
        if not tasks:
            switch.observers = self.observers
            tasks.append(asyncio.get_running_loop().create_task(_turns(switch, Path(os.environ[TURNS_FILE]))))
        on = switch.observers
        self.observers = on if switch.on else [one for one in on if not isinstance(one, Recording)]
        report_all(self)

    Reporter.finish, Reporter.report_all = counted, switched  # type: ignore[method-assign]
    return plimsoll()


async def _turns(switch: Switch, path: Path) -> None:
    """Writes a line of JSON for each pair of turns: microseconds a request with and without recording, and of the
    thread a recorded request."""
    await asyncio.sleep(WARM_S)
    recorded, thread = switch.recorded, _thread_ns()
    with path.open("w") as file:
        while True:
            took: dict[bool, float] = {}
            for on in random.sample((True, False), 2):
                switch.on = on
                await asyncio.sleep(PAUSE_S)
                ended, began = switch.ended, time.thread_time_ns()
                await asyncio.sleep(TURN_S)
                if (count := switch.ended - ended) >= MIN_REQUESTS:
                    took[on] = (time.thread_time_ns() - began) / 1000 / count
            if len(took) == 2:
                each = (_thread_ns() - thread) / 1000 / (switch.recorded - recorded)
                file.write(json.dumps([took[True], took[False], each]) + "\n")
                file.flush()


def _thread_ns() -> int:
    """CPU time of the recorder's thread."""
    threads = [one.ident for one in threading.enumerate() if one.name == "recorder"]
    return sum(time.clock_gettime_ns(time.pthread_getcpuclockid(ident)) for ident in threads if ident is not None)


def one_start(case: Case, content: str, seconds: int) -> tuple[float, float]:
    """Microseconds that recording adds to a request, and of a request without, of a process that is started here."""
    shutil.rmtree(RECORDED, ignore_errors=True)
    path = HOME / "switched.jsonl"
    settings = {
        "PLIMSOLL_UPSTREAM": f"http://127.0.0.1:{UPSTREAM}/v1",
        "PLIMSOLL_RECORD": str(RECORDED),
        "PLIMSOLL_RECORD_CONTENT": content,
        "PLIMSOLL_RECORD_SIZE": "100MB",
        TURNS_FILE: str(path),
    }
    command = (sys.executable, "-m", "tests.bench.switched", "serve", "--port", PORT)
    system = started("switched", PORT, command, settings, folder=ROOT)
    try:
        if measured(case, system, seconds).errors:
            raise RuntimeError("errors among the answers")
        pairs: list[list[float]] = [json.loads(line) for line in path.read_text().splitlines()]
    finally:
        system.stop()
    if not pairs:
        raise RuntimeError(f"fewer than {MIN_REQUESTS} requests in each turn of {TURN_S} s")
    ratios = sorted(on / off for on, off, _ in pairs)
    middle = ratios[len(ratios) // 4 : -(len(ratios) // 4) or None]
    without = statistics.median(off for _, off, _ in pairs)
    return (statistics.mean(middle) - 1) * without + pairs[-1][2], without


def main() -> int:
    """Prints the costs of each start, and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="1 KB, 16", choices=[case.name for case in WHOLE], help="as in `make bench`")
    parser.add_argument("--content", default="bodies", choices=["meta", "redacted", "bodies"])
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=20, help="of load after each start")
    asked = parser.parse_args()
    if asked.starts < 2 or asked.seconds < 5:
        parser.error("at least two starts, of five seconds each")
    (case,) = (case for case in WHOLE if case.name == asked.case)
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    ratios: list[float] = []
    behind = upstream(UPSTREAM)
    try:
        for _ in range(asked.starts):
            added, without = one_start(case, asked.content, asked.seconds)
            ratios.append(1 + added / without)
            print(f"{added:.1f} us more than {without:.1f}: {ratios[-1]:.3f}", flush=True)
    finally:
        behind.stop()
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"{case.name}, {asked.content}: {statistics.mean(ratios):.3f}, standard error {error:.3f}\n{machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:2] == ["serve"] else main())
