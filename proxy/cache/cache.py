"""What is remembered of models and counts, in this process and shared. No request fails or waits long because of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from proxy.cache.contents import Contents
from proxy.cache.counts import Counts, Pair, Tally
from proxy.cache.keyring import SECRET, Keyring
from proxy.cache.local_memory import LocalMemory as LocalMemory
from proxy.cache.model_records import PROBE_AFTER, Counted, Key, ModelRecords, Shown
from proxy.cache.redis import backend_of
from proxy.cache.remote import Event, Remote, ignore
from proxy.model.limits import LearnedLimits, Proof

CLOSE_SECONDS = 0.25


class Cache:
    """Counts, lessons and contents: in this process first, and shared where there is a URL.

    `secret` makes names and seals; without one, replicas agree on one and contents stay in process. `probe_after` is
    how many seconds a learned limit is believed before a request tries it. Methods may be called before `start` and
    after `close`: then they know what this process knows.
    """

    def __init__(
        self,
        url: str | None = None,
        secret: bytes | None = None,
        upstream: str = "",
        probe_after: float = PROBE_AFTER,
        event: Event = ignore,
    ) -> None:
        self.probe_after = probe_after
        self.memory = LocalMemory()
        self._tally = Tally()
        self._keyring = Keyring(secret, event)
        self._remote = Remote(backend_of(url), SECRET, event) if url else None
        self.shared = self._remote is not None  # whether there is a backend at all
        self._counts = Counts(self.memory, self._remote, self._keyring, self._tally) if self._remote else None
        self._teaching = ModelRecords(upstream, self._remote, self._keyring, self._tally, probe_after=probe_after)
        self.personal = self._teaching.personal  # bound, not wrapped: every request asks
        self.corrected = self._teaching.corrected
        self.correction_now = self._teaching.correction
        self.contents = Contents(self._remote, self._keyring, self._tally)

    async def start(self) -> None:
        """Connects, and begins to share. It does not wait for the backend."""
        if self._remote is None:
            return
        self._remote.start()
        self._remote.spawn(self._teaching.refresh_on())
        if not self._keyring.may_seal:
            self._remote.spawn(self._keyring.agree_on(self._remote))

    async def close(self) -> None:
        """Tells the backend what it was not told yet, if it answers soon, and ends all connections."""
        if self._remote is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._teaching.refresh(), CLOSE_SECONDS)
        await self._remote.close()

    async def fetch_counts(self, pairs: Sequence[Pair]) -> None:
        """Puts what is shared of these into `memory`: one question, and at most `remote.BUDGET` seconds."""
        if self._counts is not None:
            await self._counts.fetch(pairs)

    def store_counts(self, pairs: Sequence[Pair]) -> None:
        """Shares what `memory` now knows of pairs that `fetch_counts` asked for in vain. Nobody waits for it."""
        if self._counts is not None:
            self._counts.store(pairs)

    async def learn_of(self, keys: Iterable[Key]) -> None:
        """Asks for what other replicas learned of models and callers; at most `remote.BUDGET` seconds, and only now and
        then."""
        await self._teaching.learn_of(keys)

    def learned_now(self, model: str, caller: bytes) -> LearnedLimits:
        """What refusals proved of a model for a caller, by what is known here."""
        return self._teaching.learned(model, caller)

    def prove(self, model: str, caller: bytes, learned: LearnedLimits, proof: Proof) -> None:
        """Keeps what a refusal proved of a model for a caller, on every replica; `proof` tells its circumstances."""
        self._teaching.prove(model, caller, learned, proof)

    def answered(self, model: str, caller: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Takes back, on every replica, what the answer to a prompt of `used` tokens disproves (`Limits.answered`)."""
        self._teaching.answered(model, caller, used, reply, agrees=agrees, probed=probed)

    def probes(self, model: str, caller: bytes) -> bool:
        """Whether the request that asks may try a caller's limits: one in each interval may."""
        return self._teaching.probes(model, caller)

    def mark_unreachable(self) -> None:
        """The upstream could not be reached: it may come back with other limits."""
        self._teaching.mark_unreachable()

    def forget(self, model: str) -> None:
        """Forgets what was learned of a model and of its counts, of every caller, on every worker and replica."""
        self._teaching.forget(model)

    def shown(self, model: str | None = None, caller: bytes | None = None) -> list[Shown]:
        """The limits that were learned and hold now, with their proofs."""
        return self._teaching.shown(model, caller)

    def counted(self, model: str, caller: bytes | None = None) -> list[Counted]:
        """What answers told of a model's counts, of all callers or of one."""
        return self._teaching.counted(model, caller)

    def agreed(self, model: str, row: float) -> tuple[int, float | None]:
        """How many callers have a say in a model's ratio beside the family's `row`, and the ratio they agree on."""
        return self._teaching.agreed(model, row)

    def observe(self, model: str, caller: bytes, ratio: float) -> None:
        """Adds what the usage of one answer to a caller told of a model's ratio."""
        self._teaching.observe(model, caller, ratio)

    def lookups(self) -> dict[tuple[str, str], int]:
        """Lookups so far, by tier and result."""
        return {
            ("local", "hit"): self.memory.hits,
            ("local", "miss"): self.memory.misses,
            ("redis", "hit"): self._tally.hits,
            ("redis", "miss"): self._tally.misses,
        }

    def troubles(self) -> dict[tuple[str], int]:
        """What went wrong so far, by kind: those of `remote.Tally`, and `foreign` values."""
        kinds = ("skipped", "late", "errors", "lost", "oversize")
        tally = self._remote.tally if self._remote else None
        return {("foreign",): self._tally.foreign, **{(kind,): getattr(tally, kind, 0) for kind in kinds}}

    def open_breakers(self) -> dict[tuple[str], int]:
        """1 for what is not asked at present, reading or writing."""
        breakers = {"reading": self._remote.reading, "writing": self._remote.writing} if self._remote else {}
        return {(name,): int(not breaker.closed) for name, breaker in breakers.items()}
