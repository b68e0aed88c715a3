"""The cache as the rest of the proxy sees it: token counts, model records and content, local first and then shared.

It only composes the other modules of this package. No request fails, or waits longer than `remote.READ_BUDGET_S`,
because of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterable, Sequence
from functools import partial

from proxy.cache.accepted_callers import AcceptedCallers
from proxy.cache.accounts import Accounts
from proxy.cache.agreed_labels import AgreedLabels
from proxy.cache.calibration import Pair
from proxy.cache.contents import Contents
from proxy.cache.counts import CountKey, LocalCounts, SharedCounts
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.model_records import PROBE_AFTER_S, CalibrationView, ModelRecords, ProofView, deliver
from proxy.cache.record_kinds import Key
from proxy.cache.redis import backend_from_url
from proxy.cache.remote import Event, Remote, ignore
from proxy.cache.replicated import Lookup, with_former
from proxy.cache.spending import SharedSpending
from proxy.cache.stats import LookupStats
from proxy.cache.stored_prompts import COUNTED, COUNTED_TTL_S, StoredPrompts
from proxy.model.limits import Correction, LearnedLimits, Proof, Shape, Suspicion

CLOSE_TIMEOUT_S = 0.25


class Cache:
    """Counts, model records and content of one upstream, in this process and, if there is a `url`, on all replicas.

    `secret` names, signs and encrypts shared values; without it replicas agree on a random one and content stays in
    process. A learned limit is used for `probe_after` seconds before one request tests it. All methods may be called
    before `start` and after `close`; they then use what this process has. `event` receives messages for the log. Raises
    ConfigError if `url` is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        secret: bytes | None = None,
        upstream: str = "",
        probe_after: float = PROBE_AFTER_S,
        event: Event = ignore,
    ) -> None:
        self.probe_after = probe_after
        self.memory = LocalCounts()
        self._stats = LookupStats()
        self._keyring = Keyring(secret, event)
        self._remote = Remote(backend_from_url(url), SECRET_NAME, event) if url else None
        self.shared = self._remote is not None  # whether there is a backend
        self._counts = SharedCounts(self.memory, self._remote, self._keyring, self._stats) if self._remote else None
        self._upstreams: list[ModelRecords] = []
        self.use_upstream(upstream)
        self.accepted = AcceptedCallers(upstream, self._remote, self._keyring, self._stats)
        spending = None if self._remote is None else SharedSpending(upstream, self._remote, self._keyring)
        self.spending = spending  # the operator's budget for extra calls, as all replicas use it
        self.labels = None if self._remote is None else AgreedLabels(upstream, self._remote, self._keyring)
        self.accounts = Accounts(self._remote, self._keyring)  # of the budgets of callers
        self.contents = Contents(self._remote, self._keyring, self._stats)
        self.stored = StoredPrompts(self._remote, self._keyring, self._stats)
        self.counted = StoredPrompts(self._remote, self._keyring, self._stats, COUNTED, COUNTED_TTL_S)

    def use_upstream(self, upstream: str) -> None:
        """Begins the records of an upstream, and uses them from now on."""
        self._records = ModelRecords(upstream, self._remote, self._keyring, self._stats, probe_after=self.probe_after)
        self._upstreams.append(self._records)
        # Bound methods instead of wrappers: every request calls them.
        self.has_tenant_records = self._records.has_tenant_records
        self.has_corrections = self._records.has_corrections
        self.correction = self._records.correction
        self.records_version = self._records.version
        if self._remote is not None and self._remote.started:
            self._remote.spawn(self._records.refresh_loop())

    def beside(self, upstream: str) -> Cache:
        """The cache of another upstream: its model records are its own, all else is shared. `start` and `close` of the
        first one serve both."""
        other = copy.copy(self)
        other.use_upstream(upstream)
        return other

    def leave(self) -> None:
        """Ends the records of this upstream: they are neither refreshed nor shared any more."""
        self._records.left = True
        self._upstreams[:] = [records for records in self._upstreams if records is not self._records]

    def use_secret(self, secret: bytes) -> None:
        """Uses another secret of the operator from now on."""
        self._keyring.use(secret)
        for records in self._upstreams:
            records.drop_votes()

    async def start(self) -> None:
        """Starts the background tasks, which connect and share. Does not wait for the backend."""
        if self._remote is None:
            return
        self._remote.start()
        self._remote.spawn(self.accepted.refresh_loop())
        self._remote.spawn(self.accounts.write_loop())
        if self.spending is not None:
            self._remote.spawn(self.spending.refresh_loop())
        if self.labels is not None:
            self._remote.spawn(self.labels.refresh_loop())
        for records in self._upstreams:
            self._remote.spawn(records.refresh_loop())
        if not self._keyring.can_seal:
            self._remote.spawn(self._keyring.agree_loop(self._remote))

    async def close(self) -> None:
        """Sends what the backend does not have yet, if it responds within `CLOSE_TIMEOUT_S`, and disconnects."""
        if self._remote is None:
            return
        with contextlib.suppress(TimeoutError):
            shared = () if self.spending is None else (self.spending.refresh(),)
            refreshed = (
                self.accounts.write(),
                self.accepted.refresh(),
                *shared,
                *(records.refresh() for records in self._upstreams),
            )
            await asyncio.wait_for(asyncio.gather(*refreshed), CLOSE_TIMEOUT_S)
        await self._remote.close()

    async def fetch_counts(self, keys: Sequence[CountKey], tenant: bytes = b"") -> None:
        """Copies shared counts to `memory`, for a request of a tenant: one read, at most `remote.READ_BUDGET_S`
        seconds."""
        if self._counts is not None:
            await self._counts.fetch(keys, tenant)

    def store_counts(self, keys: Sequence[CountKey]) -> None:
        """Shares the counts that `fetch_counts` did not find and that `memory` has now. Does not wait."""
        if self._counts is not None:
            self._counts.store(keys)

    async def load_records(self, keys: Iterable[Key]) -> None:
        """Reads what other replicas learned about models and tenants: at most `remote.READ_BUDGET_S` seconds, and
        nothing for records in use here."""
        await self._records.load(keys)

    def record_reads(self, keys: Iterable[Key]) -> list[Lookup]:
        """The reads of what other replicas learned about models and tenants; none for records in use here."""
        return self._records.lookups(keys)

    async def read(self, lookups: Sequence[Lookup]) -> None:
        """Reads all of these at once: at most `remote.READ_BUDGET_S` seconds."""
        if lookups and self._remote is not None:
            every = with_former(lookups)
            await self._remote.read([lookup.name for lookup in every], partial(deliver, every))

    def learned_limits(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> LearnedLimits:
        """The valid limits that refusals proved for a model, a tenant and a conversation with these prefixes."""
        return self._records.learned(model, tenant, digests)

    @property
    def has_proofs(self) -> bool:
        """Whether any refusal may have proved a limit, of whichever model and tenant: most never see one."""
        return self._records.has_proofs

    def has_conversations(self, model: str, tenant: bytes) -> bool:
        """Whether a conversation of a tenant may have limits of its own."""
        return self._records.has_conversations(model, tenant)

    def answered(self, model: str, tenant: bytes) -> int:
        """The largest size that a model answered to a tenant, as far as it is known; 0 if it is not."""
        return self._records.answered(model, tenant)

    def record_unproven(self, model: str, tenant: bytes, size: int) -> None:
        """Records that a request of a size was refused without figures, whatever the reason was."""
        self._records.record_unproven(model, tenant, size)

    def unproven(self, model: str, tenant: bytes) -> int:
        """The smallest size that was refused without figures since the last answer, a minute ago at most; else 0."""
        return self._records.unproven(model, tenant)

    def record_size(self, model: str, tenant: bytes, digests: Sequence[int], size: int) -> None:
        """Records that a request of a size was answered; ends the intervals that this disproves, on every replica."""
        self._records.record_size(model, tenant, digests, size)

    def record_refusal(
        self, model: str, tenant: bytes, digests: Sequence[int], found: Suspicion, answered: int
    ) -> None:
        """Records a refusal without figures that an answer proved, on every replica."""
        self._records.record_refusal(model, tenant, digests, found, answered)

    def record_proof(self, model: str, tenant: bytes, learned: LearnedLimits, proof: Proof) -> None:
        """Records what a refusal proved for a model and a tenant, on every replica; `proof` has its circumstances."""
        self._records.record_proof(model, tenant, learned, proof)

    def record_answer(self, model: str, tenant: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Withdraws, on every replica, the limits that an answer to a prompt of `used` tokens disproves
        (`LimitProofs.after_answer`)."""
        self._records.record_answer(model, tenant, used, reply, agrees=agrees, probed=probed)

    def claim_probe(self, model: str, tenant: bytes, digests: Sequence[int] = ()) -> bool:
        """Whether the calling request may test a tenant's limits: one request in each interval."""
        return self._records.claim_probe(model, tenant, digests)

    def probe_refused(self, model: str, tenant: bytes) -> None:
        """A request that tested a tenant's limits was refused: the next one waits twice as long."""
        self._records.probe_refused(model, tenant)

    def mark_unreachable(self) -> None:
        """Makes all limits due for a probe: the upstream was unreachable and may return with others."""
        self._records.mark_unreachable()

    def forget(self, model: str) -> None:
        """Invalidates what was learned about a model and its counts, for every tenant, worker and replica."""
        for records in self._upstreams:
            records.forget(model)

    def proofs(self, model: str | None = None, tenant: bytes | None = None) -> list[ProofView]:
        """The valid proofs, of all models and tenants or of these."""
        return self._records.proofs(model, tenant)

    def calibrations(self, model: str, tenant: bytes | None = None) -> list[CalibrationView]:
        """The corrections of a model's counts, of all tenants or of one."""
        return self._records.calibrations(model, tenant)

    def consensus(self, model: str, shape: Shape, start: Correction | None) -> tuple[int, Correction | None]:
        """The number of callers with a vote on a model's counts of prompts of a shape, and the correction for tenants
        without a calibration; `start` is what holds without any."""
        return self._records.consensus(model, shape, start)

    def sampled_just_now(self, model: str, tenant: bytes, shape: Shape) -> bool:
        """Whether the next response to a tenant may be left out of what corrects the counts of a model."""
        return self._records.sampled_just_now(model, tenant, shape)

    def record_sample(
        self,
        model: str,
        tenant: bytes,
        shape: Shape,
        pair: Pair,
        start: Correction | None = None,
        caller: bytes | None = None,
    ) -> None:
        """Records the tokens of the encoding and of the upstream's count that the usage of one response to a tenant
        showed; `start` is what holds without any response, `caller` whose vote it may become."""
        self._records.record_sample(model, tenant, shape, pair, start, caller)

    def lookups(self) -> dict[tuple[str, str], int]:
        """Lookups since the start, by tier and result."""
        return {
            ("local", "hit"): self.memory.hits,
            ("local", "miss"): self.memory.misses,
            ("redis", "hit"): self._stats.hits,
            ("redis", "miss"): self._stats.misses,
        }

    def failures(self) -> dict[tuple[str], int]:
        """Failures since the start, by kind: those of `RemoteStats`, and `foreign` values."""
        kinds = ("skipped", "late", "errors", "lost", "oversize")
        stats = self._remote.stats if self._remote else None
        return {("foreign",): self._stats.foreign, **{(kind,): getattr(stats, kind, 0) for kind in kinds}}

    def open_breakers(self) -> dict[tuple[str], int]:
        """1 for each use of the backend whose breaker is open, else 0; empty without a backend."""
        remote = self._remote
        if remote is None:
            return {}
        breakers = {"reading": remote.read_breaker, "writing": remote.write_breaker, "budgets": remote.account_breaker}
        return {(name,): int(not breaker.closed) for name, breaker in breakers.items()}
