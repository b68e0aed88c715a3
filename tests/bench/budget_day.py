"""A scripted day of twenty callers at one spend: requests that are fitted, refused, throttled, or without a budget.

    python -m tests.bench.budget_day [--seeds 1,2,3] [--tasks 15] [--loops 150] [--share 0.6] [--count uncached|all]

Twenty callers work through three proxies of four workers with one Redis, up to 64 requests at once: one in a loop, one
whose rule has no budget, and eighteen with agents whose tasks have questions. A question is answered if the upstream
received its evidence; an agent reads again what was cut, twice a question at most. A task is finished when the evidence
of all its questions was sent. Tasks and texts are made from the seed.

The first day of a seed has no budgets. Each caller then has `--share` of what an agent's caller spent on that day:
with `over = "fit"`, with `"refuse"`, and with `"observe"` where clients limit themselves to that amount, evenly over
the day (`budget_callers`). A last day with `fit` has a prompt cache that forgets one prefix in eight, so that what was
held is too little.

What was spent is what the upstream has counted (`budget_upstream`). The overshoot of a caller may be what its requests
under way at its last grant took over what they held: nothing where the cache forgets nothing, as all requests name
their limit. After the day with `fit`, conversations are sent to each replica in each stage, and what the upstream
received is compared. Returns 1 if an overshoot is larger, a count is not exact, a stage does not come, a body differs,
or the caller without a budget does not finish.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from proxy.request.callers import hash_of
from tests.bench.budget_callers import DAY_S, REPLY, Caller, Line, Seen, body_of
from tests.bench.budget_upstream import TALKATIVE, Row
from tests.bench.budget_work import Message, reading, task
from tests.bench.systems import ROOT
from tests.hostile.harness import eventually, running
from tests.ports import reserved_port
from tests.redis_server import RedisServer, redis_server

SECRET = "the secret of a scripted day"
CALLERS, AT_ONCE, AGENTS = 20, 64, 3
LOOP, PREMIUM, PROBE = "loop", "premium", "probe"
FORGETS = 1 / 8
WINDOW = 2_500  # the smallest; conversations have 3,000 to 14,000 tokens
PROBE_LIMIT = 400_000
RISES = {0: 12_000, 1: 7_000, 2: 3_500}  # tokens of replies in a stage, which lead to the next one
SETTLED_S = 1.0  # until what was settled is in Redis, on a busy machine
MARGIN_S = 1_800.0  # that a day must have left
PRICES = (2.5e-6, 1.25e-6, 10e-6)  # of gpt-4o: input, input from the cache, output; US dollars


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to hold callers to their limit."""

    name: str
    over: str = ""
    throttled: bool = False
    forgets: float = 0.0


FREE = Variant("no budget")
FIT = Variant("fit", "fit")
LIMITED = (FIT, Variant("refuse", "refuse"), Variant("throttle", "observe", throttled=True))
FORGETFUL = Variant("fit, forgetful cache", "fit", forgets=FORGETS)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a day is."""

    tasks: int = 15
    loops: int = 150
    share: float = 0.6
    count: str = "uncached"
    replicas: int = 3
    workers: int = 4
    files: tuple[int, int] = (3, 8)
    tokens: int = 1_200


@dataclass(slots=True)
class Day:
    """What became of a day. `over`: by caller, what it spent over its limit, and what it may have."""

    variant: Variant
    seed: int
    limit: int
    seen: dict[str, Seen] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    over: dict[str, tuple[int, int]] = field(default_factory=dict)
    inexact: int = 0
    seconds: float = 0.0
    cuts: dict[int, tuple[int, int]] = field(default_factory=dict)  # by stage: conversations, and different bodies
    problems: list[str] = field(default_factory=list)

    @property
    def agents(self) -> list[str]:
        """The callers with tasks and, where there are any, with a budget."""
        return [name for name in self.seen if name not in (LOOP, PREMIUM, PROBE)]


def names() -> list[str]:
    """The names of the callers."""
    return [LOOP, PREMIUM, *[f"team-{number:02}" for number in range(CALLERS - 2)]]


def key_of(name: str, day: str) -> str:
    """The key of a caller; no two days share one."""
    return f"sk-{name}-{day}-0123456789"


def rules(variant: Variant, limit: int, day: str, count: str) -> str:
    """The callers.toml of a day."""
    rows = []
    for name in [*names(), PROBE]:
        rows.append(f'[[caller]]\nname = "{name}"\nmatch = "{hash_of(SECRET.encode(), key_of(name, day).encode())}"')
        if variant.over and name != PREMIUM:
            rows.append(f'budget = "{PROBE if name == PROBE else "day"}"')
    if variant.over:
        common = f'per = "{period()}"\nover = "{variant.over}"\nwindow = {WINDOW}'
        rows.append(f'[[budget]]\nname = "day"\ntokens = {limit}\ncount = "{count}"\n{common}')
        rows.append(f'[[budget]]\nname = "{PROBE}"\ntokens = {PROBE_LIMIT}\nsoft = 0.4\n{common}')
    return "\n".join(rows) + "\n"


def period() -> str:
    """A period that does not end soon: most days end at midnight."""
    now = time.time()
    return next(f"{days}d" for days in (1, 2, 3, 5, 7) if days * DAY_S - now % (days * DAY_S) > MARGIN_S)


@contextmanager
def upstream() -> Iterator[int]:
    """The upstream in a process of its own; its port."""
    port = reserved_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.budget_upstream", str(port)], cwd=ROOT)
    try:
        eventually(partial(listens, port))
        yield port
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def taken(port: int, forgets: float = 0.0) -> list[Row]:
    """The ledger of the upstream, where another day begins."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/day?forgets={forgets}", timeout=60) as answer:
        return msgspec.json.decode(answer.read(), type=list[Row])


def connected(redis: RedisServer, count: int) -> bool:
    """Whether so many workers are connected."""
    return redis.cli("CLIENT", "LIST").count(b"\n") > count


def lived(variant: Variant, seed: int, limit: int, port: int, sizes: Sizes) -> Day:
    """A day: starts Redis and the proxies, lets all callers work, and reads the ledger."""
    day, name = Day(variant, seed, limit), f"{variant.name.replace(' ', '').replace(',', '-')}-{seed}"
    taken(port, variant.forgets)
    with tempfile.TemporaryDirectory() as folder, redis_server() as redis, ExitStack() as stack:
        (Path(folder) / "callers.toml").write_text(rules(variant, limit, name, sizes.count))
        given: dict[str, Any] = {"PLIMSOLL_RULES": folder, "PLIMSOLL_SECRET": SECRET, "PLIMSOLL_REDIS": redis.url}
        behind = f"http://127.0.0.1:{port}/v1"
        made = [running(behind, workers=sizes.workers, **given) for _ in range(sizes.replicas)]
        ports = [stack.enter_context(one).port for one in made]
        eventually(lambda: connected(redis, sizes.replicas * sizes.workers))
        began = time.perf_counter()
        asyncio.run(worked(day, name, ports, sizes))
        day.seconds = time.perf_counter() - began
        for row in taken(port):
            day.rows.setdefault(row.key.removeprefix("sk-").removesuffix(f"-{name}-0123456789"), []).append(row)
        if variant is FIT:
            asyncio.run(compared(day, name, ports, port, sizes))
    judge(day, sizes)
    return day


async def worked(day: Day, name: str, ports: Sequence[int], sizes: Sizes) -> None:
    """All callers at once."""
    slots, jobs = asyncio.Semaphore(AT_ONCE), []
    for caller in names():
        rate = day.limit / DAY_S if day.variant.throttled and caller != PREMIUM else None
        one = Caller(caller, key_of(caller, name), ports, slots, f"{day.seed} {caller}", rate=rate)
        one.everything = sizes.count == "all"
        day.seen[caller] = one.seen
        if caller == LOOP:
            jobs.append(one.loop(sizes.loops))
            continue
        tasks = [
            task(f"{day.seed} {caller} {number}", sizes.files, sizes.tokens, at=number / sizes.tasks)
            for number in range(sizes.tasks)
        ]
        jobs.append(one.work(tasks, AGENTS))
    await asyncio.gather(*jobs)


async def compared(day: Day, name: str, ports: Sequence[int], port: int, sizes: Sizes) -> None:
    """Sends conversations to each replica in each stage: whether the upstream receives the same of all."""
    probe = Caller(PROBE, key_of(PROBE, name), ports, asyncio.Semaphore(AT_ONCE), f"{day.seed} probe")
    asked = [body_of(messages) for messages in conversations(day.seed, sizes)]
    found: dict[tuple[int, int], set[str]] = {}
    for stage in range(4):
        numbers: dict[int, tuple[int, int]] = {}
        for place, body in enumerate(asked):
            for replica in [*ports, *ports]:
                line = Line(Caller(PROBE, probe.key, [replica], probe.slots, ""), "")
                got = await line.send(body)
                line.close()
                if got.status != 200:
                    day.problems.append(f"a conversation that is compared got {got.status} in stage {stage}")
                numbers[got.number] = (got.stage, place)
        for row in taken(port):
            if row.number in numbers:
                found.setdefault(numbers[row.number], set()).add(row.digest)
        await risen(probe, stage)
    for stage in range(4):
        bodies = [found[one] for one in found if one[0] == stage]
        day.cuts[stage] = len(bodies), sum(len(one) > 1 for one in bodies)


def conversations(seed: int, sizes: Sizes) -> Iterator[list[Message]]:
    """Conversations of two lengths of two tasks, which no agent has."""
    for number in range(2):
        made = task(f"{seed} probe {number}", sizes.files, sizes.tokens)
        for questions in (1, 2):
            messages = list(made.opening)
            for place, file in enumerate(made.files):
                messages += reading(file, place)
            for one in made.questions[:questions]:
                messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": one.text}]
            yield messages


async def risen(probe: Caller, stage: int) -> None:
    """Uses the budget until another stage has begun; not after the last one."""
    line, told = Line(probe, "risen"), {"role": "user", "content": TALKATIVE.decode()}
    body = body_of([{"role": "system", "content": "Be brief."}, told], RISES.get(stage, 1))
    for _ in range(100 if stage in RISES else 0):
        if (await line.send(body)).stage > stage:
            break
    line.close()


def judge(day: Day, sizes: Sizes) -> None:
    """What a caller spent over its limit, and what is not as it must be."""
    enforced = day.variant.over and not day.variant.throttled
    for name in [LOOP, *day.agents] if enforced else []:
        rows = day.rows.get(name, [])
        day.over[name] = over, allowed = overshoot(rows, day.limit, sizes.count)
        if over > allowed:
            day.problems.append(f"{name} spent {over:,} tokens over its limit, and {allowed:,} are explained")
    prompts = {row.number: row.prompt for rows in day.rows.values() for row in rows}
    answers = [got for name in day.over for got in day.seen[name].answers]
    day.inexact = sum(got.sent != prompts[got.number] or got.count != "exact" for got in answers)
    failed, premium = sum(seen.failed for seen in day.seen.values()), day.seen[PREMIUM]
    if day.inexact:
        day.problems.append(f"{day.inexact} of {len(answers)} counts are not those of the upstream")
    if failed:
        day.problems.append(f"{failed} requests failed")
    if premium.finished < premium.tasks:
        day.problems.append(f"the caller without a budget finished {premium.finished} of {premium.tasks} tasks")
    for stage, (sent, different) in day.cuts.items():
        if different or not sent:
            day.problems.append(f"in stage {stage}, {different} of {sent} conversations differ between replicas")


def spent(rows: Sequence[Row], count: str = "uncached") -> int:
    """Tokens, as a budget counts them."""
    return sum(row.spent + (row.cached if count == "all" else 0) for row in rows)


def overshoot(rows: Sequence[Row], limit: int, count: str) -> tuple[int, int]:
    """What a caller spent over its limit, and how much that may be: what the requests under way at its last grant
    took over what they held. They held at least the tokens that the cache did not have, and the limit of the reply."""
    last = max((row.began for row in rows), default=0.0)
    at_once = [row for row in rows if row.ended + SETTLED_S >= last]
    lost = [(row.could - row.cached if count == "uncached" else 0) + row.completion - REPLY for row in at_once]
    return max(0, spent(rows, count) - limit), sum(max(0, one) for one in lost)


def money(rows: Sequence[Row]) -> float:
    """US dollars."""
    full, cached, said = PRICES
    return sum((row.prompt - row.cached) * full + row.cached * cached + row.completion * said for row in rows)


HEADS = (
    *("seed", "day", "tasks finished", "k tokens", "$", "$ a task", "refused, busy", "cut", "read again", "given up"),
    *("stage 0, 1, 2, 3", "overshoot, explained", "loop: sent, k tokens", "s"),
)


def row_of(day: Day, count: str) -> list[str]:
    """A day as a row of the table: all but the loop are the callers with agents and a budget."""
    seen = [day.seen[name] for name in day.agents]
    rows = [row for name in day.agents for row in day.rows.get(name, [])]
    finished, cost = sum(one.finished for one in seen), money(rows)
    stages = sum((one.stages for one in seen), Counter[int]())
    over = max(day.over.values(), default=None)
    loop = day.rows.get(LOOP, [])
    return [
        str(day.seed),
        day.variant.name,
        f"{finished} of {sum(one.tasks for one in seen)}",
        f"{spent(rows, count) / 1000:,.0f}",
        f"{cost:.2f}",
        f"{cost / finished:.4f}" if finished else "",
        f"{sum(one.refused for one in seen)}, {sum(one.busy for one in seen)}",
        str(sum(got.steps for one in seen for got in one.answers)),
        str(sum(one.again for one in seen)),
        str(sum(one.lost for one in seen)),
        ", ".join(str(stages[stage]) for stage in range(4)),
        "" if over is None else f"{over[0]:,}, {over[1]:,}",
        f"{len(loop)}, {spent(loop, count) / 1000:,.0f}",
        f"{day.seconds:.0f}",
    ]


def row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def seed_days(seed: int, port: int, sizes: Sizes) -> Iterator[Day]:
    """The days of a seed."""
    free = lived(FREE, seed, 0, port, sizes)
    yield free
    mean = sum(spent(free.rows.get(name, []), sizes.count) for name in free.agents) / len(free.agents)
    limit = round(sizes.share * mean)
    for variant in (*LIMITED, FORGETFUL):
        yield lived(variant, seed, limit, port, sizes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all; the exit code."""
    usual = Sizes()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", help="numbers, between commas")
    parser.add_argument("--tasks", type=int, default=usual.tasks, help="of each caller")
    parser.add_argument("--loops", type=int, default=usual.loops, help="requests of the one in a loop")
    parser.add_argument("--share", type=float, default=usual.share, help="of what an agent's caller would spend")
    parser.add_argument("--count", default=usual.count, choices=("uncached", "all"), help="as in a [[budget]]")
    parser.add_argument("--replicas", type=int, default=usual.replicas)
    parser.add_argument("--workers", type=int, default=usual.workers, help="of each replica")
    given = vars(parser.parse_args(arguments))
    seeds, problems = [int(seed) for seed in given.pop("seeds").split(",")], 0
    sizes = Sizes(**given)
    print(row(HEADS) + "\n" + "|---" * len(HEADS) + "|", flush=True)
    notes: list[str] = []
    with upstream() as port:
        for day in (day for seed in seeds for day in seed_days(seed, port, sizes)):
            print(row(row_of(day, sizes.count)), flush=True)
            about = f"seed {day.seed}, {day.variant.name}"
            notes += [f"{about}: {problem}" for problem in day.problems]
            if day.cuts:
                told = ", ".join(
                    f"stage {stage}: {sent - differ} of {sent}" for stage, (sent, differ) in day.cuts.items()
                )
                notes.append(f"{about}: the limit is {day.limit:,} tokens; alike on all replicas: {told}")
            problems += len(day.problems)
    print("\n" + "\n".join(notes))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
