from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from proxy.cache import counts as module
from proxy.cache.counts import KIND, Counts, Tally
from proxy.cache.keyring import SECRET, Keyring
from proxy.cache.local_memory import LocalMemory
from proxy.cache.remote import Remote
from tests.cache.shelf import Shelf, until


@pytest.fixture(autouse=True)
def all_is_worth_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH", 0)


PAIRS = [(b"k1", b"a message"), (b"k2", b"a longer message")]


class Replica:
    """One proxy's counts over a shelf."""

    def __init__(self, shelf: Shelf, secret: bytes | None = b"secret") -> None:
        self.memory = LocalMemory()
        self.tally = Tally()
        self.remote = Remote(shelf, SECRET)
        self.keyring = Keyring(secret)
        self.counts = Counts(self.memory, self.remote, self.keyring, self.tally)
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
        assert (one.tally.misses, two.tally.hits, two.tally.foreign) == (2, 2, 0)

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
        assert [len(names) for names in shelf.gets if names != [SECRET]] == [500]

    run(test)


def test_what_is_quicker_counted_is_not_asked_for_but_stored_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        monkeypatch.setattr(module, "WORTH", 100)
        await one.count(*PAIRS)
        await until(lambda: len(shelf.values) == 2)
        assert all(names == [SECRET] for names in shelf.gets)
        await two.counts.fetch([*PAIRS, (b"k3", b"x" * 100)])
        assert two.tally.hits == 2

    run(test)


def test_of_too_many_only_the_longest_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 1)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: shelf.values)
        assert one.keyring.seals is not None
        assert list(shelf.values) == [one.keyring.seals.name(KIND, PAIRS[1][1])]

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
        assert (two.memory.get(b"k1"), two.tally.hits, two.tally.foreign) == (None, 0, 0)

    run(test, secret=b"other")


@pytest.mark.parametrize("poison", [b"", b"\x00", b"\xff" * 50, b"\x01" + bytes(30), b"x" * 70_000])
def test_a_poisoned_value_is_a_miss_and_is_replaced(poison: bytes) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(PAIRS[0])
        await until(lambda: shelf.values)
        ((name, good),) = shelf.values.items()
        shelf.values[name] = poison
        await two.count(PAIRS[0])
        assert (two.tally.foreign, two.memory.get(b"k1")) == (1, (9, 1))
        await until(lambda: shelf.values[name] == good)

    run(test)


@pytest.mark.parametrize("figures", [[], [-1], ["1"], [1.5], [10**12], 5, {"a": 1}, [True]])
def test_figures_that_are_no_counts_are_a_miss_even_with_a_right_tag(figures: object) -> None:
    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        seals = one.keyring.seals
        assert seals is not None
        name = seals.name(KIND, PAIRS[0][1])
        shelf.values[name] = seals.wrap(name, msgspec.msgpack.encode(figures))
        await one.counts.fetch([PAIRS[0]])
        assert (one.memory.get(b"k1"), one.tally.foreign) == (None, 1)

    run(test)


def test_long_texts_are_named_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HASH_INLINE", 5)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        await one.count(*PAIRS)
        await until(lambda: len(shelf.values) == 2)
        monkeypatch.setattr(module, "HASH_INLINE", 10**6)
        await two.counts.fetch(PAIRS)
        assert two.tally.hits == 2

    run(test)


def test_what_was_asked_for_and_never_counted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ASKED", 10)

    async def test(shelf: Shelf, one: Replica, two: Replica) -> None:
        for number in range(100):
            await one.counts.fetch([(b"%d" % number, b"x")])
            assert len(one.counts._asked) <= 11

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
        await Counts(replica.memory, replica.remote, replica.keyring, replica.tally).fetch([])
        assert all(names == [SECRET] for names in shelf.gets)
        await replica.remote.close()

    asyncio.run(test())
