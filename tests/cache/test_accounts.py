"""Accounts of budgets: in one worker, and on all replicas through a real Redis, whatever becomes of it."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.cache.account_script import GRANTED, HELD, LEASE_MS, USED_UP
from proxy.cache.accounts import KEEP_S, MAX_ACCOUNTS, Account, Accounts
from proxy.cache.keyring import Keyring
from proxy.cache.redis import backend_from_url
from proxy.cache.remote import SLOW, Remote
from proxy.model.budget import Budget, For, Over
from tests.redis_server import PATIENCE_S, RedisServer, redis_server

pytestmark = pytest.mark.usefixtures("patient")  # where Redis is late each worker decides alone
SECRET = b"s" * 32
BUDGET = Budget("b", 1_000, over=Over.FIT)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 20_000 * 86_400.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def alone(workers: int = 1) -> tuple[Accounts, Clock]:
    """Accounts without a backend."""
    accounts, clock = Accounts(None, Keyring(SECRET)), Clock()
    accounts.link.clock = accounts.link.wall = clock
    accounts.link.workers = workers
    return accounts, clock


def used(account: Account, amount: int) -> None:
    """A request that held and used an amount."""
    assert asyncio.run(account.hold(amount)).answer == GRANTED
    account.settle(amount, amount)


def test_what_is_held_and_what_was_used_is_not_granted_again() -> None:
    account = alone()[0].of(BUDGET, b"ann", named=True)
    assert asyncio.run(account.hold(600)).answer == GRANTED
    assert asyncio.run(account.hold(500)).answer == HELD
    account.settle(600, 300)
    found = asyncio.run(account.hold(500))
    assert (found.answer, found.left) == (GRANTED, 700)
    account.settle(500, 500)
    assert asyncio.run(account.hold(201)).answer == USED_UP
    assert asyncio.run(account.hold(200)).answer == GRANTED


def test_the_stage_follows_what_was_used_and_not_what_is_held() -> None:
    account = alone()[0].of(BUDGET, b"ann", named=True)
    assert asyncio.run(account.hold(900)).stage == 0
    account.settle(900, 100)
    assert account.current_stage == 0
    used(account, 700)
    assert account.current_stage == 1
    used(account, 140)
    assert account.current_stage == 3


def test_the_next_period_begins_anew_and_a_session_never_does() -> None:
    accounts, clock = alone()
    account, session = (accounts.of(one, b"x", named=True) for one in (BUDGET, SESSION))
    for one in (account, session):
        used(one, 900)
    clock.now += 0.6 * BUDGET.seconds
    assert account.current_stage == 2
    clock.now += 0.5 * BUDGET.seconds
    assert (account.current_stage, account.total, session.current_stage) == (0, 0, 2)
    assert account.state().resets is not None and session.state().resets is None


SESSION = Budget("s", 1_000, scope=For.SESSION, seconds=0, over=Over.FIT)


def test_a_session_is_forgotten_a_day_after_its_last_request() -> None:
    accounts, clock = alone()
    used(accounts.of(SESSION, b"x", named=True), 900)
    clock.now += KEEP_S - 10
    account = accounts.of(SESSION, b"x", named=True)
    assert account.total == 900
    used(account, 10)
    clock.now += KEEP_S - 10
    assert accounts.of(SESSION, b"x", named=True).total == 910
    clock.now += 20
    assert accounts.of(SESSION, b"x", named=True).total == 0


def test_each_worker_has_a_share_where_nobody_shares() -> None:
    account = alone(workers=4)[0].of(BUDGET, b"ann", named=True)
    used(account, 200)
    assert account.current_stage == 1
    assert asyncio.run(account.hold(51)).answer == USED_UP


def test_what_is_only_told_is_always_granted() -> None:
    account = alone()[0].of(Budget("b", 1_000), b"ann", named=True)
    for _ in range(3):
        used(account, 900)
    assert account.current_stage == 3


def test_accounts_that_clients_invent_take_the_place_of_none_that_rules_name() -> None:
    accounts, _ = alone()
    used(accounts.of(BUDGET, b"ann", named=True), 900)
    for number in range(MAX_ACCOUNTS + 10):
        accounts.of(BUDGET, b"%d" % number, named=False)
        accounts.of(SESSION, b"%d" % number, named=False)
    assert accounts.of(BUDGET, b"ann", named=True).total == 900
    assert len(accounts._others) + len(accounts._sessions) <= 2 * MAX_ACCOUNTS


def test_a_changed_row_holds_for_what_was_used_already() -> None:
    accounts, _ = alone()
    used(accounts.of(BUDGET, b"ann", named=True), 900)
    larger = Budget("b", 5_000, over=Over.FIT)
    assert accounts.of(larger, b"ann", named=True).state().left == 4_100


# With a real Redis.


@asynccontextmanager
async def replicas(server: RedisServer, count: int = 2) -> AsyncIterator[list[Accounts]]:
    """Replicas with one Redis, connected; none writes but when a test says so, and for requests."""
    remotes = [Remote(backend_from_url(server.url), b"probe") for _ in range(count)]
    try:
        for remote in remotes:
            remote.start()
        yield [Accounts(remote, Keyring(SECRET)) for remote in remotes]
    finally:
        for remote in remotes:
            await remote.close()


Body = Callable[[RedisServer, Sequence[Accounts]], Awaitable[None]]


def shared(body: Body, count: int = 2) -> None:
    """Runs a test with replicas, all of it in one day: budgets of a day begin anew at midnight."""

    async def run() -> None:
        left = BUDGET.seconds - time.time() % BUDGET.seconds
        await asyncio.sleep(left + 1 if left < 30 else 0)
        with redis_server() as server:
            async with replicas(server, count) as made:
                await body(server, made)

    asyncio.run(run())


def accounts_of(made: Sequence[Accounts], budget: Budget = BUDGET) -> list[Account]:
    return [one.of(budget, b"ann", named=True) for one in made]


async def spend(account: Account, amount: int) -> None:
    assert (await account.hold(amount)).answer == GRANTED
    account.settle(amount, amount)
    await account.write_soon()


def test_replicas_share_one_account_and_one_stage() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        await spend(one, 500)
        await spend(other, 350)
        assert (await one.hold(200)).answer == USED_UP
        found = [await account.hold(50) for account in (one, other)]
        assert [(f.answer, f.stage, f.left) for f in found] == [(GRANTED, 1, 150)] * 2
        assert (await one.hold(100)).answer == HELD

    shared(body)


def test_at_most_the_budget_is_held_however_many_ask_at_once() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        amounts = [random.Random(7).randrange(1, 60) for _ in range(200)]
        holders = accounts_of(made)
        asked = [holders[i % 4].hold(amount) for i, amount in enumerate(amounts)]
        found = await asyncio.gather(*asked)
        held = sum(amount for amount, f in zip(amounts, found, strict=True) if f.answer == GRANTED)
        assert 940 < held <= 1_000
        assert sum(account.held for account in holders) == held
        calls = re.findall(rb"cmdstat_evalsha:calls=([0-9]+)", server.cli("INFO", "commandstats"))
        assert int(calls[0]) < 100, "those that ask together go together"

    shared(body, 4)


def test_hundreds_of_accounts_that_ask_at_once_are_all_shared() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = made
        names = [b"%d" % number for number in range(300)]
        found = await asyncio.gather(*[one.of(BUDGET, name, named=True).hold(900) for name in names])
        assert {f.answer for f in found} == {GRANTED} and one.link.reachable
        found = await asyncio.gather(*[other.of(BUDGET, name, named=True).hold(900) for name in names])
        assert {f.answer for f in found} == {HELD}, "the other replica knows of all that is held"

    shared(body)


def test_a_redis_that_is_late_for_a_read_still_decides() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        for accounts in made:
            remote = accounts.link._remote
            assert remote is not None
            remote._record_failure(remote.read_breaker, SLOW)
            assert not remote.available
        assert (await one.hold(900)).answer == GRANTED
        assert (await other.hold(900)).answer == HELD

    shared(body)


def test_a_command_whose_answer_was_lost_counts_nothing_twice() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        await spend(one, 300)
        for _ in range(3):
            await one.write_soon()
        one._confirmed = one._known = 0  # as if no answer had come
        await one.write_soon()
        assert (await other.hold(1)).left == 700

    shared(body)


def test_a_redis_that_lost_all_knows_all_again_and_no_stage_sinks() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other, third = accounts_of(made)
        await spend(one, 400)
        await spend(other, 300)
        await spend(third, 150)
        await spend(one, 10)  # which has heard of all now
        server.cli("FLUSHALL")
        for account in (one, other, third, one, other):
            await account.write_soon()
        assert [account.total for account in (one, other)] == [860, 860]
        assert [(await account.hold(1)).stage for account in (one, other, third)] == [1, 1, 1]
        assert (await one.hold(140)).answer == HELD

    shared(body, 3)


def test_a_worker_that_died_is_not_forgotten_with_what_it_spent() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        await spend(one, 400)
        await spend(other, 100)
        server.cli("FLUSHALL")
        await other.write_soon()  # the first has died
        assert (await other.hold(1)).left == 500

    shared(body)


def test_what_a_dead_worker_held_ends_with_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.cache.account_script.LEASE_MS", 2_000)

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        assert (await one.hold(800)).answer == GRANTED
        assert (await other.hold(300)).answer == HELD
        ended = asyncio.get_running_loop().time() + 60
        while (await other.hold(300)).answer == HELD:
            assert asyncio.get_running_loop().time() < ended
            await asyncio.sleep(0.05)
        assert other.held == 300

    shared(body)


def test_without_an_answer_the_last_sums_and_the_last_stage_hold() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        await spend(one, 500)
        await spend(other, 310)
        server.kill()
        found = await other.hold(100)
        assert (found.answer, found.stage) == (GRANTED, 1)
        other.settle(100, 100)
        assert other.current_stage == 1, "a fault raises none, either"
        assert (await other.hold(100)).answer == USED_UP
        server.start()
        for remote in (made[0].link._remote, made[1].link._remote):
            assert remote is not None
            await until(lambda remote=remote: remote.account_breaker.closed)  # type: ignore[misc]
        await other.write_soon()
        await one.write_soon()
        assert (await one.hold(1)).left == 90
        assert one.current_stage == other.current_stage == 2

    shared(body)


async def until(true: Callable[[], Any]) -> None:
    ended = asyncio.get_running_loop().time() + 60
    while not true():
        assert asyncio.get_running_loop().time() < ended
        await asyncio.sleep(0.02)


def test_a_redis_that_answers_nothing_delays_one_command_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.cache.redis.COMMAND_TIMEOUT_S", 1.0)  # is waited out, twice

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, _ = accounts_of(made)
        await spend(one, 100)
        with server.stopped():
            found = await asyncio.gather(*(one.hold(50) for _ in range(10)))
            assert {f.answer for f in found} == {GRANTED}
            assert not one.link.reachable, "no further request waits for it"
        assert one.held == 500

    shared(body)


def test_whoever_leaves_while_it_is_decided_holds_nothing() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        with server.stopped():
            task = asyncio.create_task(one.hold(900))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: one._task is None)
        await until(lambda: one.link.reachable)
        await one.write_soon()
        assert one.held == 0
        assert (await other.hold(900)).answer == GRANTED

    shared(body)


def test_a_period_is_that_of_redis_whatever_the_clocks_of_replicas_say() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        for accounts, off in zip(made, (-30.0, 0.0, 30.0), strict=True):
            accounts.link.wall = lambda off=off: time.time() + off  # type: ignore[misc]
        quick = Budget("q", 1_000, seconds=4, over=Over.FIT)
        holders = accounts_of(made, quick)
        await new_period(holders[0])
        for account in holders:
            await spend(account, 290)
        stages = [(await account.hold(1)) for account in holders]
        assert len({(f.stage, f.left) for f in stages}) == 1 and stages[0].stage == 2
        await new_period(holders[0])
        assert [(await account.hold(1)).stage for account in holders] == [0, 0, 0]

    shared(body, 3)


async def new_period(account: Account) -> None:
    """Waits until a period has just begun."""
    found = await account.hold(0)
    assert found.resets is not None
    await asyncio.sleep(found.resets + 0.1)
    await account.hold(0)


def test_an_account_leaves_redis_after_its_period() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        day, session = accounts_of(made[:1])[0], made[0].of(SESSION, b"x", named=True)
        await spend(day, 1)
        await spend(session, 1)
        left = sorted(int(server.cli("PTTL", name)) for name in server.cli("KEYS", "*budget*").decode().split())
        resets = (await day.hold(1)).resets
        assert resets is not None
        assert any(abs(one - resets * 1000 - LEASE_MS) < 30_000 for one in left)
        assert any(abs(one - KEEP_S * 1000) < 30_000 for one in left)

    shared(body)


def test_names_and_values_in_redis_show_nobody() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await spend(made[0].of(BUDGET, b"sk-secret-key", named=False), 7)
        name = server.cli("KEYS", "*budget*").decode().strip()
        assert b"secret" not in name.encode() + server.cli("HGETALL", name)

    shared(body)


def test_a_worker_that_is_busy_for_longer_than_a_command_may_take_still_asks() -> None:
    """The timer of a command runs while nothing else does: an answer that has come is then taken for late. The worker
    is busy for a moment, in which the answer comes, and its loop's clock goes on by more than a command may take."""

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        await spend(one, 100)
        loop, busy = asyncio.get_running_loop(), 0.0
        loop.time = lambda: time.monotonic() + busy  # type: ignore[method-assign]
        for steps in range(12):  # until its command is sent, and its answer is waited for
            asked = asyncio.create_task(one.hold(10))
            for _ in range(steps):
                await asyncio.sleep(0)
            time.sleep(0.1)
            busy += 1.5 * PATIENCE_S
            assert (await asked).answer == GRANTED
            assert one.link.reachable
        assert (await other.hold(781)).answer == HELD
        assert (await other.hold(780)).answer == GRANTED

    shared(body)
