"""Attacks on the accounts of budgets, and faults of Redis: none gives or takes anything, and none is silent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio.cluster import RedisCluster

from proxy.cache.account_script import GRANTED, HELD, LEASE_MS
from proxy.cache.accounts import MAX_ACCOUNTS, MAX_BUSY, Account, Accounts
from proxy.cache.keyring import Keyring
from proxy.cache.redis import ClusterBackend, backend_from_url
from proxy.cache.remote import MAX_ACTIVE_EXCHANGES, Remote
from proxy.model.budget import Budget, For, Over
from tests.cache.test_accounts import BUDGET, SECRET, accounts_of, alone, new_period, replicas, shared, spend, until
from tests.redis_groups import cluster
from tests.redis_server import RedisServer, be_patient, redis_server

SESSIONS = Budget("s", 1_000, scope=For.SESSION, over=Over.FIT)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is waited for however busy the machine is."""
    be_patient(monkeypatch)


async def ready(made: Sequence[Accounts]) -> None:
    """Waits until all have connected."""
    for accounts in made:
        await until(lambda accounts=accounts: not remote_of(accounts)._probing and accounts.link.reachable)  # type: ignore[misc]


def remote_of(accounts: Accounts) -> Remote:
    remote = accounts.link._remote
    assert remote is not None
    return remote


def test_M22_a_burst_of_many_callers_closes_redis_to_nobody() -> None:
    """Each has an account of its own: more than there are connections."""

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await ready(made)
        one, other = made
        first = [one.of(SESSIONS, b"%d" % number, named=False).hold(900) for number in range(300)]
        assert {found.answer for found in await asyncio.gather(*first)} == {GRANTED}
        second = [other.of(SESSIONS, b"%d" % number, named=False).hold(900) for number in range(300)]
        assert {found.answer for found in await asyncio.gather(*second)} == {HELD}
        assert one.link.reachable and other.link.reachable

    shared(body)


@pytest.mark.parametrize("budget", [BUDGET, SESSIONS], ids=["caller", "session"])
def test_M22_whoever_invents_so_many_callers_that_its_own_is_forgotten_has_spent_what_it_spent(budget: Budget) -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await spend(made[0].of(budget, b"mallory", named=False), 800)
        for number in range(2 * MAX_ACCOUNTS):
            made[0].of(budget, b"%d" % number, named=False)
        again = made[0].of(budget, b"mallory", named=False)
        assert (again.spent, (await again.hold(1)).left) == (0, 200)
        assert (await made[1].of(budget, b"mallory", named=False).hold(1)).left == 200

    shared(body)


@pytest.mark.parametrize("connected", [True, False])
def test_M22_an_account_that_holds_something_is_not_forgotten_for_others(connected: bool) -> None:
    async def held(accounts: Accounts) -> None:
        account = accounts.of(SESSIONS, b"ann", named=False)
        assert (await account.hold(700)).answer == GRANTED
        for number in range(2 * MAX_ACCOUNTS):
            accounts.of(SESSIONS, b"%d" % number, named=False)
        assert accounts.of(SESSIONS, b"ann", named=False) is account
        account.settle(700, 600)
        await accounts.write()
        assert account.total == 600 and not accounts.link.busy

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await held(made[0])

    if connected:
        shared(body)
    else:
        asyncio.run(held(alone()[0]))


def test_M22_while_redis_is_away_no_more_accounts_wait_than_there_is_room_for() -> None:
    async def run() -> None:
        accounts = Accounts(Remote(backend_from_url("redis://127.0.0.1:1/0"), b"probe"), Keyring(SECRET))
        remote_of(accounts).account_breaker.record_failure()
        held = accounts.of(SESSIONS, b"held", named=False)
        await held.hold(1)
        for number in range(MAX_BUSY + 10):
            account = accounts.of(SESSIONS, b"%d" % number, named=False)
            await account.hold(1)
            account.settle(1, 1)
        assert len(accounts.link.busy) <= MAX_BUSY and held in accounts.link.busy.values()

    asyncio.run(run())


@pytest.mark.parametrize(
    "harm",
    [
        ("SET", "{}", "no hash"),
        ("HSET", "{}", "spent", "no number"),
        ("HSET", "{}", "spent", "nan"),
        ("HSET", "{}", "spent", "inf"),
        ("HSET", "{}", "spent", "-1e15"),
        ("HSET", "{}", "held", "1e300"),
        ("HSET", "{}", "index", "99999999"),
        ("HSET", "{}", "stage", "x"),
        ("HSET", "{}", "sweep", "x"),
        ("HSET", "{}", "h:stranger", "x", "e:stranger", "99999999999999", "sweep", "0"),
    ],
    ids=lambda harm: " ".join(harm[2:]),
)
def test_M22_a_stranger_who_spoils_an_account_in_redis_makes_nobody_count_alone(harm: Sequence[str]) -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await ready(made)
        one, other = accounts_of(made)
        await spend(one, 400)
        await spend(other, 100)
        name = server.cli("KEYS", "*budget*").decode().strip()
        if harm[0] == "SET":
            server.cli("DEL", name)
        server.cli(*(word.format(name) for word in harm))
        for account in (one, other, one, other):
            await account.write_soon()
        await spend(one, 100)
        ends = asyncio.get_running_loop().time() + 30
        while [(await account.hold(0)).left for account in (one, other)] != [400, 400]:
            assert asyncio.get_running_loop().time() < ends
            await asyncio.sleep(0.1)

    shared(body)


def test_M22_what_was_settled_while_a_command_was_under_way_is_written_soon() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made)
        assert (await one.hold(900)).answer == GRANTED
        loop = asyncio.create_task(made[0].write_loop())
        with server.stopped():
            writing = one.write_soon()
            await asyncio.sleep(0.02)
            one.settle(900, 5)  # nobody asks for anything after it
            await asyncio.sleep(0.02)
        await writing
        ends = asyncio.get_running_loop().time() + LEASE_MS / 4_000 - 3  # the next beat
        while (await other.hold(0)).left != 995 or (await other.hold(900)).answer != GRANTED:
            assert asyncio.get_running_loop().time() < ends, "it waits for the next beat"
            await asyncio.sleep(0.1)
        loop.cancel()

    shared(body)


def test_M22_what_is_held_stays_held_when_a_period_ends() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one, other = accounts_of(made, Budget("q", 1_000, seconds=3, over=Over.FIT))
        await new_period(one)
        assert (await one.hold(800)).answer == GRANTED
        await new_period(other)
        assert (await other.hold(300)).answer == HELD, "the first has not written since"
        assert (await other.hold(200)).answer == GRANTED

    shared(body)


@pytest.mark.parametrize(
    "fault",
    [
        ("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction"),
        ("CONFIG", "SET", "min-replicas-to-write", "3"),
        ("REPLICAOF", "127.0.0.1", "1"),
        ("ACL", "SETUSER", "default", "-evalsha", "-eval"),
        ("ACL", "SETUSER", "default", "-hset"),
    ],
    ids=" ".join,
)
def test_M22_a_redis_that_refuses_accounts_is_read_all_the_same_and_that_is_told(fault: Sequence[str]) -> None:
    told: list[str] = []

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await ready(made)
        remote = remote_of(made[0])
        remote._event = lambda message, **figures: told.append(f"{message} {figures['trouble']}")
        one = accounts_of(made)[0]
        await spend(one, 100)
        server.cli(*fault)
        for _ in range(5):
            await spend(one, 10)
            assert remote.read_breaker.closed and remote.account_breaker.closed
        assert len(told) == 1 and told[0].startswith("the shared cache refuses the accounts of budgets")
        assert remote.stats.errors >= 5 and one.total == 150

    shared(body)


def test_M22_scripts_that_are_flushed_while_they_are_used_are_loaded_again() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await ready(made)
        for _ in range(10):
            for account in accounts_of(made):
                server.cli("SCRIPT", "FLUSH")
                await spend(account, 10)
        assert [(await account.hold(1)).left for account in accounts_of(made)] == [800, 800]
        assert remote_of(made[0]).stats.errors == 0

    shared(body)


def test_M22_the_nodes_of_a_cluster_learn_the_script_without_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes all connections to learn of new masters breaks the commands of others, too."""
    closed: list[int] = []
    close = RedisCluster.aclose

    async def counted(client: RedisCluster) -> None:
        closed.append(1)
        await close(client)

    monkeypatch.setattr(RedisCluster, "aclose", counted)

    async def run(hosts: str) -> None:
        remote = Remote(backend_from_url(f"redis+cluster://{hosts}"), b"probe")
        assert isinstance(remote.backend, ClusterBackend)
        accounts = Accounts(remote, Keyring(SECRET))
        remote.start()
        await ready([accounts])
        closed.clear()
        asked = [accounts.of(SESSIONS, b"%d" % number, named=False).hold(900) for number in range(100)]
        assert {found.answer for found in await asyncio.gather(*asked)} == {GRANTED}
        assert not closed and remote.stats.errors == 0
        await remote.close()

    with cluster() as group:
        asyncio.run(run(group.hosts))


def test_M22_requests_that_wait_for_an_account_do_not_wait_for_each_other() -> None:
    """One settles, and all who wait for that are told."""

    async def run() -> None:
        account = alone()[0].of(BUDGET, b"ann", named=True)
        await account.hold(900)
        waiting = [asyncio.create_task(account.wait(30)) for _ in range(5)]
        await asyncio.sleep(0)
        account.settle(900, 0)
        await asyncio.wait_for(asyncio.gather(*waiting), 10)

    asyncio.run(run())


def test_M22_whoever_leaves_at_any_moment_of_a_hold_holds_nothing() -> None:
    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        await ready(made)
        one, other = accounts_of(made)
        for steps in range(40):
            task = asyncio.create_task(one.hold(900))
            for _ in range(steps):
                await asyncio.sleep(0)
            if steps % 4 == 3:
                await asyncio.sleep(0.002)
            await _left(task, one)
            await until(lambda: one._task is None)
            await one.write_soon()
            assert one.held == 0
        assert (await other.hold(900)).answer == GRANTED

    shared(body)


async def _left(task: asyncio.Task[Any], account: Account) -> None:
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    account.settle(900, 0)  # it was decided before


def test_M22_a_forked_worker_has_a_name_of_its_own() -> None:
    accounts, _ = alone()
    mine, (read, write) = accounts.link.worker, os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, accounts.link.worker.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode() not in ("", mine) and accounts.link.worker == mine


def test_M22_a_thousand_dead_workers_make_no_account_slow() -> None:
    """Each restart leaves a field behind until the period ends."""

    async def body(server: RedisServer, made: Sequence[Accounts]) -> None:
        one = accounts_of(made)[0]
        await spend(one, 1)
        name = server.cli("KEYS", "*budget*").decode().strip()
        fields = [word for number in range(10_000) for word in (f"s:{number:016x}:0", "0")]
        for start in range(0, len(fields), 2_000):
            server.cli("HSET", name, *fields[start : start + 2_000])
        server.cli("HSET", name, "sweep", "0")
        await spend(one, 1)
        assert one.link.reachable and one.total == 2

    shared(body)


def test_there_are_fewer_commands_at_once_than_connections() -> None:
    async def run(server: RedisServer) -> None:
        async with replicas(server, 1) as made:
            await ready(made)
            remote, now, most = remote_of(made[0]), 0, 0

            async def slow(backend: Any) -> None:
                nonlocal now, most
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.001)
                now -= 1

            await asyncio.gather(*(remote.exchange(slow) for _ in range(100)))
            assert most == MAX_ACTIVE_EXCHANGES

    with redis_server() as server:
        asyncio.run(run(server))
