from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.remote import Remote
from proxy.cache.stats import LookupStats
from proxy.cache.stored_prompts import COUNTED, MAX_TOKENS, StoredPrompts
from tests.cache.shelf import Shelf, until


def run(test: Callable[[Shelf, StoredPrompts, StoredPrompts], Awaitable[None]]) -> None:
    async def whole() -> None:
        shelf = Shelf()
        remotes = [Remote(shelf, SECRET_NAME), Remote(shelf, SECRET_NAME)]
        for remote in remotes:
            remote.start()
        try:
            await test(shelf, *(StoredPrompts(remote, Keyring(b"secret"), LookupStats()) for remote in remotes))
        finally:
            for remote in remotes:
                await remote.close()

    asyncio.run(whole())


def test_a_count_is_known_to_its_tenant_alone() -> None:
    async def test() -> None:
        stored = StoredPrompts(None, Keyring(None), LookupStats())
        stored.put(b"alice", "resp_1", 900)
        assert await stored.get(b"alice", "resp_1") == 900
        assert await stored.get(b"bob", "resp_1") == await stored.get(b"alice", "resp_2") == 0
        stored.put(b"alice", "resp_\ud800", 10**12)
        assert await stored.get(b"alice", "resp_\ud800") == MAX_TOKENS

    asyncio.run(test())


def test_another_replica_knows_it_too_and_the_id_is_nowhere() -> None:
    async def test(shelf: Shelf, one: StoredPrompts, two: StoredPrompts) -> None:
        one.put(b"alice", "resp_canary", 900)
        await until(lambda: shelf.values)
        assert b"canary" not in b"".join(name + value for name, value in shelf.values.items())
        assert await two.get(b"bob", "resp_canary") == 0
        assert await two.get(b"alice", "resp_canary") == 900

    run(test)


def test_a_foreign_value_and_one_that_is_no_count_are_unknown() -> None:
    async def test(shelf: Shelf, one: StoredPrompts, two: StoredPrompts) -> None:
        one.put(b"alice", "resp_1", 900)
        await until(lambda: shelf.values)
        (name,) = shelf.values
        sealer = Keyring(b"secret").sealer
        assert sealer is not None
        for forged in (b"\x01" + bytes(40), sealer.sign(name, b"\xa1x")):
            shelf.values[name] = forged
            assert await two.get(b"alice", "resp_1") == 0

    run(test)


def test_counts_of_two_kinds_are_kept_apart() -> None:
    async def test(shelf: Shelf, one: StoredPrompts, two: StoredPrompts) -> None:
        counted = StoredPrompts(one._remote, Keyring(b"secret"), LookupStats(), COUNTED, 60.0)
        counted.put(b"alice", "a", 900)
        await until(lambda: shelf.values)
        assert await two.get(b"alice", "a") == 0
        assert await counted.get(b"alice", "a") == 900

    run(test)
