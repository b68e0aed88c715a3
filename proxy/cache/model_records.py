"""What the proxy learned about one upstream's models, in this process and on all replicas.

It combines five kinds of replicated records: `LimitProofs`, `Interval` and `Calibration` of each model and tenant, and
`Consensus` and invalidation times of each model. Every method but `load` and `refresh` returns without I/O. It does not
decide what a refusal proves (`fit.learn`) or what a response's usage says of a count (`tokens.meter`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from proxy.cache import calibration, intervals
from proxy.cache.calibration import DIGEST_BYTES, Calibration, Consensus, Pair
from proxy.cache.conversations import Conversations
from proxy.cache.intervals import Interval
from proxy.cache.invalidation import InvalidationTimes
from proxy.cache.keyring import Keyring
from proxy.cache.limit_proofs import FACTS, LIFETIME_S, LimitProofs
from proxy.cache.record_kinds import (
    InvalidatedAt,
    Key,
    of_calibrations,
    of_consensus,
    of_intervals,
    of_invalidations,
    of_limit_proofs,
)
from proxy.cache.remote import Remote, Values
from proxy.cache.replicated import Lookup, ReplicatedRecords, refresh_often, with_former
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded
from proxy.model.limits import NOTHING_LEARNED, Correction, Corrections, LearnedLimits, Proof, Shape, Suspicion
from proxy.model.structs import replace

# Seconds between two samples of a line that is full: a sample is a tenth of the CPU of a short request (measured: 40 KB
# with 16 clients, 872,000 instructions a request with each sampled, 805,000 with this).
SAMPLE_S = 0.05
MAX_MODELS = 2_048  # clients choose the names
# Records of a model and a tenant. Clients choose both, but a record is only made after a refusal that proved something.
# To displace another tenant's record takes a thousand refused requests, and costs that tenant one round trip.
MAX_TENANT_RECORDS = 4_096
PROBE_AFTER_S = 60.0  # the default of PLIMSOLL_PROBE_AFTER
UNPROVEN_S = 60.0  # a refusal without figures that no answer has proven is remembered for so long
MAX_PROBE_AFTER_S = 3_600.0  # a refused probe doubles the wait for the next one, up to this
SUPPOSED = "supposed"  # the kind under which an operator sees an interval


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
    responses that the correction of prompts of a `shape` is based on."""

    tenant: str
    shape: Shape
    correction: Correction
    answers: int


@dataclass(frozen=True, slots=True)
class _Held:
    """The corrections that follow from a tenant's calibration and the callers' votes: most requests find the same."""

    own: Calibration
    votes: Consensus | None
    start: Correction | None
    found: Corrections | None


class ModelRecords:
    """The records of one upstream's models. Without a backend they stay in this process. A limit is used for
    `probe_after` seconds before one request tests it, and for longer after each test that was refused."""

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
        self._waits: Bounded[Key, float] = Bounded(MAX_TENANT_RECORDS)  # seconds between probes, after refused ones
        self._conversations = Conversations()
        self._unproven: Bounded[Key, tuple[int, float]] = Bounded(MAX_TENANT_RECORDS)  # the size, and when
        self._answered: Bounded[Key, int] = Bounded(MAX_TENANT_RECORDS)  # the largest size that was answered here
        self._corrections: Bounded[Key, _Held] = Bounded(MAX_TENANT_RECORDS)
        self._sampled: Bounded[tuple[str, bytes, Shape], float] = Bounded(MAX_TENANT_RECORDS)  # when the last one was
        self._calibrated: Bounded[str, InvalidatedAt] = Bounded(MAX_MODELS)  # models with a calibration of any tenant
        self._changed = asyncio.Event()
        self.left = False  # set where the upstream is not in use any more

        tenant_records = MAX_TENANT_RECORDS, remote, keyring, stats, clock
        model_records = MAX_MODELS, remote, keyring, stats, clock
        self._calibrations = ReplicatedRecords(of_calibrations(base), *tenant_records)
        self._consensus = ReplicatedRecords(of_consensus(base), *model_records)
        self._limits = ReplicatedRecords(of_limit_proofs(base), *tenant_records)
        self._intervals = ReplicatedRecords(of_intervals(base), *tenant_records)
        self._invalidations = ReplicatedRecords(of_invalidations(base), *model_records)

    async def load(self, keys: Iterable[Key]) -> None:
        """Reads the records of models and tenants that are not in use here from the backend, in one read within a
        request's budget. Records in use are kept up to date by `refresh`."""
        if self._remote is not None and (lookups := with_former(self.lookups(keys))):
            await self._remote.read([lookup.name for lookup in lookups], lambda values: deliver(lookups, values))

    def lookups(self, keys: Iterable[Key]) -> list[Lookup]:
        """The reads that `load` makes."""
        return [] if self._remote is None else [lookup for key in keys for lookup in self._lookups(key)]

    def _lookups(self, key: Key) -> Iterator[Lookup]:
        model, since = key[0], self._invalidated_at(key[0])
        of_model = self._consensus.lookup((model, since)), self._invalidations.lookup(model)
        of_tenant = self._calibrations.lookup((*key, since)), self._limits.lookup(key), self._intervals.lookup(key)
        for lookup in (*of_model, *of_tenant):
            if lookup is not None:
                yield lookup

    def has_corrections(self, model: str) -> bool:
        """Whether the counts of a model may be corrected for any tenant. Other replicas may know of one."""
        if self._remote is not None:
            return self._calibrations.records.filled or self._consensus.records.filled
        return self._calibrated.filled and self._calibrated.get(model) == self._invalidated_at(model)

    def version(self) -> tuple[int, float] | None:
        """Another value after whatever may have changed what is learned of any model. None while refusals may have
        proved a limit: that ends with time."""
        if self._limited:
            return None
        changes = self._calibrations.version + self._consensus.version + self._invalidations.version
        return changes, self._local_invalidations.latest

    def correction(self, model: str, tenant: bytes, start: Correction | None, agrees: bool) -> Corrections | None:
        """The corrections of a model's counts for a tenant: its own, and where callers agree (`agrees`) the consensus.
        `start` are the figures of the model's family (None: its counts are exact). None if there is neither."""
        since = self._invalidated_at(model)
        own = self._calibrations.get((model, tenant, since))
        votes = self._consensus.get((model, since)) if agrees else None
        held = self._corrections.get((model, tenant))
        if held is not None and held.own is own and held.votes is votes and held.start == start:
            return held.found
        found = calibration.corrections(own, votes, start)
        self._corrections.put((model, tenant), _Held(own, votes, start, found))
        return found

    def sampled_just_now(self, model: str, tenant: bytes, shape: Shape) -> bool:
        """Whether a tenant's line is full, and its last sample less than `SAMPLE_S` seconds old: then the next response
        may be left out. So under load the latest pairs are of a second, and not of some milliseconds."""
        last = self._sampled.get((model, tenant, shape)) if self._sampled.filled else None
        return last is not None and self._clock() - last < SAMPLE_S

    def record_sample(
        self,
        model: str,
        tenant: bytes,
        shape: Shape,
        pair: Pair,
        start: Correction | None = None,
        caller: bytes | None = None,
    ) -> None:
        """Records what the usage of one response to a tenant showed of the count of its prompt; `start` is what holds
        without any, and `caller` is whose vote it may become (None: nobody's). Replicas receive it within `REFRESH_S`
        seconds."""
        since = self._invalidated_at(model)
        key = model, tenant, since
        after = self._calibrations.get(key).with_sample(shape, pair, start)
        self._calibrations.put(key, after)
        self._calibrated.put(model, since)
        if after.of(shape).count >= calibration.MAX_SAMPLES:
            self._sampled.put((model, tenant, shape), self._clock())
        if caller is not None and after.of(shape).count >= calibration.MIN_SAMPLES:
            consensus = self._consensus.get((model, since))
            voted = consensus.with_vote(self._voter(caller), shape, after.of(shape))
            if voted is not consensus:
                self._consensus.put((model, since), voted)

    def drop_votes(self) -> None:
        """Drops all votes once the secret has changed, by which callers are named: none may keep two. Further responses
        make them anew."""
        self._consensus.clear()

    def _voter(self, caller: bytes) -> bytes:
        sealer = self._keyring.sealer or self._keyring.local
        return sealer.name("voter", caller)[-DIGEST_BYTES:]

    def has_tenant_records(self, model: str) -> bool:
        """Whether tenants of a model may get different results. If not, the tenant need not be determined."""
        return self._limited or self.has_corrections(model)

    @property
    def has_proofs(self) -> bool:
        """Whether a refusal may have proved a limit of any model and tenant."""
        return self._limits.records.filled

    @property
    def _limited(self) -> bool:
        """Whether there may be a limit of any model and tenant."""
        return self._limits.records.filled or self._intervals.records.filled or self._conversations.filled

    def learned(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> LearnedLimits:
        """The valid limits that refusals proved for a model and a tenant. Where none named the window: that of the
        interval of the conversation with these prefixes, else of the tenant's."""
        if not self._limited:  # as mostly, and the next lines cost microseconds
            return NOTHING_LEARNED
        record, now = self._limits.get((model, tenant)), self._wall()
        learned = record.learned(now, self._invalidated_at(model)) if record.proofs else NOTHING_LEARNED
        found = None if learned.window is not None else self._interval(model, tenant, digests, now)
        return learned if found is None else found.bound(learned)

    def has_conversations(self, model: str, tenant: bytes) -> bool:
        """Whether a conversation of a tenant may have an interval of its own."""
        return self._conversations.has(model, tenant)

    def _interval(self, model: str, tenant: bytes, digests: Sequence[int], now: float) -> Interval | None:
        since = self._invalidated_at(model)
        found = self._conversations.find(model, tenant, digests)
        if found is None or not found.holds(now, since):
            found = self._intervals.get((model, tenant))
        return found if found.holds(now, since) else None

    def answered(self, model: str, tenant: bytes) -> int:
        """The largest size that a model answered to a tenant, as far as it is known; 0 if it is not."""
        key = model, tenant
        return max(self._answered.get(key) or 0, self._intervals.get(key).answered)

    def record_unproven(self, model: str, tenant: bytes, size: int) -> None:
        """Records that a request of a size was refused without figures, whatever the reason was. It bounds nothing."""
        before = self.unproven(model, tenant)
        self._unproven.put((model, tenant), (min(size, before or size), self._clock()))

    def unproven(self, model: str, tenant: bytes) -> int:
        """The smallest size that was refused without figures since the last answer, a minute ago at most; else 0."""
        size, at = self._unproven.get((model, tenant)) or (0, -math.inf)
        return size if self._clock() - at < UNPROVEN_S else 0

    def record_size(self, model: str, tenant: bytes, digests: Sequence[int], size: int) -> None:
        """Records that a request with these prefixes was answered; ends the intervals that its size disproves."""
        key = model, tenant
        if size > (self._answered.get(key) or 0):
            self._answered.put(key, size)
        if self._unproven.filled and size >= self.unproven(model, tenant):
            self._unproven.take(key)
        if not self._limited:
            return
        own, now = self._conversations.find(model, tenant, digests), self._wall()
        if own is not None and own.refused:
            self._conversations.put(model, tenant, digests, own.after_answer(size, now))
        before = self._intervals.get(key)
        if before.refused and (after := before.after_answer(size, now)) is not before:
            self._put_interval(key, after)
            if not after.refused:
                self._waits.take(key)

    def record_refusal(
        self, model: str, tenant: bytes, digests: Sequence[int], found: Suspicion, answered: int
    ) -> None:
        """Records a refusal without figures that an answer of the size `answered` proved: for the conversation with
        these prefixes and, if it is `shared`, for the tenant. It is sent to replicas at once."""
        now, key = self._now(model), (model, tenant)
        if (smaller := self.unproven(model, tenant)) > answered:
            found = replace(found, size=min(found.size, smaller))
        self._unproven.take(key)
        own = self._conversations.find(model, tenant, digests) or Interval()
        self._conversations.put(model, tenant, digests, own.after_refusal(found, answered, now))
        if not found.shared:
            return
        stored = self._intervals.get(key)
        after = replace(stored, answered=self.answered(model, tenant)).after_refusal(found, answered, now)
        self._answered.put(key, after.answered)
        if after.refused or stored.answered:
            self._put_interval(key, after)

    def _put_interval(self, key: Key, interval: Interval) -> None:
        self._intervals.put(key, interval)
        self._changed.set()

    def _invalidated_at(self, model: str) -> float:
        local = self._local_invalidations.get(model)
        return max(local, self._invalidations.get(model)) if self._invalidations.records.filled else local

    def _now(self, model: str) -> float:
        """The time of a new record: later than the last invalidation, since which the clock may have been set back."""
        return max(self._wall(), self._invalidated_at(model) + 0.001)

    def record_proof(self, model: str, tenant: bytes, learned: LearnedLimits, proof: Proof) -> None:
        """Records what a refusal proved, with the current time. It is sent to replicas at once."""
        record = self._limits.get((model, tenant)).after_refusal(learned, replace(proof, at=self._now(model)))
        self._store((model, tenant), record)

    def record_answer(self, model: str, tenant: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Withdraws the limits that an answer disproves (`LimitProofs.after_answer`), on replicas too."""
        record = self._limits.get((model, tenant))
        if record.proofs:
            after = record.after_answer(used, reply, self._wall(), agrees=agrees, probed=probed)
            if after is not record:
                self._waits.take((model, tenant))
            self._store((model, tenant), after)

    def _store(self, key: Key, record: LimitProofs) -> None:
        if record != self._limits.get(key):
            self._limits.put(key, record)
            self._changed.set()

    def claim_probe(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> bool:
        """Whether the calling request may test a tenant's limits, and if so, records that it does. True once in each
        interval, and once as soon as the upstream was unreachable."""
        key, now = (model, tenant), self._clock()
        age = self._untested_for(key, self._wall(), digests)
        if age < self._wait(key) and age <= now - self._unreachable_at:
            return False
        self._probed.put(key, now)
        return True

    def probe_refused(self, model: str, tenant: bytes) -> None:
        """A request that tested a tenant's limits was refused: the next one waits twice as long."""
        key = model, tenant
        self._waits.put(key, max(self._probe_after, min(2 * self._wait(key), MAX_PROBE_AFTER_S)))

    def _wait(self, key: Key) -> float:
        """Seconds between two probes of a tenant's limits."""
        return self._waits.get(key) or self._probe_after

    def _untested_for(self, key: Key, now: float, digests: Sequence[int] = ()) -> float:
        """Seconds since a tenant's limits were last proven or probed. The wall clock may have been set back."""
        ages = [abs(now - proof.at) for _, proof in self._limits.get(key).valid(now, self._invalidated_at(key[0]))]
        if (interval := self._interval(*key, digests, now)) is not None:
            ages.append(abs(now - interval.at))
        probed = self._probed.get(key)
        return min([*ages, *([] if probed is None else [self._clock() - probed])], default=math.inf)

    def mark_unreachable(self) -> None:
        """Makes all limits due for a probe: the upstream was unreachable and may return with others."""
        self._unreachable_at = self._clock()

    def forget(self, model: str) -> None:
        """Invalidates all records of a model, of every tenant: at once in all workers, soon on other replicas. The
        clock may have been set back since they were made."""
        proven = (p.at for (name, _), record in self._limits.items() if name == model for p in record.proofs.values())
        supposed = (found.at for (name, _), found in self._intervals.items() if name == model)
        now = max((self._now(model), *proven, *supposed))
        self._local_invalidations.set(model, now)
        self._invalidations.put(model, now)
        self._changed.set()

    def proofs(self, model: str | None = None, tenant: bytes | None = None) -> list[ProofView]:
        """The valid proofs in this process, of all models and tenants or of these."""
        now = self._wall()
        proven = [
            ProofView(
                *(key[0], self._hashed(key[1]), kind, proof),
                *(proof.at + LIFETIME_S[kind], self._probe_at(key, kind, now)),
            )
            for key, record in self._limits.items()
            if model in (None, key[0]) and tenant in (None, key[1])
            for kind, proof in record.valid(now, self._invalidated_at(key[0]))
        ]
        return proven + [
            ProofView(
                *(key[0], self._hashed(key[1]), SUPPOSED),
                Proof(found.window, found.at, found.rule, found.refused),
                *(found.at + intervals.LIFETIME_S, self._probe_at(key, SUPPOSED, now)),
            )
            for key, found in self._intervals.items()
            if model in (None, key[0]) and tenant in (None, key[1]) and found.holds(now, self._invalidated_at(key[0]))
        ]

    def _probe_at(self, key: Key, kind: str, now: float) -> float | None:
        if kind in FACTS:
            return None
        age = self._untested_for(key, now)
        return now if age > self._clock() - self._unreachable_at else max(now, now + self._wait(key) - age)

    def calibrations(self, model: str, tenant: bytes | None = None) -> list[CalibrationView]:
        """The calibrations of a model in this process, of all tenants or of one."""
        since = self._invalidated_at(model)
        return [
            CalibrationView(self._hashed(key[1]), shape, found, known.of(shape).count)
            for key, known in self._calibrations.items()
            for shape in Shape
            if key[0] == model and key[2] == since and tenant in (None, key[1])
            if (found := known.of(shape).correction) is not None
        ]

    def consensus(self, model: str, shape: Shape, start: Correction | None) -> tuple[int, Correction | None]:
        """The number of callers with a vote on a model's counts of prompts of a shape, and the correction for tenants
        without a calibration."""
        consensus = self._consensus.get((model, self._invalidated_at(model)))
        return len(consensus.of(shape)), consensus.correction(shape, start)

    def _hashed(self, tenant: bytes) -> str:
        sealer = self._keyring.sealer or self._keyring.local
        return sealer.name("caller", tenant)[-8:].decode()

    async def refresh_loop(self) -> None:
        """Refreshes often, until cancelled or `left`."""
        await refresh_often(self.refresh, self._changed, lambda: self.left)

    async def refresh(self) -> None:
        """Reads the records in use from the backend, and sends those that are new here."""
        await self._invalidations.refresh()
        await self._limits.refresh()
        await self._intervals.refresh()
        await self._calibrations.refresh()
        await self._consensus.refresh()


def deliver(lookups: Sequence[Lookup], values: Values) -> None:
    """Hands each value that was read to the lookup that wanted it."""
    for lookup, value in zip(lookups, values, strict=True):
        lookup.deliver(value)
