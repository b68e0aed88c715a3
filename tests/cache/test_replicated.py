"""Records of two replicas: what changed is read again, however many there are, and what did not is not."""

from __future__ import annotations

import asyncio

import msgspec

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.cache.replicated import GROUPS, ROUNDS, Codec, ReplicatedRecords
from proxy.cache.stats import LookupStats
from tests.cache.shelf import Shelf

MANY = 3_000
CODEC: Codec[int, int] = Codec(
    "test:1", lambda key: (b"%d" % key,), 0, max, msgspec.msgpack.encode, msgspec.msgpack.decode, 60.0
)


def replica(shelf: Shelf) -> tuple[ReplicatedRecords[int, int], Remote]:
    remote = Remote(shelf, b"probe")
    return ReplicatedRecords(CODEC, 2 * MANY, remote, Keyring(b"s"), LookupStats(), lambda: 1_000.0), remote


async def written(records: ReplicatedRecords[int, int], remote: Remote) -> None:
    """Sends all that is new."""
    await records.refresh()
    remote.start()
    await remote.close()


async def used(records: ReplicatedRecords[int, int], shelf: Shelf) -> None:
    """A request for each record, whose reads arrive."""
    lookups = [lookup for key in range(MANY) if (lookup := records.lookup(key)) is not None]
    for lookup, value in zip(lookups, await shelf.get([lookup.name for lookup in lookups]), strict=True):
        lookup.deliver(value)


def names_read(shelf: Shelf) -> int:
    return sum(len(names) for names in shelf.gets if names != [b"probe"])


def test_M9_of_thousands_of_records_in_use_each_that_changed_is_there_after_one_refresh() -> None:
    async def check() -> None:
        shelf = Shelf()
        one, _ = replica(shelf)
        await used(one, shelf)
        await one.refresh()
        other, remote = replica(shelf)
        for key in range(0, MANY, 210):
            other.put(key, 5)
        await written(other, remote)
        await one.refresh()
        assert {key for key in range(MANY) if one.get(key)} == set(range(0, MANY, 210))

    asyncio.run(check())


def test_M9_what_did_not_change_is_read_once_in_many_refreshes() -> None:
    async def check() -> None:
        shelf = Shelf()
        one, _ = replica(shelf)
        await used(one, shelf)
        await one.refresh()
        shelf.gets.clear()
        for _ in range(ROUNDS):
            await one.refresh()
        assert MANY <= names_read(shelf) <= MANY + ROUNDS * GROUPS
        assert one.lookup(0) is None, "and a request reads none of them"

    asyncio.run(check())


def test_a_record_of_a_writer_without_stamps_is_there_after_some_refreshes() -> None:
    async def check() -> None:
        shelf = Shelf()
        one, _ = replica(shelf)
        await used(one, shelf)
        await one.refresh()
        other, remote = replica(shelf)
        other.put(17, 5)
        stamps = {name: value for name, value in shelf.values.items() if b":stamp:" in name}
        await written(other, remote)
        for name in [name for name in shelf.values if b":stamp:" in name]:
            del shelf.values[name]
        shelf.values.update(stamps)
        for _ in range(ROUNDS):
            await one.refresh()
        assert one.get(17) == 5

    asyncio.run(check())


def test_a_read_that_was_lost_is_made_by_the_next_refresh() -> None:
    async def check() -> None:
        shelf = Shelf()
        other, remote = replica(shelf)
        for key in range(MANY):
            other.put(key, 5)
        await written(other, remote)
        one, _ = replica(shelf)
        for key in range(MANY):
            one.lookup(key)
        await one.refresh()
        assert all(one.get(key) == 5 for key in range(MANY))

    asyncio.run(check())


def test_an_emptied_backend_gets_all_again_that_is_in_use() -> None:
    async def check() -> None:
        shelf = Shelf()
        one, remote = replica(shelf)
        for key in range(MANY):
            one.put(key, 5)
        await used(one, shelf)
        await one.refresh()
        shelf.values.clear()
        for _ in range(ROUNDS + 1):
            await one.refresh()
        remote.start()
        while len([name for name in shelf.values if b":stamp:" not in name]) < MANY:
            await asyncio.sleep(0.01)
        await remote.close()

    asyncio.run(check())
