from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from proxy.cache import counts as module
from proxy.cache.counts import KIND, LocalCounts, SharedCounts
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.remote import Remote
from proxy.cache.stats import LookupStats
from proxy.model.ports import Memory
from tests.cache.shelf import Shelf, until


@pytest.fixture(autouse=True)
def all_is_worth_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_FETCH_BYTES", 0)


PAIRS = [(b"k1", b"a message"), (b"k2", b"a longer message")]


class Replica:
    """One proxy's counts over a shelf."""

    def __init__(self, shelf: Shelf, secret: bytes | None = b"secret") -> None:
        self.memory = LocalCounts()
        self.stats = LookupStats()
        self.remote = Remote(shelf, SECRET_NAME)
        self.keyring = Keyring(secret)
        self.counts = SharedCounts(self.memory, self.remote, self.keyring, self.stats)
        self.remote.start()

    async def count(self, *pairs: tuple[bytes, bytes]) -> None:
        """What a request does: it fetches, counts what is new, and stores."""
        await self.counts.fetch(pairs)
        for key, material in pairs:
            if self.memory.get(key) is None:
                self.memory.put(key, (len(material), 1))
        self.counts.store(pairs)


def run(test: Callable[[Shelf, Replica, Replica], Awaitable[None]], secret: bytes = b"secret") -> None:
    async def whole() -> None:
        shelf = Shelf()
        one, two = Replica(shelf), Replica(shelf, secret)
        try:
            await test(shelf, one, two)
        finally:
            await one.remote.close()
            await two.remote.close()

    asyncio.run(whole())


def test_what_one_replica_counted_the_other_need_not() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: len(shelf.values) == 2)
        await two.counts.fetch(PAIRS)
        assert [two.memory.get(key) for key, _ in PAIRS] == [(9, 1), (16, 1)]
        assert (one.stats.misses, two.stats.hits, two.stats.foreign) == (2, 2, 0)

    run(test)


def test_what_was_found_is_not_stored_again() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: shelf.puts)
        await two.count(*PAIRS, (b"k3", b"new"))
        await until(lambda: len(shelf.puts) == 2)
        assert len(shelf.puts[1]) == 1

    run(test)


def test_one_question_is_asked_however_many_messages_there_are() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.counts.fetch([(b"%d" % n, b"m%d" % n) for n in range(500)])
        assert [len(names) for names in shelf.gets if names != [SECRET_NAME]] == [500]

    run(test)


def test_what_is_quicker_counted_is_not_asked_for_but_stored_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        monkeypatch.setattr(module, "MIN_FETCH_BYTES", 100)
        await one.count(*PAIRS)
        await until(lambda: len(shelf.values) == 2)
        assert all(names == [SECRET_NAME] for names in shelf.gets)
        await two.counts.fetch([*PAIRS, (b"k3", b"x" * 100)])
        assert two.stats.hits == 2

    run(test)


def test_of_too_many_only_the_longest_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FETCH", 1)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: shelf.values)
        assert one.keyring.sealer is not None
        assert list(shelf.values) == [one.keyring.sealer.name(KIND, PAIRS[1][1])]

    run(test)


def test_nothing_that_is_kept_tells_of_the_message() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count((b"k", b"canary " * 100))
        await until(lambda: shelf.values)
        ((name, value),) = shelf.values.items()
        assert b"canary" not in name + value
        assert len(name) + len(value) < 120

    run(test)


def test_another_secret_finds_nothing() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: shelf.values)
        await two.counts.fetch(PAIRS)
        assert (two.memory.get(b"k1"), two.stats.hits, two.stats.foreign) == (None, 0, 0)

    run(test, secret=b"other")


@pytest.mark.parametrize("poison", [b"", b"\x00", b"\xff" * 50, b"\x01" + bytes(30), b"x" * 70_000])
def test_a_poisoned_value_is_a_miss_and_is_replaced(poison: bytes) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(PAIRS[0])
        await until(lambda: shelf.values)
        ((name, good),) = shelf.values.items()
        shelf.values[name] = poison
        await two.count(PAIRS[0])
        assert (two.stats.foreign, two.memory.get(b"k1")) == (1, (9, 1))
        await until(lambda: shelf.values[name] == good)

    run(test)


@pytest.mark.parametrize("figures", [[], [-1], ["1"], [1.5], [10**12], 5, {"a": 1}, [True]])
def test_figures_that_are_no_counts_are_a_miss_even_with_a_right_tag(figures: object) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        sealer = one.keyring.sealer
        assert sealer is not None
        name = sealer.name(KIND, PAIRS[0][1])
        shelf.values[name] = sealer.sign(name, msgspec.msgpack.encode(figures))
        await one.counts.fetch([PAIRS[0]])
        assert (one.memory.get(b"k1"), one.stats.foreign) == (None, 1)

    run(test)


def test_long_texts_are_named_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INLINE_HASH_BYTES", 5)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: len(shelf.values) == 2)
        monkeypatch.setattr(module, "INLINE_HASH_BYTES", 10**6)
        await two.counts.fetch(PAIRS)
        assert two.stats.hits == 2

    run(test)


def test_what_was_asked_for_and_never_counted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MISSED", 10)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        for number in range(100):
            await one.counts.fetch([(b"%d" % number, b"x")])
            assert len(one.counts._missed) <= 11

    run(test)


def test_what_was_not_counted_after_all_is_not_stored() -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.counts.fetch(PAIRS)
        one.counts.store(PAIRS)
        one.counts.store([(b"never asked", b"x")])
        await one.remote.close()
        assert shelf.values == {}

    run(test)


def test_nothing_is_asked_without_a_question_or_a_secret() -> None:
    async def test() -> None:
        shelf = Shelf()
        replica = Replica(shelf, secret=None)
        await replica.counts.fetch(PAIRS)
        replica.keyring = Keyring(b"secret")
        await SharedCounts(replica.memory, replica.remote, replica.keyring, replica.stats).fetch([])
        assert all(names == [SECRET_NAME] for names in shelf.gets)
        await replica.remote.close()

    asyncio.run(test())


# Counts in this process.


def test_what_was_put_is_remembered_and_counted() -> None:
    memory = LocalCounts()
    memory.put(b"a", (1, 2))
    assert (memory.get(b"a"), memory.get(b"b")) == ((1, 2), None)
    assert (memory.hits, memory.misses, len(memory)) == (1, 1, 1)


def test_it_is_a_memory_for_meters() -> None:
    def use(memory: Memory) -> None:
        memory.put(b"a", (0,))

    use(LocalCounts())


def test_it_never_holds_more_than_it_may() -> None:
    memory = LocalCounts(100)
    for number in range(1000):
        memory.put(b"%d" % number, (number,))
        assert len(memory) <= 100
    assert memory.get(b"999") == (999,)
    assert memory.get(b"0") is None


def test_what_is_used_outlives_what_is_not() -> None:
    memory = LocalCounts(10)
    memory.put(b"used", (1,))
    for number in range(100):
        memory.put(b"%d" % number, (number,))
        assert memory.get(b"used") == (1,)


def test_putting_what_is_there_forgets_nothing() -> None:
    memory = LocalCounts(4)
    memory.put(b"a", (1,))
    memory.put(b"b", (2,))
    for _ in range(10):
        memory.put(b"b", (3,))
    assert (memory.get(b"a"), memory.get(b"b")) == ((1,), (3,))


def test_the_costs_of_many_messages_weigh_what_they_take() -> None:
    memory = LocalCounts(1_000, 100_000)
    for number in range(100):
        memory.put(b"%d" % number, (1,) * 500)
    assert len(memory) <= 4 and memory.get(b"99") is not None
    memory.put(b"too many", (1,) * 10_000)
    assert memory.get(b"too many") is None
