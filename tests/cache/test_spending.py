"""What all replicas spent of one budget: it is one sum, whatever the backend does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from proxy.cache.cache import Cache
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.cache.spending import DAY_S, OLD_S, SharedSpending
from proxy.upstreams.extra_calls import ExtraCalls
from tests.cache.shelf import WAIT_SECONDS, Shelf, until
from tests.redis_groups import cluster
from tests.redis_server import RedisServer, redis_server

SECRET = b"s" * 32
ALICE = b"a" * 16


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def replica(shelf: Shelf, clock: Clock) -> SharedSpending:
    return SharedSpending("u", Remote(shelf, b"probe"), Keyring(SECRET), clock)


async def shared(*replicas: SharedSpending) -> None:
    for one in (*replicas, *replicas):
        await one.refresh()


def test_what_replicas_spend_is_one_sum() -> None:
    clock, shelf = Clock(), Shelf()
    one, other = replica(shelf, clock), replica(shelf, clock)
    one.charge(70)
    other.charge(20)
    one.charge(-30)
    asyncio.run(shared(one, other))
    assert (one.total, other.total) == (60, 60)


def test_a_command_that_is_repeated_counts_nothing_twice_and_an_emptied_backend_knows_all_again() -> None:
    clock, shelf = Clock(), Shelf()
    one, other = replica(shelf, clock), replica(shelf, clock)
    one.charge(70)
    other.charge(20)
    for _ in range(3):
        asyncio.run(shared(one, other))
    shelf.tallies.clear()
    asyncio.run(shared(one, other))
    assert (one.total, other.total) == (90, 90)


def test_the_sum_ends_after_a_day_with_what_was_spent_in_it() -> None:
    clock, shelf = Clock(), Shelf()
    one, other = replica(shelf, clock), replica(shelf, clock)
    one.charge(70)
    asyncio.run(shared(one, other))
    clock.now += DAY_S
    shelf.tallies.clear()
    asyncio.run(shared(one, other))
    assert one.total is None and one.known == 0
    other.charge(5)
    asyncio.run(shared(one, other))
    assert (one.known, other.total) == (5, 5)


def test_a_sum_that_is_too_old_is_none_and_is_still_shown() -> None:
    clock, shelf = Clock(), Shelf()
    one = replica(shelf, clock)
    assert one.total is None and one.known is None
    one.charge(70)
    asyncio.run(one.refresh())
    shelf.fault = "ConnectionError"
    clock.now += OLD_S + 1
    asyncio.run(one.refresh())
    assert one.total is None and one.known == 70


def test_what_nobody_asks_for_is_not_read() -> None:
    clock, shelf = Clock(), Shelf()
    one = replica(shelf, clock)
    asyncio.run(one.refresh())
    assert one.known is None, "it was not asked for"


@contextmanager
def clustered() -> Iterator[str]:
    with cluster() as group:
        yield f"redis+cluster://{group.hosts}"


@contextmanager
def single() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.mark.parametrize("backend", [single, clustered])
def test_M8_two_replicas_have_one_budget_for_extra_calls_and_accept_the_same_callers(backend: object) -> None:
    async def check(url: str) -> None:
        async with AsyncExitStack() as stack:
            caches = [Cache(url, SECRET, "http://u") for _ in range(2)]
            for cache in caches:
                await cache.start()
                stack.push_async_callback(cache.close)
            one, other = (ExtraCalls(1_000, accepted=c.accepted, whole=1_000, spending=c.spending) for c in caches)
            assert other.denial_reason(ALICE, True) == "unaccepted"
            one.record_response(ALICE, 200)
            one.charge(600)
            other.charge(300)
            await until(lambda: one.left == other.left == 100)
            async with asyncio.timeout(WAIT_SECONDS):
                while not other.has_accepted(ALICE):
                    if (lookup := caches[1].accepted.lookup(ALICE)) is not None:
                        await caches[1].read([lookup])
                    await asyncio.sleep(0.05)
            one.charge(150)
            await until(lambda: other.denial_reason(ALICE, True) == "over_budget")
            assert (one.left, other.left) == (0, 0)

    assert callable(backend)
    with backend() as url:
        asyncio.run(check(url))


def test_a_redis_that_dies_leaves_each_worker_its_own_share_and_one_that_is_empty_learns_the_sum_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.cache.spending.OLD_S", 2.5)

    async def check(server: RedisServer) -> None:
        cache = Cache(server.url, SECRET, "http://u")
        await cache.start()
        account = ExtraCalls(500, whole=1_000, spending=cache.spending)
        account.charge(450)
        await until(lambda: account.left == 550)
        server.kill()
        await until(lambda: account.left == 50)  # of its own share
        server.start()
        await until(lambda: account.left == 550)
        await cache.close()

    with redis_server() as server:
        asyncio.run(check(server))


@pytest.mark.parametrize("foreign", ["a string", "amounts"])
def test_what_others_wrote_under_the_name_fails_or_counts_as_nothing(foreign: str) -> None:
    async def check(server: RedisServer) -> None:
        cache = Cache(server.url, SECRET, "http://u")
        await cache.start()
        account = ExtraCalls(1_000, whole=1_000, spending=cache.spending)
        account.charge(100)
        await until(lambda: server.names() and account.spending is not None and account.spending.total == 100)
        (name,) = (name for name in server.names() if ":spent:" in name)
        if foreign == "amounts":
            server.cli("HSET", name, "x", "not a number")
        else:
            server.put(name, b"not a hash")
        account.charge(100)
        await asyncio.sleep(0.3)
        assert account.left == 800
        await cache.close()

    with redis_server() as server:
        asyncio.run(check(server))
