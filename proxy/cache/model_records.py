"""What the proxy learned about one upstream's models, in this process and on all replicas.

It combines four kinds of replicated records: `LimitProofs` and `Calibration` of each model and tenant, and `Consensus`
and invalidation times of each model. Every method but `load` and `refresh` returns without I/O. It does not decide what
a refusal proves (`fit.learn`) or how a response's usage becomes a ratio (`tokens.meter`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from proxy.cache import calibration, limit_proofs
from proxy.cache.calibration import DIGEST_BYTES, Calibration, Consensus
from proxy.cache.invalidation import TIMESTAMP, InvalidationTimes
from proxy.cache.keyring import Keyring
from proxy.cache.limit_proofs import FACTS, LIFETIME_S, LimitProofs
from proxy.cache.remote import Remote, Values
from proxy.cache.replicated import Codec, Lookup, ReplicatedRecords
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded
from proxy.model.limits import NOTHING_LEARNED, Correction, LearnedLimits, Proof
from proxy.model.structs import replace

REFRESH_S = 2.0  # what another replica learned arrives here within this time
RATIO_TTL_S = 86_400.0
MAX_MODELS = 2_048  # clients choose the names
# Records of a model and a tenant. Clients choose both, but a record is only made after a refusal that proved something.
# To displace another tenant's record takes a thousand refused requests, and costs that tenant one round trip.
MAX_TENANT_RECORDS = 4_096
PROBE_AFTER_S = 60.0  # the default of PLIMSOLL_PROBE_AFTER
Key = tuple[str, bytes]  # a model and a tenant
# When the records of a model were last invalidated, in seconds since 1970. It is part of the name of calibrations and
# of the consensus, so that no replica finds older ones.
InvalidatedAt = float
Timestamp = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


@dataclass(frozen=True, slots=True)
class ProofView:
    """One valid proof as an operator sees it. `tenant` is a short keyed hash. Times are in seconds since 1970;
    `probe_at` is when a request may test the limit (None: no request does)."""

    model: str
    tenant: str
    kind: str
    proof: Proof
    expires_at: float
    probe_at: float | None


@dataclass(frozen=True, slots=True)
class CalibrationView:
    """One tenant's calibration as an operator sees it. `tenant` is a short keyed hash, `answers` the number of
    responses that the correction is based on."""

    tenant: str
    correction: Correction
    answers: int


class ModelRecords:
    """The records of one upstream's models. Without a backend they stay in this process. A limit is used for
    `probe_after` seconds before one request tests it."""

    def __init__(
        self,
        upstream: str,
        remote: Remote | None,
        keyring: Keyring,
        stats: LookupStats,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        probe_after: float = PROBE_AFTER_S,
        invalidation: InvalidationTimes | None = None,
    ) -> None:
        base = upstream.encode()
        self._remote = remote
        self._keyring = keyring
        self._wall, self._clock = wall, clock
        self._probe_after = probe_after
        self._local_invalidations = invalidation or InvalidationTimes()
        self._unreachable_at = -math.inf
        self._probed: Bounded[Key, float] = Bounded(MAX_TENANT_RECORDS)
        self._changed = asyncio.Event()
        self.left = False  # set where the upstream is not in use any more

        def model_parts(model: str) -> tuple[bytes, ...]:
            return base, _encoded(model)

        def consensus_parts(key: tuple[str, InvalidatedAt]) -> tuple[bytes, ...]:
            return base, _encoded(key[0]), TIMESTAMP.pack(key[1])

        def tenant_parts(key: Key) -> tuple[bytes, ...]:
            return base, _encoded(key[0]), key[1]

        def calibration_parts(key: tuple[str, bytes, InvalidatedAt]) -> tuple[bytes, ...]:
            return base, _encoded(key[0]), key[1], TIMESTAMP.pack(key[2])

        samples = Calibration(), Calibration.merged, calibration.pack, calibration.unpack
        self._calibrations: ReplicatedRecords[tuple[str, bytes, InvalidatedAt], Calibration] = ReplicatedRecords(
            Codec("ratio:3", calibration_parts, *samples, RATIO_TTL_S),
            *(MAX_TENANT_RECORDS, remote, keyring, stats, clock),
        )
        votes = Consensus(), Consensus.merged, calibration.pack_votes, calibration.unpack_votes
        self._consensus: ReplicatedRecords[tuple[str, InvalidatedAt], Consensus] = ReplicatedRecords(
            Codec("ratios:3", consensus_parts, *votes, RATIO_TTL_S), *(MAX_MODELS, remote, keyring, stats, clock)
        )
        proofs = LimitProofs(), LimitProofs.merged, limit_proofs.pack, limit_proofs.unpack
        self._limits: ReplicatedRecords[Key, LimitProofs] = ReplicatedRecords(
            Codec(limit_proofs.KIND, tenant_parts, *proofs, limit_proofs.MAX_LIFETIME_S),
            *(MAX_TENANT_RECORDS, remote, keyring, stats, clock),
        )
        times = 0.0, max, msgspec.msgpack.encode, _unpack_time
        self._invalidations: ReplicatedRecords[str, float] = ReplicatedRecords(
            Codec("forgotten:1", model_parts, *times, limit_proofs.MAX_LIFETIME_S),
            *(MAX_MODELS, remote, keyring, stats, clock),
        )

    async def load(self, keys: Iterable[Key]) -> None:
        """Reads the records of models and tenants that are not in use here from the backend, in one read within a
        request's budget. Records in use are kept up to date by `refresh`."""
        if self._remote is None:
            return
        lookups = [lookup for key in keys for lookup in self._lookups(key)]
        if lookups:
            await self._remote.read([lookup.name for lookup in lookups], lambda values: _deliver(lookups, values))

    def _lookups(self, key: Key) -> Iterator[Lookup]:
        model, since = key[0], self._invalidated_at(key[0])
        of_model = self._consensus.lookup((model, since)), self._invalidations.lookup(model)
        for lookup in (*of_model, self._calibrations.lookup((*key, since)), self._limits.lookup(key)):
            if lookup is not None:
                yield lookup

    def has_corrections(self, model: str) -> bool:
        """Whether the counts of a model are corrected for any tenant."""
        return self._consensus.records.filled and bool(self._consensus.get((model, self._invalidated_at(model))).votes)

    def correction(self, model: str, tenant: bytes, family_ratio: float) -> Correction | None:
        """The correction of a model's counts for a tenant: its own, else the consensus. None if there is neither."""
        since = self._invalidated_at(model)
        known = self._calibrations.get((model, tenant, since))
        if known.ratio is not None:
            return Correction(known.ratio, known.share)
        ratio = self._consensus.get((model, since)).ratio(family_ratio)
        return None if ratio is None else Correction(ratio)

    def record_ratio(self, model: str, tenant: bytes, ratio: float, start: Correction | None = None) -> None:
        """Records the ratio that the usage of one response to a tenant showed; `start` is what holds without any.
        Replicas receive it within `REFRESH_S` seconds."""
        since = self._invalidated_at(model)
        key = model, tenant, since
        before = self._calibrations.get(key)
        after = before.with_sample(ratio, start)
        self._calibrations.put(key, after)
        if after.ratio != before.ratio:
            self._vote(model, tenant, since, after)

    def _vote(self, model: str, tenant: bytes, since: InvalidatedAt, known: Calibration) -> None:
        consensus = self._consensus.get((model, since))
        voted = consensus.with_vote(self._voter(tenant), known)
        if voted is not consensus:
            self._consensus.put((model, since), voted)

    def revote(self) -> None:
        """Makes the votes anew once the secret has changed, by which tenants are named: none may keep two."""
        self._consensus.records.clear()
        for (model, tenant, since), known in self._calibrations.items():
            self._vote(model, tenant, since, known)

    def _voter(self, tenant: bytes) -> bytes:
        sealer = self._keyring.sealer or self._keyring.local
        return sealer.name("voter", tenant)[-DIGEST_BYTES:]

    def has_tenant_records(self, model: str) -> bool:
        """Whether tenants of a model may get different results. If not, the tenant need not be determined."""
        return self._limits.records.filled or (self._consensus.records.filled and self.has_corrections(model))

    def learned(self, model: str, tenant: bytes) -> LearnedLimits:
        """The valid limits that refusals proved for a model and a tenant."""
        record = self._limits.get((model, tenant))
        return record.learned(self._wall(), self._invalidated_at(model)) if record.proofs else NOTHING_LEARNED

    def _invalidated_at(self, model: str) -> float:
        local = self._local_invalidations.get(model)
        return max(local, self._invalidations.get(model)) if len(self._invalidations) else local

    def record_proof(self, model: str, tenant: bytes, learned: LearnedLimits, proof: Proof) -> None:
        """Records what a refusal proved, with the current time. It is sent to replicas at once."""
        record = self._limits.get((model, tenant)).after_refusal(learned, replace(proof, at=self._wall()))
        self._store((model, tenant), record)

    def record_answer(self, model: str, tenant: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Withdraws the limits that an answer disproves (`LimitProofs.after_answer`), on replicas too."""
        record = self._limits.get((model, tenant))
        if record.proofs:
            after = record.after_answer(used, reply, self._wall(), agrees=agrees, probed=probed)
            self._store((model, tenant), after)

    def _store(self, key: Key, record: LimitProofs) -> None:
        if record != self._limits.get(key):
            self._limits.put(key, record)
            self._changed.set()

    def claim_probe(self, model: str, tenant: bytes) -> bool:
        """Whether the calling request may test a tenant's limits, and if so, records that it does. True once in each
        interval, and once as soon as the upstream was unreachable."""
        key, now = (model, tenant), self._clock()
        age = self._untested_for(key, self._wall())
        if age < self._probe_after and age <= now - self._unreachable_at:
            return False
        self._probed.put(key, now)
        return True

    def _untested_for(self, key: Key, now: float) -> float:
        """Seconds since a tenant's limits were last proven or probed. The wall clock may have been set back."""
        ages = [abs(now - proof.at) for _, proof in self._limits.get(key).valid(now, self._invalidated_at(key[0]))]
        probed = self._probed.get(key)
        return min([*ages, *([] if probed is None else [self._clock() - probed])], default=math.inf)

    def mark_unreachable(self) -> None:
        """Makes all limits due for a probe: the upstream was unreachable and may return with others."""
        self._unreachable_at = self._clock()

    def forget(self, model: str) -> None:
        """Invalidates all records of a model, of every tenant: at once in all workers, soon on other replicas."""
        now = self._wall()
        self._local_invalidations.set(model, now)
        self._invalidations.put(model, now)
        self._changed.set()

    def proofs(self, model: str | None = None, tenant: bytes | None = None) -> list[ProofView]:
        """The valid proofs in this process, of all models and tenants or of these."""
        now = self._wall()
        return [
            ProofView(
                *(key[0], self._hashed(key[1]), kind, proof),
                *(proof.at + LIFETIME_S[kind], self._probe_at(key, kind, now)),
            )
            for key, record in self._limits.items()
            if model in (None, key[0]) and tenant in (None, key[1])
            for kind, proof in record.valid(now, self._invalidated_at(key[0]))
        ]

    def _probe_at(self, key: Key, kind: str, now: float) -> float | None:
        if kind in FACTS:
            return None
        age = self._untested_for(key, now)
        return now if age > self._clock() - self._unreachable_at else max(now, now + self._probe_after - age)

    def calibrations(self, model: str, tenant: bytes | None = None) -> list[CalibrationView]:
        """The calibrations of a model in this process, of all tenants or of one."""
        since = self._invalidated_at(model)
        return [
            CalibrationView(self._hashed(key[1]), Correction(known.ratio, known.share), known.count)
            for key, known in self._calibrations.items()
            if key[0] == model and key[2] == since and tenant in (None, key[1]) and known.ratio is not None
        ]

    def consensus(self, model: str, family_ratio: float) -> tuple[int, float | None]:
        """The number of tenants with a vote on a model's ratio, and the ratio for tenants without a calibration."""
        consensus = self._consensus.get((model, self._invalidated_at(model)))
        return len(consensus.votes), consensus.ratio(family_ratio)

    def _hashed(self, tenant: bytes) -> str:
        sealer = self._keyring.sealer or self._keyring.local
        return sealer.name("caller", tenant)[-8:].decode()

    async def refresh_loop(self) -> None:
        """Refreshes every `REFRESH_S` seconds, and at once after a change here, until cancelled or `left`."""
        while not self.left:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), REFRESH_S)
            self._changed.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Reads the records in use from the backend, and sends those that are new here."""
        await self._invalidations.refresh()
        await self._limits.refresh()
        await self._calibrations.refresh()
        await self._consensus.refresh()


def _deliver(lookups: list[Lookup], values: Values) -> None:
    for lookup, value in zip(lookups, values, strict=True):
        lookup.deliver(value)


def _encoded(model: str) -> bytes:
    return model.encode("utf-8", "surrogatepass")


def _unpack_time(payload: bytes) -> float | None:
    try:
        return msgspec.msgpack.decode(payload, type=Timestamp)
    except msgspec.MsgspecError:
        return None
