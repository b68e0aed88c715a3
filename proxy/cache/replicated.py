"""A map of small records that replicas share through the backend and merge: each replica soon has what another wrote.

It does not know what the records mean; a `Codec` encodes, decodes and merges them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded

REFRESH_S = 2.0  # what another replica learned arrives here within this time
ACTIVE_S = 60.0  # a record is in use for so long after a request for it
MAX_REFRESH = 512  # records that one refresh reads
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Codec(Generic[K, R]):
    """How records of a kind are named and stored.

    `parts` are what the name of a key is a hash of. `merge(ours, theirs)` combines the records of two replicas.
    `unpack` returns None for bytes that are not a record. The backend keeps a record for `seconds`.
    """

    kind: str
    parts: Callable[[K], Sequence[bytes]]
    empty: R
    merge: Callable[[R, R], R]
    pack: Callable[[R], bytes]
    unpack: Callable[[bytes], R | None]
    seconds: float


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read to send to the backend: the name, and a function to call with the value."""

    name: bytes
    deliver: Callable[[bytes | None], None]


async def refresh_often(
    refresh: Callable[[], Awaitable[None]], changed: asyncio.Event, ended: Callable[[], bool] = lambda: False
) -> None:
    """Refreshes every `REFRESH_S` seconds, and at once after a change here, until cancelled or `ended`."""
    while not ended():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), REFRESH_S)
        changed.clear()
        await refresh()


class ReplicatedRecords(Generic[K, R]):
    """At most `most` records by key. Without a backend they stay in this process. An empty record is not stored."""

    def __init__(
        self,
        codec: Codec[K, R],
        most: int,
        remote: Remote | None,
        keyring: Keyring,
        stats: LookupStats,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._codec = codec
        self._most = most
        self._remote = remote
        self._keyring = keyring
        self._stats = stats
        self._clock = clock
        self.records: Bounded[K, R] = Bounded(most)
        self.version = 0  # is another one after every change of a record
        self._used: Bounded[K, float] = Bounded(most)  # when a request last used a record
        self._read: Bounded[K, float] = Bounded(most)  # when a record was last read from the backend
        self._unsent: dict[K, None] = {}  # records that other replicas do not have yet

    def get(self, key: K) -> R:
        """The record in this process, or the empty one. The same object is returned until the record changes."""
        record = self.records.get(key)
        return self._codec.empty if record is None else record

    def put(self, key: K, record: R) -> None:
        """Stores a record; the next `refresh` sends it to the backend."""
        self.records.put(key, record)
        self.version += 1
        self._mark_unsent(key)

    def _mark_unsent(self, key: K) -> None:
        if self._remote is not None and len(self._unsent) < self._most:
            self._unsent[key] = None

    def lookup(self, key: K) -> Lookup | None:
        """The read that a request needs before it uses a record; None for a record that is in use, because `refresh`
        keeps those up to date."""
        now, last_read = self._clock(), self._read.get(key)
        self._used.put(key, now)
        if (name := self._name(key)) is None or (last_read is not None and now - last_read < ACTIVE_S):
            return None
        self._read.put(key, now)
        return Lookup(name, lambda value: self._merge(key, value))

    def clear(self) -> None:
        """Drops all records in this process."""
        self.records.clear()
        self.version += 1

    def items(self) -> list[tuple[K, R]]:
        """All records in this process."""
        return list(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def _name(self, key: K) -> bytes | None:
        sealer = self._keyring.sealer
        if self._remote is None or sealer is None:
            return None
        return sealer.name(self._codec.kind, *self._codec.parts(key))

    def _merge(self, key: K, value: bytes | None) -> None:
        """Merges the backend's value into the record here. Marks the record as unsent if the backend's is older."""
        name, sealer, codec = self._name(key), self._keyring.sealer, self._codec
        payload = sealer.verify(name, value) if value is not None and name and sealer else None
        theirs = self._stats.record(value, None if payload is None else codec.unpack(payload))
        ours = self.records.get(key)
        if theirs is None:
            merged = ours
        elif ours is None:
            merged = theirs
        else:
            merged = codec.merge(ours, theirs) if key in self._unsent else codec.merge(theirs, ours)
        if merged is None:
            return
        if merged != ours:
            self.records.put(key, merged)
            self.version += 1
        if merged != theirs:  # the backend's is older, was lost, or was overwritten by another replica
            self._mark_unsent(key)

    async def refresh(self) -> None:
        """Reads the records in use from the backend, and queues those that it does not have yet."""
        sealer, now = self._keyring.sealer, self._clock()
        if self._remote is None or sealer is None:
            return
        active = [key for key, used in self._used if now - used < ACTIVE_S]
        keys = list(dict.fromkeys([*self._unsent, *active]))[:MAX_REFRESH]
        names = [sealer.name(self._codec.kind, *self._codec.parts(key)) for key in keys]
        values: Values | None = await self._remote.attempt(lambda backend: backend.get(names)) if names else None
        if values is None:
            return
        for key, name, value in zip(keys, names, values, strict=True):
            self._merge(key, value)
            self._read.put(key, now)
            if key in self._unsent:
                del self._unsent[key]
                if (record := self.records.get(key)) is not None:
                    self._remote.write(name, sealer.sign(name, self._codec.pack(record)), self._codec.seconds)
