"""Whether memory stays flat: full load of 1 KB and 1 MB bodies and streams in turn, resident memory after each round.

python -m tests.bench.soak [--seconds 600] [--cold]

With --cold there are bodies among them that were never seen: then it grows until what is remembered of conversations is
as large as it may become (some 100 MB), and only that is shown.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench.loads import Case, measured
from tests.bench.systems import HOME, System, need, plimsoll, upstream

LEGS = (
    Case("1 KB, 64", 1_000, 1, 64),
    Case("1 MB, 4", 1_000_000, 500, 4),
    Case("stream, 64", 1_000, 1, 64, stream=True),
)
COLD = (
    Case("1 KB, 16, cold", 1_000, 1, 16, cold=True),
    Case("40 KB, 16, cold", 40_000, 20, 16, cold=True),
    Case("1 MB, 4, cold", 1_000_000, 500, 4, cold=True),
)
GROWTH = 1.2  # of the memory after the first round: more is a leak


def main() -> int:
    """Prints memory round by round; exit code 1 where it grew by more than a fifth after the first."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=600.0)
    arguments.add_argument("--cold", action="store_true")
    given = arguments.parse_args()
    legs, seconds = (LEGS + COLD if given.cold else LEGS), given.seconds
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    running: list[System] = []
    memory: list[float] = []
    sent, rounds = 0.0, max(2, round(seconds / (4 * len(legs))))
    try:
        running.append(upstream(19100))
        running.append(plimsoll(19101, 19100))
        for place in range(rounds):
            for leg in legs:
                result = measured(leg, running[1], 4.0)
                sent += 4.0 * result.rate
            memory.append(running[1].memory_mb())
            print(
                f"round {place + 1}: {memory[-1]:.0f} MB after {sent:,.0f} requests, {result.errors} errors", flush=True
            )
    finally:
        for system in reversed(running):
            system.stop()
    return 1 if max(memory) > GROWTH * memory[0] and not given.cold else 0


if __name__ == "__main__":
    sys.exit(main())
