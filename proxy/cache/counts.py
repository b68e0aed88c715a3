"""Cached token counts: in this process (`LocalCounts`), and shared between replicas through Redis (`SharedCounts`).

It stores counts under keyed hashes of what was counted. It never counts, and never stores text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from proxy import __version__
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.sealing import Sealer
from proxy.cache.stats import LookupStats
from proxy.model.bounded import SMALL, Bounded

MAX_LOCAL, MAX_LOCAL_BYTES = 200_000, 48 << 20  # blocks: the histories of some thousand conversations
COUNT_BYTES = 40  # memory of one message's count

KIND = f"count:{__version__}"  # another version may count differently
MIN_FETCH_BYTES = 16 * 1024  # counting less takes under 4 ms, not worth a round trip of 0.5 ms on the network
MAX_FETCH = 500  # counts of one read: those of the longest texts, which are the slowest to count
MAX_MISSED = 20_000  # counts that were missing in Redis and are not stored yet
INLINE_HASH_BYTES = 256 * 1024  # hashed on the event loop (0.3 ms); more is hashed in a thread
TTL_S = 86_400.0

# What identifies the counts of one block: the key in this process, and the bytes that the counts depend on, of which
# the Redis key is a keyed hash.
CountKey = tuple[bytes, bytes]
Counts = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=10**9)], ...], msgspec.Meta(min_length=1)]


class LocalCounts(Bounded[bytes, tuple[int, ...]]):
    """Counts in this process, by key: the tokens of each message of a block. It is a `model.ports.Memory`."""

    __slots__ = ("hits", "misses")

    def __init__(self, most: int = MAX_LOCAL, limit: int = MAX_LOCAL_BYTES) -> None:
        super().__init__(most, limit)
        self.hits = 0
        self.misses = 0

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """The counts of a block, or None."""
        value = self._young.get(key)
        if value is None:
            value = Bounded.get(self, key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def put(self, key: bytes, value: tuple[int, ...], weight: int = SMALL) -> tuple[int, ...]:
        """Stores and returns the counts of a block; the oldest entries may be evicted."""
        return Bounded.put(self, key, value, weight if len(value) <= 2 else SMALL + COUNT_BYTES * len(value))


class SharedCounts:
    """Copies counts from the backend to `local` before a request is counted, and new counts to the backend after. They
    stand where all else of the request's tenant stands; their names depend on content, and the version, alone."""

    def __init__(self, local: LocalCounts, remote: Remote, keyring: Keyring, stats: LookupStats) -> None:
        self._local = local
        self._remote = remote
        self._keyring = keyring
        self._stats = stats
        self._missed: Bounded[bytes, bytes] = Bounded(MAX_MISSED)  # names of counts to store once they are known

    async def fetch(self, keys: Sequence[CountKey], tenant: bytes = b"") -> None:
        """Copies the counts that the backend has to `local`: one read within a request's budget. Does not read if
        counting is faster, as it is for the newest turn of a conversation."""
        sealer = self._keyring.sealer
        if sealer is None or not keys:
            return
        if not self._remote.available:  # before anything is hashed
            self._remote.stats.skipped += 1
            return
        longest = sorted(keys, key=lambda key: -len(key[1]))[:MAX_FETCH]
        names = await _names(sealer, [material for _, material in longest], tenant)
        for (key, _), name in zip(longest, names, strict=True):
            self._missed.put(key, name)

        def deliver(values: Values) -> None:
            for (key, _), name, value in zip(longest, names, values, strict=True):
                decoded = None if value is None else _decode(sealer.verify(name, value))
                counts = self._stats.record(value, decoded)
                if counts is not None:
                    self._local.put(key, counts)
                    self._missed.take(key)

        if sum(len(material) for _, material in longest) >= MIN_FETCH_BYTES:
            await self._remote.read(names, deliver)

    def store(self, keys: Sequence[CountKey]) -> None:
        """Queues the counts that `fetch` did not find and that `local` has now."""
        for key, _ in keys:
            name, sealer = self._missed.take(key), self._keyring.sealer
            if name is not None and sealer is not None and (counts := self._local.get(key)):
                self._remote.write(name, sealer.sign(name, msgspec.msgpack.encode(counts)), TTL_S)


def _decode(payload: bytes | None) -> tuple[int, ...] | None:
    try:
        return None if payload is None else msgspec.msgpack.decode(payload, type=Counts)
    except msgspec.MsgspecError:
        return None


async def _names(sealer: Sealer, materials: Sequence[bytes], tenant: bytes) -> list[bytes]:
    """The Redis keys of counts. Long texts are hashed in a thread."""

    def named() -> list[bytes]:
        return [sealer.name(KIND, material, whose=tenant) for material in materials]

    return named() if sum(map(len, materials)) <= INLINE_HASH_BYTES else await asyncio.to_thread(named)
