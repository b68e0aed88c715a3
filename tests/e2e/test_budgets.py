"""Budgets with several processes and a real Redis: one sum, the same cuts, and no fault takes anything from anybody."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.e2e.budgeted import (
    OTHER,
    SHORT,
    TALK,
    TEAM,
    Budgeted,
    budgeted,
    reports,
    rules,
    settings,
    tokens,
    with_usage,
)
from tests.hostile.harness import eventually, running_with, upstream
from tests.recorder import Peer, Recorder, Request
from tests.redis_server import RedisServer, redis_server

# A busy machine may be late for longer than a command may take: each worker would decide alone.
PATIENT = {"proxy.cache.redis.COMMAND_TIMEOUT_S": 10.0}
WORDY = [{"role": "user", "content": "count " * 1_000}]


@contextmanager
def replicas(
    folder: Path,
    text: str,
    count: int = 2,
    workers: int = 1,
    reported: Any = tokens,
    constants: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[tuple[list[Budgeted], RedisServer, Recorder]]:
    """Proxies with one Redis and one upstream, once they share."""
    with redis_server() as redis, upstream(reports(reported)) as there, ExitStack() as stack:
        more = {"PLIMSOLL_REDIS": redis.url, **settings(folder, text)}
        made = [
            Budgeted(
                stack.enter_context(running_with(constants, there.url, workers=workers, admin=True, **more)), there
            )
            for _ in range(count)
        ]
        for one in made:
            eventually(lambda one=one: one.ask(TEAM, SHORT).status == 200 and connected(redis, len(made) * workers))  # type: ignore[misc]
        yield made, redis, there


def connected(redis: RedisServer, count: int) -> bool:
    return redis.cli("CLIENT", "LIST").count(b"\n") > count


def stage(headers: Any) -> int:
    return int(headers["x-plimsoll-budget"].partition("stage=")[2].partition(";")[0])


def left(one: Budgeted, key: str = TEAM) -> int:
    return int(
        one.ask(key, [{"role": "user", "content": "?"}], max_tokens=1).headers["x-plimsoll-budget-remaining-tokens"]
    )


def test_replicas_have_one_budget_and_cut_alike_in_a_stage(tmp_path: Path) -> None:
    text = rules(tokens=30_000, soft=0.3, window=1_000)
    with replicas(tmp_path, text, workers=2, constants=PATIENT) as (made, _, there):
        one, other = made
        for turn in range(10):
            assert made[turn % 2].ask(TEAM, WORDY).status == 200
        eventually(lambda: stage(one.ask(TEAM, SHORT).headers) > 0 and stage(other.ask(TEAM, SHORT).headers) > 0)
        there.requests.clear()
        found = [made[turn % 2].ask(TEAM, TALK) for turn in range(6)]
        cut: dict[int, set[str]] = {}
        for got, body in zip(found, one.sent(), strict=True):
            cut.setdefault(stage(got.headers), set()).add(json.dumps(body))
        assert all(len(bodies) == 1 for bodies in cut.values()) and 0 not in cut
        eventually(lambda: abs(left(one) - left(other)) < 30)


def test_a_budget_is_not_overrun_by_replicas_and_workers_at_once(tmp_path: Path) -> None:
    limit = 40_000
    text = rules(tokens=limit, over="refuse")
    reported = (1_008, 0, 50)
    with replicas(tmp_path, text, 2, 2, lambda body: reported, PATIENT) as (made, _, there):
        there.requests.clear()
        before = left(made[0])
        with ThreadPoolExecutor(24) as pool:
            found = list(pool.map(lambda turn: made[turn % 2].ask(TEAM, WORDY).status, range(72)))
        assert set(found) <= {200, 403, 429}
        assert before - 2 * 1_058 - 100 < found.count(200) * 1_058 <= before


def test_a_redis_that_is_killed_and_comes_back_empty_takes_nothing_and_gives_nothing(tmp_path: Path) -> None:
    with replicas(tmp_path, rules(tokens=30_000, soft=0.3, window=4_000)) as (made, redis, _):
        one, other = made
        for turn in range(12):
            assert made[turn % 2].ask(TEAM, WORDY).status == 200
        eventually(lambda: stage(one.ask(TEAM, SHORT).headers) == stage(other.ask(TEAM, SHORT).headers) == 1)
        known = left(one)
        redis.kill()
        for each in (*made, *made):
            got = each.ask(TEAM, WORDY)
            assert got.status == 200 and stage(got.headers) == 1
        redis.start()
        for each in made:
            eventually(lambda each=each: each.proxy.metric("plimsoll_cache_breaker_open", breaker="reading") == 0)  # type: ignore[misc]
        eventually(lambda: abs(left(one) - left(other)) < 60)
        assert known - 4 * 1_100 - 1_500 < left(one) < known - 4 * 1_000
        assert stage(one.ask(TEAM, SHORT).headers) >= 1


def test_a_redis_that_hangs_refuses_nobody(tmp_path: Path) -> None:
    with replicas(tmp_path, rules(tokens=1_000_000)) as (made, redis, _):
        with redis.stopped():
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda turn: made[turn % 2].ask(TEAM, WORDY).status, range(24)))
        assert found == [200] * 24
        eventually(lambda: 1_000_000 - left(made[0]) > 24_000)


def test_an_acl_without_scripts_leaves_each_worker_what_it_knows(tmp_path: Path) -> None:
    with replicas(tmp_path, rules(tokens=1_000_000), count=1) as (made, redis, _):
        redis.cli("ACL", "SETUSER", "default", "-evalsha", "-eval")
        before = left(made[0])
        for _ in range(5):
            assert made[0].ask(TEAM, WORDY).status == 200
        eventually(lambda: before - left(made[0]) > 5_000)
        assert made[0].proxy.metric("plimsoll_cache_breaker_open", breaker="reading") == 0


def test_a_worker_that_is_killed_holds_nothing_for_longer_than_its_lease(tmp_path: Path) -> None:
    """The lease is a minute: the constants are smaller here."""
    started = asyncio.Event()

    async def slow(request: Request, peer: Peer) -> None:
        if request.method == b"POST" and b"slow" in request.body:
            started.set()
            await asyncio.sleep(10)
        await peer.send(with_usage(10, 0, 1))

    constants = {"proxy.cache.account_script.LEASE_MS": 2_000, "proxy.cache.accounts.LEASE_MS": 2_000}
    with redis_server() as redis, upstream(slow) as there:
        more = {"PLIMSOLL_REDIS": redis.url, **settings(tmp_path, rules(tokens=10_000, over="refuse"))}
        with (
            running_with(constants, there.url, admin=True, **more) as first,
            running_with(constants, there.url, admin=True, **more) as second,
            ThreadPoolExecutor(1) as pool,
        ):
            one, other = Budgeted(first, there), Budgeted(second, there)
            eventually(lambda: connected(redis, 2))
            body = [{"role": "user", "content": "slow " * 1_000}]
            pool.submit(lambda: _ignored(lambda: one.ask(TEAM, body, max_tokens=8_000)))
            eventually(started.is_set)
            assert other.ask(TEAM, WORDY, max_tokens=3_000).status in (200, 429)
            for pid in first.pids:
                os.kill(pid, signal.SIGKILL)
            eventually(lambda: other.ask(TEAM, WORDY, max_tokens=3_000).status == 200)


def _ignored(ask: Any) -> None:
    try:
        ask()
    except Exception:
        return


def test_without_redis_workers_have_shares_of_the_budget(tmp_path: Path) -> None:
    limit = 20_000
    with budgeted(tmp_path, rules(tokens=limit, over="refuse"), lambda body: (1_008, 0, 50), workers=2) as one:
        found = [one.ask(TEAM, WORDY).status for _ in range(40)]
        assert 403 in found and found.count(200) * 1_058 <= limit


@pytest.mark.parametrize("over", ["observe", "fit"])
def test_what_is_only_told_changes_nothing(tmp_path: Path, over: str) -> None:
    with budgeted(tmp_path, rules(tokens=3_000, over=over, window=1_000)) as one:
        found = [one.ask(TEAM, WORDY) for _ in range(6)]
        statuses = [got.status for got in found]
        assert (statuses == [200] * 6) is (over == "observe")
        if over == "observe":
            assert found[-1].headers["x-plimsoll-budget"] == "small; stage=3"
            assert all(body["messages"] == WORDY for body in one.sent())


def test_a_budget_of_money_takes_the_prices_of_the_model_that_runs(tmp_path: Path) -> None:
    text = rules(tokens=None, usd=0.02, over="refuse")
    with budgeted(tmp_path, text, lambda body: (1_000, 0, 100)) as one:
        dear = one.ask(TEAM, WORDY, model="gpt-4o", max_tokens=100)
        assert float(dear.headers["x-plimsoll-budget-limit-usd"]) == 0.02
        eventually(lambda: one.ask(TEAM, SHORT, max_tokens=1).headers["x-plimsoll-budget-remaining-usd"] < "0.0165")
        cheap = [one.ask(OTHER, WORDY, model="gpt-4o-mini", max_tokens=100).status for _ in range(20)]
        assert cheap == [200] * 20
        statuses = [one.ask(TEAM, WORDY, max_tokens=100).status for _ in range(8)]
        assert statuses[-1] == 403


def test_changed_rules_hold_for_what_was_used_already(tmp_path: Path) -> None:
    with budgeted(tmp_path, rules(tokens=5_000, over="refuse")) as one:
        while one.ask(TEAM, WORDY).status == 200:
            pass
        (tmp_path / "callers.toml").write_text(rules(tokens=50_000, over="refuse"))
        eventually(lambda: one.ask(TEAM, WORDY).status == 200)
        assert 30_000 < left(one) < 50_000
