"""Whether a long text stalls a short one: 1 KB requests while another client sends new bodies of 1 MB without pause.

python -m tests.bench.stall [--seconds 10]
"""

from __future__ import annotations

import argparse
import sys
import threading

from tests.bench.loads import Case, measured
from tests.bench.systems import HOME, System, need, plimsoll, upstream

SHORT = Case("1 KB, 4", 1_000, 1, 4)
LONG = Case("1 MB, 1, cold", 1_000_000, 500, 1, cold=True)


def main() -> int:
    """Prints the short requests' latency alone and beside the long ones; exit code 1 where the p99 is over 25 ms."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=10.0)
    seconds = arguments.parse_args().seconds
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    running: list[System] = []
    try:
        running.append(upstream(19100))
        running.append(plimsoll(19101, 19100))
        alone = measured(SHORT, running[1], seconds)
        other = threading.Thread(target=measured, args=(LONG, running[1], seconds + 2))
        other.start()
        beside = measured(SHORT, running[1], seconds)
        other.join()
    finally:
        for system in reversed(running):
            system.stop()
    for name, result in (("alone", alone), ("beside cold 1 MB bodies", beside)):
        print(f"1 KB {name}: p50 {result.p50 / 1000:.2f} ms, p99 {result.p99 / 1000:.2f} ms, {result.rate:,.0f}/s")
    return 1 if beside.p99 > 25_000 else 0


if __name__ == "__main__":
    sys.exit(main())
