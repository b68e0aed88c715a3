from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.cache.contents import MAX_LOCAL_BYTES, Contents
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.remote import Remote
from proxy.cache.stats import LookupStats
from tests.cache.shelf import Shelf, until

SUMMARY = b"canary: they agreed to meet on Tuesday"


def run(test: Callable[[Shelf, Contents, Contents], Awaitable[None]], secret: bytes | None = b"secret") -> None:
    async def whole() -> None:
        shelf = Shelf()
        remotes = [Remote(shelf, SECRET_NAME), Remote(shelf, SECRET_NAME)]
        for remote in remotes:
            remote.start()
        try:
            await test(shelf, *(Contents(remote, Keyring(secret), LookupStats()) for remote in remotes))
        finally:
            for remote in remotes:
                await remote.close()

    asyncio.run(whole())


def test_content_is_kept_in_this_process_for_its_caller_alone() -> None:
    async def test() -> None:
        contents = Contents(None, Keyring(None), LookupStats())
        contents.put("summary", b"alice", b"key", SUMMARY)
        assert await contents.get("summary", b"alice", b"key") == SUMMARY
        assert await contents.get("summary", b"bob", b"key") is None
        assert await contents.get("other", b"alice", b"key") is None

    asyncio.run(test())


def test_another_replica_finds_it_and_nobody_can_read_it_on_the_way() -> None:
    async def test(shelf: Shelf, one: Contents, two: Contents) -> None:
        one.put("summary", b"alice", b"key", SUMMARY)
        await until(lambda: shelf.values)
        assert b"canary" not in b"".join(name + value for name, value in shelf.values.items())
        assert await two.get("summary", b"bob", b"key") is None
        assert await two.get("summary", b"alice", b"key") == SUMMARY
        asked = len(shelf.gets)
        assert await two.get("summary", b"alice", b"key") == SUMMARY
        assert len(shelf.gets) == asked

    run(test)


def test_a_poisoned_content_is_none() -> None:
    async def test(shelf: Shelf, one: Contents, two: Contents) -> None:
        one.put("summary", b"alice", b"key", SUMMARY)
        await until(lambda: shelf.values)
        (name,) = shelf.values
        shelf.values[name] = b"\x02" + bytes(50)
        assert await two.get("summary", b"alice", b"key") is None

    run(test)


def test_without_a_secret_of_the_users_content_does_not_leave_the_process() -> None:
    async def test(shelf: Shelf, one: Contents, two: Contents) -> None:
        one.put("summary", b"alice", b"key", SUMMARY)
        assert await one.get("summary", b"alice", b"key") == SUMMARY
        assert await two.get("summary", b"alice", b"key") is None

    run(test, None)


def test_content_in_this_process_does_not_grow_without_bound() -> None:
    async def test() -> None:
        contents = Contents(None, Keyring(None), LookupStats())
        half = bytes(MAX_LOCAL_BYTES // 2 - 256)
        for key in (b"a", b"b", b"c"):
            contents.put("summary", b"alice", key, half)
        assert await contents.get("summary", b"alice", b"a") is None
        assert await contents.get("summary", b"alice", b"c") == half

    asyncio.run(test())
