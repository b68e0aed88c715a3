"""`make bench`: Plimsoll beside nginx and other proxies in one run, interleaved, each on one core.

    python -m tests.bench [--quick] [--only nginx,plimsoll] [--before FOLDER ...] [--json FILE]

FOLDER is another checkout, an older commit's of any layout, which is measured beside this one in the same run, in an
environment of its own. CPU a request is by
the processes' own accounting; added latency is over the upstream asked directly.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench.arguments import checkout
from tests.bench.loads import MESSAGES, RESPONSES, Case, Result, measured
from tests.bench.systems import HOME, SYSTEMS, System, need, plimsoll, upstream

LEAST_RATE = 5.0  # answers a second: the slowest case of a system that works has over 40
CASES = (
    Case("1 KB, 1", 1_000, 1, 1),
    Case("1 KB, 16", 1_000, 1, 16),
    Case("1 KB, 64", 1_000, 1, 64),
    Case("1 KB, 16, cold", 1_000, 1, 16, cold=True),
    Case("40 KB, 1", 40_000, 20, 1),
    Case("40 KB, 16", 40_000, 20, 16),
    Case("40 KB, 64", 40_000, 20, 64),
    Case("40 KB, 1, grown", 40_000, 20, 1, grown=True),
    Case("40 KB, 16, cold", 40_000, 20, 16, cold=True),
    Case("1 MB, 1", 1_000_000, 500, 1),
    Case("1 MB, 4", 1_000_000, 500, 4),
    Case("1 MB, 1, grown", 1_000_000, 500, 1, grown=True),
    Case("1 MB, 4, cold", 1_000_000, 500, 4, cold=True),
    Case("stream of 10, 16", 1_000, 1, 16, stream=True, chunks=10),
    Case("stream of 100, 16", 1_000, 1, 16, stream=True),
    Case("Responses, 1 KB, 16", 1_000, 1, 16, path=RESPONSES),
    Case("Responses, 40 KB, 16", 40_000, 20, 16, path=RESPONSES),
    Case("Responses, 40 KB, 1, grown", 40_000, 20, 1, grown=True, path=RESPONSES),
    Case("Responses, stream of 100, 16", 1_000, 1, 16, stream=True, path=RESPONSES),
    Case("Messages, 1 KB, 16", 1_000, 1, 16, path=MESSAGES),
    Case("Messages, 40 KB, 16", 40_000, 20, 16, path=MESSAGES),
    Case("Messages, 40 KB, 1, grown", 40_000, 20, 1, grown=True, path=MESSAGES),
    Case("Messages, stream of 100, 16", 1_000, 1, 16, stream=True, path=MESSAGES),
)


def rounds(systems: Sequence[System], cases: Sequence[Case], seconds: float, times: int) -> Iterator[Result]:
    """Every case on every system, interleaved, so that what the machine does meanwhile meets all of them alike."""
    for _ in range(times):
        for case in cases:
            for system in systems:
                result = measured(case, system, seconds)
                print(
                    f"  {result.case:18} {result.system:9} {result.cpu_us:9.0f} us {result.rate:8.0f}/s",
                    file=sys.stderr,
                )
                yield result


def median(results: Sequence[Result]) -> Result:
    """The median of each figure over the rounds of one case and system."""
    middle = {k: statistics.median(getattr(r, k) for r in results) for k in ("cpu_us", "rate", "p50", "p99", "memory")}
    return Result(results[0].system, results[0].case, errors=sum(r.errors for r in results), **middle)


def table(medians: dict[tuple[str, str], Result], cases: Sequence[Case], names: Sequence[str]) -> Iterator[str]:
    """The result as Markdown."""
    heads = ("case, clients", "system", "CPU us/request", "x nginx", "x plimsoll", "requests/s")
    yield row(*heads, "p50 added ms", "p99 added ms", "errors")
    yield "|---" * 9 + "|"
    for case in cases:
        direct = medians[case.name, "direct"]
        for name in names:
            r = medians[case.name, name]
            if reason := failure(r):
                yield row(case.name, name, f"no figure: {reason}", "", "", "", "", "", r.errors)
                continue
            ratios = [times(r, medians.get((case.name, other))) for other in ("nginx", "plimsoll")]
            cpu = "" if name == "direct" else f"{r.cpu_us:,.0f}"
            added = [
                f"{(getattr(r, p) - getattr(direct, p)) / 1000:.2f}" if name != "direct" else "" for p in ("p50", "p99")
            ]
            yield row(case.name, name, cpu, *ratios, f"{r.rate:,.0f}", *added, r.errors)


def failure(result: Result) -> str:
    """Why a result is no figure: a system that fails most requests, or hardly answers any, is fast or slow for reasons
    that the table cannot show. Empty where it is one."""
    if result.errors:
        return "errors among its answers"
    return f"only {result.rate:.1f} answers a second" if result.rate < LEAST_RATE else ""


def chunks(medians: dict[tuple[str, str], Result], names: Sequence[str]) -> Iterator[str]:
    """What a chunk more costs, from streams of 100 and of 10: a stream's beginning and end are in neither."""
    costs = {
        name: (long.cpu_us - short.cpu_us) / 90
        for name in names
        if (long := medians.get(("stream of 100, 16", name))) and (short := medians.get(("stream of 10, 16", name)))
        if not failure(long) and not failure(short)
    }
    if costs.get("nginx"):
        yield "\n| a chunk of a stream | CPU us | x nginx |\n|---|---|---|"
        for name, cost in costs.items():
            if cost:
                yield row(name, f"{cost:.1f}", f"{cost / costs['nginx']:.2f}")


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def times(one: Result, other: Result | None) -> str:
    """How many times the CPU of another system one takes; empty for what has none."""
    told = other is not None and other.cpu_us and not failure(other) and one.system not in ("direct", other.system)
    return f"{one.cpu_us / other.cpu_us:.1f}" if told and other is not None else ""


def main() -> int:
    """Runs and prints; exit code 1 where a system that was asked for could not be measured."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="one short round, under two minutes")
    arguments.add_argument("--only", default=",".join(SYSTEMS), help="systems, between commas")
    arguments.add_argument("--cases", default="", help="only cases of these names, between semicolons")
    arguments.add_argument(
        "--before", type=checkout, action="append", default=[], help="another checkout, to be measured beside this one"
    )
    arguments.add_argument("--json", type=Path, default=HOME / "bench.json")
    chosen = arguments.parse_args()
    if unknown := [name for name in filter(None, chosen.only.split(",")) if name not in SYSTEMS]:
        arguments.error(f"--only: {', '.join(unknown)} is none of {', '.join(SYSTEMS)}")
    HOME.mkdir(exist_ok=True)
    need("wrk", "wrk")
    seconds, repeats = (1.0, 1) if chosen.quick else (4.0, 3)
    wanted = {name.strip() for name in chosen.cases.split(";")}
    cases = [case for case in CASES if not chosen.cases or case.name in wanted]
    running: list[System] = []
    try:
        behind = upstream(19100)
        running.append(behind)
        systems = [System("direct", 19100)]
        for place, name in enumerate(filter(None, chosen.only.split(","))):
            systems.append(SYSTEMS[name](19101 + place, 19100))
            running.append(systems[-1])
        for folder in chosen.before:
            systems.append(plimsoll(19101 + len(systems), 19100, f"before-{folder.name}", folder))
            running.append(systems[-1])
        idle = {s.name: (s.start_seconds, s.memory_mb()) for s in systems[1:]}
        results = list(rounds(systems, cases, seconds, repeats))
    finally:
        for system in reversed(running):
            system.stop()
    names = [s.name for s in systems]
    medians = {
        (c.name, n): median([r for r in results if (r.case, r.system) == (c.name, n)]) for c in cases for n in names
    }
    print("\n".join((*table(medians, cases, names), *chunks(medians, names))))
    print("\n| system | start s | memory idle MB | memory after MB |\n|---|---|---|---|")
    for name in names[1:]:
        print(f"| {name} | {idle[name][0]:.1f} | {idle[name][1]:.0f} | {medians[cases[-1].name, name].memory:.0f} |")
    print("\n" + machine())
    chosen.json.write_text(
        json.dumps({"machine": machine(), "results": [asdict(r) for r in results], "idle": idle}, indent=1)
    )
    return 0


def machine() -> str:
    """What it was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return f"{model}, Python {platform.python_version()}, Linux {platform.release().split('-')[0]}"


if __name__ == "__main__":
    sys.exit(main())
