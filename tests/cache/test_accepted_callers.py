"""Which callers an upstream accepted: for how long, in which workers and replicas, and by whose word."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import msgspec

from proxy.cache.accepted_callers import KIND, AcceptedCallers, SharedVerdicts, Verdict
from proxy.cache.account_script import Found, Write
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.sealing import former_name
from proxy.cache.stats import LookupStats
from proxy.model.ports import ACCEPTED_S

ALICE, BOB = b"a" * 16, b"b" * 16
SECRET = b"s" * 32


class Store:
    """A backend in memory."""

    address = "memory"

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.reads = 0

    async def get(self, names: Sequence[bytes]) -> Values:
        self.reads += 1
        return [self.values.get(name) for name in names]

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        self.values |= {name: value for name, value, _ in items}

    async def set_default(self, name: bytes, value: bytes) -> bytes | None:
        return self.values.setdefault(name, value)

    async def account(self, name: bytes, write: Write) -> Found:
        raise AssertionError

    async def tally(self, name: bytes, field: bytes, amount: int, seconds: float) -> tuple[int, float]:
        return amount, seconds

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        return [0 for _ in names]

    async def delete(self, names: Sequence[bytes]) -> None:
        """Nothing is too large."""

    async def close(self) -> None:
        """Nothing is open."""


class Clock:
    now = 1_000_000.0


def replica(store: Store | None, clock: type[Clock] = Clock, secret: bytes | None = SECRET) -> AcceptedCallers:
    remote = None if store is None else Remote(store, b"probe")
    return AcceptedCallers("u", remote, Keyring(secret), LookupStats(), lambda: clock.now, lambda: clock.now)


async def read(one: AcceptedCallers, store: Store, caller: bytes = ALICE) -> bool:
    if (lookup := one.lookup(caller)) is not None:
        lookup.deliver((await store.get([lookup.name]))[0])
    return one.has(caller)


async def sent(one: AcceptedCallers) -> None:
    await one.refresh()
    assert one._remote is not None
    while one._remote._queue:
        await one._remote._write_batch()


def test_a_caller_is_accepted_for_an_hour_and_no_longer_once_its_key_is_refused() -> None:
    class Now(Clock):
        now = 1_000.0

    made = replica(None, Now)
    assert not made.has(ALICE)
    made.accept(ALICE)
    Now.now += ACCEPTED_S - 1
    assert made.has(ALICE) and not made.has(BOB)
    Now.now += 1
    assert not made.has(ALICE)
    made.accept(ALICE)
    Now.now += 1
    made.refuse(ALICE)
    assert not made.has(ALICE)
    Now.now += 1
    made.accept(ALICE)
    assert made.has(ALICE)
    Now.now -= 3_600  # a clock that jumps back makes no caller's hour longer
    assert not made.has(ALICE)


def test_another_replica_knows_an_accepted_caller_and_a_refused_one() -> None:
    class Now(Clock):
        now = 2_000.0

    async def check() -> None:
        store = Store()
        one, other, third = (replica(store, Now) for _ in range(3))
        one.accept(ALICE)
        await sent(one)
        assert await read(other, store) and not await read(other, store, BOB)
        Now.now += 61
        third.refuse(ALICE)  # which never knew it
        await sent(third)
        assert not await read(other, store) and not await read(one, store)
        assert all(ALICE not in name + value for name, value in store.values.items())

    asyncio.run(check())


def test_who_can_only_write_to_the_backend_accepts_nobody() -> None:
    async def check() -> None:
        store = Store()
        one, made, other = replica(store), replica(store, secret=b"x" * 32), replica(store)
        one.accept(BOB)
        await sent(one)
        ((bobs, value),) = ((name, value) for name, value in store.values.items() if b":stamp:" not in name)
        made.accept(ALICE)
        await sent(made)
        lookup = other.lookup(ALICE)
        assert lookup is not None and former_name(lookup.name).startswith(b"plimsoll:{v1}:" + KIND.encode())
        forged = [*store.values.values(), value, msgspec.msgpack.encode(Verdict(Clock.now, True)), b"", os.urandom(40)]
        for wrong in forged:
            lookup.deliver(wrong)
            assert not other.has(ALICE)
        assert await read(other, store, BOB) and bobs in store.values

    asyncio.run(check())


def test_without_a_secret_of_the_operator_nothing_is_shared() -> None:
    async def check() -> None:
        store = Store()
        one = replica(store, secret=None)
        one.accept(ALICE)
        one.refuse(BOB)
        await one.refresh()
        assert one.has(ALICE) and one.lookup(ALICE) is None and not store.values

    asyncio.run(check())


def test_the_workers_of_a_process_share_what_one_of_them_saw() -> None:
    made = replica(None)
    child = os.fork()
    if not child:
        made.accept(ALICE)
        made.accept(BOB)
        made.refuse(BOB)
        os._exit(0)
    os.waitpid(child, 0)
    assert made.has(ALICE) and not made.has(BOB)


def test_a_refusal_displaces_nobody_and_an_entry_that_is_half_written_is_none() -> None:
    class One(SharedVerdicts):
        SLOTS = 1

    made = One()
    made.put(ALICE, Verdict(1.0, True))
    made.put(BOB, Verdict(2.0, False))
    assert made.get(ALICE) == Verdict(1.0, True) and made.get(BOB) == Verdict()
    made.put(BOB, Verdict(3.0, True))
    assert made.get(BOB) == Verdict(3.0, True) and made.get(ALICE) == Verdict()
    made._memory[3] ^= 1
    assert made.get(BOB) == Verdict()
