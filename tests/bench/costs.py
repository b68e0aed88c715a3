"""What the page costs: CPU of a request with it over none, on one core, in one run.

    python -m tests.bench.costs [--starts 5] [--rounds 4] [--seconds 4] [--cases "1 KB, 16;40 KB, 16"]

Two processes that do the same differ, because their memory lies elsewhere, and the speed of a virtual machine changes
from second to second. So all are started anew several times, take turns in random order, and are compared within a
round; `again` is a second process without it, and shows how far two that do the same are apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.bench.__main__ import CASES, machine
from tests.bench.loads import Case, measured
from tests.bench.systems import HOME, System, need, plimsoll, upstream

UPSTREAM, FIRST, ADMIN = 19_100, 19_101, 19_120  # ports
NONE, AGAIN, CLOSED, OPEN = "none", "again", "page, closed", "page, open"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    NONE: {},
    AGAIN: {},
    CLOSED: {"PLIMSOLL_ADMIN_PORT": str(ADMIN)},
}
WARM_S = 1.0
RESAMPLED = 2_000  # times, for an interval


async def _look(port: int, seen: threading.Event, until: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    end = asyncio.create_task(until.wait())
    while not end.done():
        read = asyncio.create_task(reader.read(1 << 20))
        await asyncio.wait((read, end), return_when=asyncio.FIRST_COMPLETED)
        if read.done() and read.result():
            seen.set()
    read.cancel()
    writer.close()


@contextlib.contextmanager
def viewers(port: int, count: int) -> Iterator[None]:
    """So many viewers of the page, from their first event to the end."""
    loop, until = asyncio.new_event_loop(), asyncio.Event()
    seen = [threading.Event() for _ in range(count)]

    async def look() -> None:
        await asyncio.gather(*(_look(port, one, until) for one in seen))

    thread = threading.Thread(target=loop.run_until_complete, args=(look(),))
    thread.start()
    try:
        for one in seen:
            if not one.wait(10):
                raise RuntimeError("the page sends no events")
        yield
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join()
        loop.close()


def rounds(cases: Sequence[Case], seconds: float, count: int, looking: int) -> Iterator[tuple[str, str, float]]:
    """Case, way and CPU microseconds, of processes that are started and ended here."""
    with contextlib.ExitStack() as stack:
        systems: dict[str, System] = {}
        for place, (name, settings) in enumerate(SETTINGS.items()):
            log = name.partition(",")[0]
            systems[name] = plimsoll(FIRST + place, UPSTREAM, log, settings=settings)
            stack.callback(systems[name].stop)
        ways = [*systems, OPEN]
        for case in cases:
            for system in systems.values():
                measured(case, system, WARM_S)
            for _ in range(count):
                for way in random.sample(ways, len(ways)):
                    with viewers(ADMIN, looking if way == OPEN else 0):
                        result = measured(case, systems[CLOSED if way == OPEN else way], seconds)
                    if result.errors:
                        raise RuntimeError(f"{way}: errors among the answers")
                    yield case.name, way, result.cpu_us


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Within which the median is with a probability of 90 %, from resampling."""
    found = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(RESAMPLED))
    return found[RESAMPLED // 20], found[-RESAMPLED // 20]


def main() -> int:
    """Prints the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4, help="after each start")
    parser.add_argument("--seconds", type=int, default=4, help="of load; events come once a second")
    parser.add_argument("--viewers", type=int, default=1)
    parser.add_argument("--cases", default="1 KB, 16", help="between semicolons, as in `make bench`")
    asked = parser.parse_args()
    cases = [case for case in CASES if case.name in asked.cases.split(";")]
    if not cases:
        parser.error(f"--cases: {asked.cases} is none of {'; '.join(case.name for case in CASES)}")
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    behind = upstream(UPSTREAM)
    try:
        for _ in range(asked.starts):
            for case, way, cpu in rounds(cases, asked.seconds, asked.rounds, asked.viewers):
                found[case, way].append(cpu)
            print(".", end="", flush=True, file=sys.stderr)
    finally:
        behind.stop()
    print("\n| case, clients | | CPU us/request, least and median | over none, median | 90 % interval |")
    print("|---" * 5 + "|")
    for (case, way), spent in sorted(found.items()):
        ratios = [one / none for one, none in zip(spent, found[case, NONE], strict=True)]
        low, high = interval(ratios)
        print(
            f"| {case} | {way} | {min(spent):.1f}, {statistics.median(spent):.1f} | {statistics.median(ratios):.3f} |"
            f" {low:.3f} to {high:.3f} |"
        )
    print("\n" + machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
