"""Callers whose own key an upstream accepted, as all workers of a process and all replicas know them.

Theory of operation
===================

A record is the time of a caller's newest accepted answer, or of its newest refused one; the newer record wins. One from
the future is none: a clock was set back, and what is accepted since must count. A refusal is later than what it ends,
whatever the clock says, so that the key is not accepted anew once the clock is there again.

Workers share records in memory that they inherit. Replicas share them through the backend, under a keyed hash and
signed with the operator's secret: who can only write there accepts nobody, and without a secret of the operator, which
all who read the backend could know, nothing is shared. A request reads its caller's record with its other records.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Annotated

import msgspec
from xxhash import xxh3_64_intdigest

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.replicated import Codec, Lookup, ReplicatedRecords, refresh_often, with_former
from proxy.cache.stats import LookupStats
from proxy.model.ports import ACCEPTED_S

KIND = "accepted:1"
MAX_CALLERS = 10_000
RENEW_S = 60.0  # a record is not written again to the backend before it is so old
AHEAD_S = 60.0  # by how much the clock of another replica may be ahead


class Verdict(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What an upstream said of a caller's key, at a time in seconds since 1970."""

    at: Annotated[float, msgspec.Meta(ge=0, le=1e11)] = 0.0
    accepted: bool = False


UNKNOWN = Verdict()
_DECODER = msgspec.msgpack.Decoder(Verdict)


class SharedVerdicts:
    """The newest verdicts in memory that all workers share. Must be created before the workers are forked. A caller may
    displace another one; whose place that is, no client can choose."""

    SLOTS = 16_384
    ENTRY = struct.Struct("=16sd")  # a digest and a time, negative for a refusal
    CHECK = struct.Struct("=Q")  # of an entry: another worker may be writing it

    def __init__(self) -> None:
        self._size = self.ENTRY.size + self.CHECK.size
        self._memory = mmap.mmap(-1, self.SLOTS * self._size)
        self._key = os.urandom(16)

    def get(self, caller: bytes) -> Verdict:
        """The verdict on a caller, a digest of 16 bytes; the empty one if there is none."""
        digest, at = self._entry(self._offset(caller))
        return Verdict(abs(at), at > 0) if digest == caller else UNKNOWN

    def put(self, caller: bytes, verdict: Verdict) -> None:
        """Stores a verdict. A refusal displaces no other caller that is accepted."""
        offset = self._offset(caller)
        digest, at = self._entry(offset)
        if not verdict.accepted and digest != caller and at > 0:
            return
        entry = self.ENTRY.pack(caller, verdict.at if verdict.accepted else -verdict.at)
        self._memory[offset : offset + self._size] = entry + self.CHECK.pack(xxh3_64_intdigest(entry))

    def _entry(self, offset: int) -> tuple[bytes, float]:
        found = self._memory[offset : offset + self._size]
        entry, check = found[: self.ENTRY.size], found[self.ENTRY.size :]
        if check != self.CHECK.pack(xxh3_64_intdigest(entry)):
            return b"", 0.0
        digest, at = self.ENTRY.unpack(entry)
        return digest, at

    def _offset(self, caller: bytes) -> int:
        place = int.from_bytes(blake2b(caller, key=self._key, digest_size=8).digest(), "big")
        return self._size * (place % self.SLOTS)


class AcceptedCallers:
    """The callers that one upstream accepted. Every method but `refresh` returns without I/O."""

    def __init__(
        self,
        upstream: str,
        remote: Remote | None,
        keyring: Keyring,
        stats: LookupStats,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._remote = remote if keyring.can_seal else None
        self._keyring, self._wall = keyring, wall
        self._upstream = upstream.encode()
        self._workers = SharedVerdicts()
        self._changed = asyncio.Event()
        codec = Codec(KIND, self._parts, UNKNOWN, self._newer, msgspec.msgpack.encode, _unpacked, ACCEPTED_S, bytes)
        self._records: ReplicatedRecords[bytes, Verdict] = ReplicatedRecords(
            codec, MAX_CALLERS, self._remote, keyring, stats, clock
        )

    def _parts(self, caller: bytes) -> tuple[bytes, ...]:
        return self._upstream, caller

    def lookup(self, caller: bytes) -> Lookup | None:
        """The read that a request needs before it asks for a caller; None if what is known here is up to date."""
        return self._records.lookup(caller)

    async def learn(self, caller: bytes) -> None:
        """Makes that read, if it is needed: at most `remote.READ_BUDGET_S` seconds."""
        found = None if self._remote is None or self.has(caller) else self.lookup(caller)
        if found is None or self._remote is None:
            return
        lookups = with_former([found])

        def deliver(values: Values) -> None:
            for lookup, value in zip(lookups, values, strict=True):
                lookup.deliver(value)

        await self._remote.read([lookup.name for lookup in lookups], deliver)

    def has(self, caller: bytes) -> bool:
        """Whether a caller's key was accepted within the last hour, and not refused since."""
        verdict = self._verdict(caller)
        return verdict.accepted and self._wall() - verdict.at < ACCEPTED_S

    def knows(self, caller: bytes) -> bool:
        """Whether a caller's key was accepted or refused within the last hour."""
        return self._wall() - self._verdict(caller).at < ACCEPTED_S

    def _verdict(self, caller: bytes) -> Verdict:
        return self._newer(self._workers.get(caller), self._records.get(caller))

    def _newer(self, one: Verdict, other: Verdict) -> Verdict:
        latest = self._wall() + AHEAD_S
        return _newer(one if one.at <= latest else UNKNOWN, other if other.at <= latest else UNKNOWN)

    def accept(self, caller: bytes) -> None:
        """The upstream accepted a caller's key."""
        now, known = self._wall(), self._records.get(caller)
        verdict = Verdict(now, True)
        self._workers.put(caller, verdict)
        if not known.accepted or not 0 <= now - known.at < RENEW_S:
            self._records.put(caller, verdict)
            self._changed.set()

    def refuse(self, caller: bytes) -> None:
        """The upstream refused a caller's key: it is accepted no longer, here at once and in all replicas soon."""
        known = self._records.get(caller)
        before = _newer(self._workers.get(caller), known)
        verdict = Verdict(max(self._wall(), before.at + 0.001) if before.accepted else self._wall(), False)
        self._workers.put(caller, verdict)
        if known.accepted:
            self._records.put(caller, verdict)
            self._changed.set()
        elif self._remote is not None and (sealer := self._keyring.sealer) is not None:  # keys that nobody knows
            name = sealer.name(KIND, *self._parts(caller), whose=caller)  # are not kept here
            self._remote.write(name, sealer.sign(name, msgspec.msgpack.encode(verdict)), ACCEPTED_S)

    async def refresh_loop(self) -> None:
        """Reads the records in use and sends those that are new here, until cancelled."""
        await refresh_often(self.refresh, self._changed)

    async def refresh(self) -> None:
        """Reads the records in use from the backend, and sends those that are new here."""
        await self._records.refresh()


def _newer(one: Verdict, other: Verdict) -> Verdict:
    return other if (other.at, not other.accepted) > (one.at, not one.accepted) else one


def _unpacked(payload: bytes) -> Verdict | None:
    try:
        return _DECODER.decode(payload)
    except msgspec.MsgspecError:
        return None
