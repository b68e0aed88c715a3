"""What many replicas cost one Redis: commands, bytes, how old what they know is, and what a restart of Redis costs.

    python -m tests.bench.scale [--replicas 50] [--rate 5000] [--seconds 3] [--slow 5] [--cluster]

The caches of all replicas run in one process over a real Redis, or a cluster. Of each request only the cache's part is
done: the read of what others learned, a sample of counts, the caller's accepted answer, and of every hundredth what an
extra call costs. One process cannot be fifty: all that the caches wait for takes `--slow` times as long, and requests
come as much slower; figures are of the true time. A limit that one replica proves is awaited on all others. Then Redis
is killed and started empty under the same load; of a cluster, one master is killed and its replica takes its place.
Returns 1 if a request waited longer than the budget of a read by much, if what was learned does not come back, or if
replicas do not agree on what was spent.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from proxy.cache import accepted_callers, agreed_labels, keyring, model_records, remote, replicated, spending
from proxy.cache.cache import Cache
from proxy.model.limits import LearnedLimits, Proof, Shape
from tests.cache.lessons import FAMILY
from tests.redis_groups import cluster
from tests.redis_server import RedisServer, redis_server

SECRET = b"s" * 32
UPSTREAM = "http://upstream/v1"
MODELS, TENANTS = 40, 250
PROBED = "probed"
TICK_S = 0.01
SLOWED = (
    (replicated, ("REFRESH_S", "ACTIVE_S")),
    (agreed_labels, ("READ_S", "PAUSE_S")),
    (spending, ("REFRESH_S", "ACTIVE_S", "OLD_S", "PAUSE_S")),
    (model_records, ("SAMPLE_S",)),
    (accepted_callers, ("RENEW_S",)),
    (remote, ("BATCH_DELAY_S", "WRITE_PAUSE_S", "READ_BUDGET_S", "PROBE_TIMEOUT_S")),
)
COMMAND = re.compile(r"cmdstat_(\w+):calls=(\d+)")
BYTES = re.compile(r"total_net_(input|output)_bytes:(\d+)")


@dataclass(slots=True)
class Seen:
    """What was seen of the requests and of the lessons."""

    requests: int = 0
    waited: list[float] = field(default_factory=list)  # seconds for reads, of requests that made one
    staleness: list[float] = field(default_factory=list)  # seconds until another replica knew a proof
    charged: int = 0  # tokens of extra calls
    behind: float = 0.0  # seconds that the load was late at most


def figures(servers: Iterable[RedisServer]) -> dict[str, int]:
    """What the servers did so far: calls by command, and bytes."""
    found: dict[str, int] = {}
    for server in servers:
        told = server.cli("info", "commandstats") + server.cli("info", "stats")
        for name, count in [*COMMAND.findall(told.decode()), *BYTES.findall(told.decode())]:
            found[name] = found.get(name, 0) + int(count)
    return found


def request(caches: list[Cache], dice: random.Random, seen: Seen) -> Coroutine[None, None, None] | None:
    """The cache's part of one request, at any replica; what is left of it if it must read first."""
    cache, number = dice.choice(caches), min(int(dice.paretovariate(0.7)), TENANTS)
    model, tenant = f"model-{(number + dice.randrange(4)) % MODELS}", b"tenant %10d" % number
    lookups = cache.record_reads([(model, tenant)])
    if (lookup := cache.accepted.lookup(tenant)) is not None:
        lookups.append(lookup)
    seen.requests += 1

    async def read() -> None:
        began = time.perf_counter()
        await cache.read(lookups)
        seen.waited.append(time.perf_counter() - began)
        answered(cache, model, tenant, dice, seen)

    if lookups:
        return read()
    answered(cache, model, tenant, dice, seen)
    return None


def answered(cache: Cache, model: str, tenant: bytes, dice: random.Random, seen: Seen) -> None:
    """What the answer to a request teaches."""
    cache.learned_limits(model, tenant)
    if not cache.sampled_just_now(model, tenant, Shape.TEXT):
        size = dice.randrange(100, 9_000)
        cache.record_sample(model, tenant, Shape.TEXT, (size, round(1.1 * size) + 7), FAMILY, tenant)
    cache.accepted.accept(tenant)
    if cache.spending is not None and dice.random() < 0.01:
        cache.spending.charge(tokens := dice.randrange(2_000))
        seen.charged += tokens


async def load(caches: list[Cache], rate: float, seen: Seen, over: asyncio.Event) -> None:
    """Requests at a rate in 1/s until it is over."""
    dice, began, tasks, sent = random.Random(1), time.perf_counter(), set[asyncio.Task[None]](), 0
    while not over.is_set():
        now = time.perf_counter() - began
        due = int(now * rate)
        seen.behind = max(seen.behind, now - sent / rate)
        for _ in range(sent, due):
            rest = request(caches, dice, seen)
            if rest is not None:
                tasks.add(task := asyncio.create_task(rest))
                task.add_done_callback(tasks.discard)
        sent = due
        await asyncio.sleep(TICK_S)
    await asyncio.gather(*tasks)


async def teach(caches: list[Cache], seen: Seen, over: asyncio.Event) -> None:
    """One replica proves another window each second; how long until another replica in use knows it."""
    dice, number = random.Random(2), 0
    while not over.is_set():
        number += 1
        teacher, pupil = dice.sample(caches, 2)
        await pupil.load_records([(PROBED, b"tenant")])
        began = time.perf_counter()
        teacher.record_proof(PROBED, b"tenant", LearnedLimits(window=9_000 - number), Proof(0, 0))
        while not over.is_set():
            pupil.record_reads([(PROBED, b"tenant")])
            if pupil.learned_limits(PROBED, b"tenant").window == 9_000 - number:
                seen.staleness.append(time.perf_counter() - began)
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)


def per_second(before: dict[str, int], after: dict[str, int], seconds: float) -> str:
    """The rates of commands and bytes."""
    rates = {name: (count - before.get(name, 0)) / seconds for name, count in after.items()}
    read, sent = rates.pop("input", 0.0), rates.pop("output", 0.0)
    commands = {n: r for n, r in rates.items() if r >= 1 and n not in ("info", "ping")}
    told = ", ".join(f"{name} {rate:,.0f}" for name, rate in sorted(commands.items(), key=lambda one: -one[1]))
    return f"commands/s: {told}; MB/s: {read / 1e6:.2f} in, {sent / 1e6:.2f} out"


def names(servers: Iterable[RedisServer]) -> set[str]:
    """The names of all that servers hold."""
    return {name for server in servers if server.process is not None for name in server.names()}


def shares(servers: Sequence[RedisServer], before: Sequence[dict[str, int]], seconds: float) -> str:
    """What each of several masters does."""
    lines = [
        f"  master {number}: {per_second(was, figures([server]), seconds)}; {len(server.names()):,} keys"
        for number, (server, was) in enumerate(zip(servers, before, strict=True), 1)
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Median and largest, in ms."""
    return f"median {1e3 * statistics.median(values):.1f} ms, most {1e3 * max(values):.1f} ms" if values else "none"


async def measure(url: str, servers: Sequence[RedisServer], spare: RedisServer | None, given: Any) -> bool:
    """Runs the load on these masters, of which the one that is killed may have a spare; whether all is as it must
    be."""
    caches = [Cache(url, SECRET, UPSTREAM) for _ in range(given.replicas)]
    for cache in caches:
        await cache.start()
        await asyncio.sleep(0.05)
    await connected(caches)
    seen, over = Seen(), asyncio.Event()
    running = [
        asyncio.create_task(load(caches, given.rate, seen, over)),
        asyncio.create_task(teach(caches, seen, over)),
    ]
    await asyncio.sleep(5)
    seen.waited.clear()
    before, each = figures(servers), [figures([server]) for server in servers]
    requests, cpu, began = seen.requests, time.process_time(), time.perf_counter()
    await asyncio.sleep(given.seconds)
    took = time.perf_counter() - began
    slow, made = given.slow, seen.requests - requests
    print(
        f"{slow * made / took:,.0f} requests/s at {given.replicas} replicas; the load was late by {seen.behind:.2f} s"
    )
    print(per_second(before, figures(servers), took / slow))
    if len(servers) > 1:
        print(shares(servers, each, took / slow))
    print(f"CPU of all caches: {1e6 * (time.process_time() - cpu) / max(1, made):.0f} us a request")
    print(f"requests that read waited {spread(seen.waited)} ({len(seen.waited):,} of {made:,})")
    print(f"staleness: {spread([one / slow for one in seen.staleness])} of {len(seen.staleness)} lessons")
    good = await restarted(caches, servers, spare, seen) and bool(seen.staleness)
    over.set()
    await asyncio.gather(*running)
    await asyncio.sleep(3 * replicated.REFRESH_S)
    totals = {cache.spending.known for cache in caches if cache.spending is not None}
    least, most = min(n or 0 for n in totals), max(n or 0 for n in totals)
    print(f"tokens of extra calls: {seen.charged:,}; as replicas know them {least:,} to {most:,}")
    good = good and least == most == seen.charged
    await asyncio.gather(*[cache.close() for cache in caches])
    return good


async def connected(caches: list[Cache]) -> float:
    """Waits until all replicas use Redis; the seconds. Raises TimeoutError after a minute."""
    began = time.perf_counter()
    async with asyncio.timeout(60):
        await asyncio.sleep(0.5)
        while any(opened for cache in caches for opened in cache.open_breakers().values()):
            await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def restarted(caches: list[Cache], servers: Sequence[RedisServer], spare: RedisServer | None, seen: Seen) -> bool:
    """Kills a Redis, starts it empty after three seconds, and sees what that costs. Of a cluster it is the master with
    a spare, which takes its place."""
    nodes = [*servers, *([] if spare is None else [spare])]
    killed = servers[0] if spare is None else next(one for one in servers if set(spare.names()) & set(one.names()))
    seen.waited.clear()
    records = len(names(nodes))
    killed.kill()
    await asyncio.sleep(3)
    if spare is None:
        killed.start()
    joined = await connected(caches)
    await asyncio.sleep(5)
    held = len(names(nodes))
    print(f"a restart: all replicas were back {joined:.1f} s after it; requests that read waited {spread(seen.waited)}")
    print(f"  {held:,} keys of {records:,} five seconds later")
    if spare is None:
        print(" ", per_second({}, figures(servers), 5 + joined))
    return held > records / 2 and max(seen.waited, default=0.0) < 50 * remote.READ_BUDGET_S


def main() -> int:
    """Runs all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--rate", type=float, default=5_000, help="requests a second, over all replicas")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--cluster", action="store_true", help="a cluster of three masters instead of one server")
    parser.add_argument("--slow", type=float, default=5, help="how much slower than true time all goes")
    given = parser.parse_args()
    for module, names in SLOWED:
        for name in names:
            setattr(module, name, getattr(module, name) * given.slow)
    keyring.UPDATE_S = -1e9  # no version without slots is about
    given.rate, given.seconds = given.rate / given.slow, given.seconds * given.slow
    with ExitStack() as stack:
        if given.cluster:
            group = stack.enter_context(cluster())
            url = f"redis+cluster://{group.hosts}"
            return 0 if asyncio.run(measure(url, group.masters, group.replica, given)) else 1
        server = stack.enter_context(redis_server("--maxclients", "4000"))
        return 0 if asyncio.run(measure(server.url, [server], None, given)) else 1


if __name__ == "__main__":
    sys.exit(main())
