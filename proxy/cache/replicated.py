"""A map of small records that replicas share through the backend and merge: each replica soon has what another wrote.

It does not know what the records mean; a `Codec` encodes, decodes and merges them.

Theory of operation
===================

Who writes a record writes a new stamp for its group of records after it; a record's name decides its group. A refresh
reads the stamps of the groups in use, at most `GROUPS`, and then the records of those groups whose stamp is another one
than before, however many there are. Stamps are read first: what is written meanwhile is another stamp for the next
refresh. A stamp may be lost, or its writer be of a version without stamps: each refresh also reads a part of all
records in use, and each of them within `ROUNDS` refreshes. A stamp is random and says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.sealing import Sealer, former_name
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded

REFRESH_S = 2.0  # what another replica learned arrives here within this time
ACTIVE_S = 60.0  # a record is in use for so long after a request for it
MAX_READ = 512  # records of one read: a refresh may make several
GROUPS = 64
ROUNDS = 15  # 30 s
STAMP_BYTES = 8
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Codec(Generic[K, R]):
    """How records of a kind are named and stored.

    `parts` are what the name of a key is a hash of; `whose` is the tenant or caller whose record it is, empty if it is
    common to all. `merge(ours, theirs)` combines the records of two replicas.
    `unpack` returns None for bytes that are not a record. The backend keeps a record for `seconds`.
    """

    kind: str
    parts: Callable[[K], Sequence[bytes]]
    empty: R
    merge: Callable[[R, R], R]
    pack: Callable[[R], bytes]
    unpack: Callable[[bytes], R | None]
    seconds: float
    whose: Callable[[K], bytes] = lambda key: b""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read to send to the backend: the name, and a function to call with the value. `former`: the same of the name
    that a version without slots gave it, as long as there may be one."""

    name: bytes
    deliver: Callable[[bytes | None], None]
    former: Lookup | None = None


def with_former(lookups: Sequence[Lookup]) -> list[Lookup]:
    """All reads, those of former names last."""
    return [*lookups, *(lookup.former for lookup in lookups if lookup.former is not None)]


async def refresh_often(
    refresh: Callable[[], Awaitable[None]],
    changed: asyncio.Event,
    ended: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> None:
    """Refreshes after so many `seconds` (`REFRESH_S`), and at once after a change here, until cancelled or `ended`."""
    while not ended():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), REFRESH_S if seconds is None else seconds)
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
        # When a request last used a record, and its name by a sealer.
        self._used: Bounded[K, tuple[float, bytes, Sealer | None]] = Bounded(most)
        self._read: Bounded[K, float] = Bounded(most)  # when a record was last read from the backend
        self._unsent: dict[K, None] = {}  # records that other replicas do not have yet
        self._unread: dict[K, None] = {}  # records of which a request's read may be late or lost
        self._stamps: dict[int, bytes | None] = {}  # of groups, as of the last refresh that read them
        self._round = 0

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
        name = self._name(key)
        self._used.put(key, (now, name or b"", self._keyring.sealer if name else None))
        if name is None or (last_read is not None and now - last_read < ACTIVE_S):
            return None
        self._read.put(key, now)
        if len(self._unread) < self._most:
            self._unread[key] = None
        former = self._keyring.former(name, self._codec.seconds)
        before = None if former is None else Lookup(former, lambda value: self._merge_former(key, value))
        return Lookup(name, lambda value: self._merge(key, value), before)

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
        return None if self._remote is None or sealer is None else self._name_by(sealer, key)

    def _name_by(self, sealer: Sealer, key: K) -> bytes:
        return sealer.name(self._codec.kind, *self._codec.parts(key), whose=self._codec.whose(key))

    def _merge(self, key: K, value: bytes | None) -> None:
        """Merges the backend's value into the record here. Marks the record as unsent if the backend's is older."""
        self._unread.pop(key, None)
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

    def _merge_former(self, key: K, value: bytes | None) -> None:
        """Merges what a version without slots wrote into the record here. The next `refresh` sends it on."""
        name, sealer, ours = self._name(key), self._keyring.sealer, self.records.get(key)
        if value is None or name is None or sealer is None:
            return
        payload = sealer.verify(former_name(name), value)
        theirs = self._stats.record(value, None if payload is None else self._codec.unpack(payload))
        if theirs is None:
            return
        merged = theirs if ours is None else self._codec.merge(ours, theirs)
        if merged != ours:
            self.put(key, merged)

    async def refresh(self) -> None:
        """Reads the records in use that others changed from the backend, and queues those that it does not have yet."""
        sealer, now = self._keyring.sealer, self._clock()
        if self._remote is None or sealer is None:
            return
        names = self._names_in_use(sealer, now)
        stamps: dict[int, bytes | None] | None = {}
        if len(names) > GROUPS:  # else the stamps are as many as the records
            stamps = await self._changed_stamps(sealer, sorted({_group(name) for name in names.values()}))
        if stamps is None:
            return
        self._round = (self._round + 1) % ROUNDS
        due = [key for key, name in names.items() if len(names) <= GROUPS or self._is_due(key, name, stamps)]
        due.sort(key=names.__getitem__)  # those of one slot together: it is read with one command
        for start in range(0, len(due), MAX_READ):
            if not await self._exchange(sealer, {key: names[key] for key in due[start : start + MAX_READ]}):
                return
        self._stamps.update(stamps)
        for key in names:
            self._read.put(key, now)

    def _names_in_use(self, sealer: Sealer, now: float) -> dict[K, bytes]:
        """The names of all records in use and of those to send. A request has hashed most of them."""
        found: dict[K, bytes] = {}
        for key, (used, name, by) in self._used:
            if now - used < ACTIVE_S:
                found[key] = name if by is sealer else self._name_by(sealer, key)
        for key in self._unsent:
            if key not in found:
                found[key] = self._name_by(sealer, key)
        return found

    def _is_due(self, key: K, name: bytes, stamps: Mapping[int, bytes | None]) -> bool:
        if key in self._unsent or key in self._unread or _group(name) in stamps:
            return True
        return int(name[-4:], 16) % ROUNDS == self._round

    async def _changed_stamps(self, sealer: Sealer, groups: Sequence[int]) -> dict[int, bytes | None] | None:
        """The stamps of these groups that are others than at the last refresh. None if the backend cannot be read."""
        assert self._remote is not None
        names = [self._stamp(sealer, group) for group in groups]
        values = await self._remote.attempt(lambda backend: backend.get(names))
        if values is None:
            return None
        found = zip(groups, values, strict=True)
        return {group: value for group, value in found if self._stamps.get(group, b"") != value}

    async def _exchange(self, sealer: Sealer, names: Mapping[K, bytes]) -> bool:
        """Reads these records, under their former names too, and sends what is new here. Whether they could be read."""
        assert self._remote is not None
        asked, keys = [*names.values()], [*names]
        formers = [self._keyring.former(name, self._codec.seconds) for name in asked]
        asked += [name for name in formers if name is not None]
        values: Values | None = await self._remote.attempt(lambda backend: backend.get(asked))
        if values is None:
            return False
        for key, value in zip(keys, values, strict=False):
            self._merge(key, value)
        renamed = [key for key, former in zip(keys, formers, strict=True) if former is not None]
        for key, value in zip(renamed, values[len(keys) :], strict=True):
            self._merge_former(key, value)
        self._send(sealer, names)
        return True

    def _send(self, sealer: Sealer, names: Mapping[K, bytes]) -> None:
        """Queues those of these records that are to be sent, each before the stamp of its group."""
        assert self._remote is not None
        groups: set[int] = set()
        for key, name in names.items():
            if key in self._unsent:
                del self._unsent[key]
                if (record := self.records.get(key)) is not None:
                    self._remote.write(name, sealer.sign(name, self._codec.pack(record)), self._codec.seconds)
                    groups.add(_group(name))
        for group in groups:
            self._remote.write_last(self._stamp(sealer, group), os.urandom(STAMP_BYTES), self._codec.seconds)

    def _stamp(self, sealer: Sealer, group: int) -> bytes:
        return sealer.name(f"stamp:{self._codec.kind}", bytes([group]))


def _group(name: bytes) -> int:
    """The group of a record, by its name, which ends with a hash in hexadecimal digits."""
    return int(name[-2:], 16) % GROUPS
