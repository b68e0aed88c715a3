"""What upstreams taught of their models, kept here and shared: counts for all callers, limits for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from proxy.cache import calibration, limits
from proxy.cache.calibration import DIGEST, Agreement, Calibration
from proxy.cache.counts import DAY, Tally
from proxy.cache.forgotten import TIME, Forgotten
from proxy.cache.keyring import Keyring
from proxy.cache.limits import LIFE, Limits
from proxy.cache.remote import Remote, Values
from proxy.cache.replicated import Codec, Question, Replicated
from proxy.model.bounded import Bounded
from proxy.model.limits import NOTHING_LEARNED, Correction, LearnedLimits, Proof
from proxy.model.structs import replace

REFRESH = 2.0  # seconds after which it is seen here what another replica learned
MOST_MODELS = 2_048  # clients choose the names
# Callers' records of models. Clients choose both; but a record is made only of a refusal that proved something, so that
# to push another caller's out takes a thousand requests that an upstream refuses, and costs that caller one round trip.
MOST_LIMITS = 4_096
PROBE_AFTER = 60.0  # seconds: the default of PLIMSOLL_PROBE_AFTER
Key = tuple[str, bytes]  # a model and a caller
# Until when what was learned of a model is forgotten, in seconds since 1970: what is told of counts bears it in its
# name, so that nobody finds what is older.
Since = float
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


@dataclass(frozen=True, slots=True)
class Shown:
    """One proof as operators see it: whose (a short keyed hash), of which model, what it limits, its end in seconds
    since 1970, and from when on a request may try it (None: none does)."""

    model: str
    caller: str
    kind: str
    proof: Proof
    until: float
    due: float | None


@dataclass(frozen=True, slots=True)
class Counted:
    """How answers to one caller (a short keyed hash) correct a model's counts, and how many of them there were."""

    caller: str
    correction: Correction
    answers: int


class ModelRecords:
    """What is known of one upstream's models; without a backend it stays in this process. `probe_after` is how many
    seconds a limit is believed before one request tries it."""

    def __init__(
        self,
        upstream: str,
        remote: Remote | None,
        keyring: Keyring,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        probe_after: float = PROBE_AFTER,
        forgotten: Forgotten | None = None,
    ) -> None:
        place = upstream.encode()
        self._remote = remote
        self._keyring = keyring
        self._wall, self._clock = wall, clock
        self._probe_after = probe_after
        self._forgotten = forgotten or Forgotten()
        self._unreachable = -math.inf
        self._probed: Bounded[Key, float] = Bounded(MOST_LIMITS)
        self._changed = asyncio.Event()

        def of_model(model: str) -> tuple[bytes, ...]:
            return place, _named(model)

        def of_models_votes(key: tuple[str, Since]) -> tuple[bytes, ...]:
            return place, _named(key[0]), TIME.pack(key[1])

        def of_caller(key: Key) -> tuple[bytes, ...]:
            return place, _named(key[0]), key[1]

        def of_callers_counts(key: tuple[str, bytes, Since]) -> tuple[bytes, ...]:
            return place, _named(key[0]), key[1], TIME.pack(key[2])

        empty, votes = Calibration(), Agreement()
        counts = empty, Calibration.joined, calibration.pack, calibration.unpack
        self._calibrations: Replicated[tuple[str, bytes, Since], Calibration] = Replicated(
            Codec("ratio:3", of_callers_counts, *counts, DAY), *(MOST_LIMITS, remote, keyring, tally, clock)
        )
        agreed = votes, Agreement.joined, calibration.pack_votes, calibration.unpack_votes
        self._agreements: Replicated[tuple[str, Since], Agreement] = Replicated(
            Codec("ratios:3", of_models_votes, *agreed, DAY), *(MOST_MODELS, remote, keyring, tally, clock)
        )
        self._limits: Replicated[Key, Limits] = Replicated(
            Codec(limits.KIND, of_caller, Limits(), Limits.joined, limits.pack, limits.unpack, limits.LONGEST),
            *(MOST_LIMITS, remote, keyring, tally, clock),
        )
        self._forgets: Replicated[str, float] = Replicated(
            Codec("forgotten:1", of_model, 0.0, max, msgspec.msgpack.encode, _time, limits.LONGEST),
            *(MOST_MODELS, remote, keyring, tally, clock),
        )

    async def learn_of(self, keys: Iterable[Key]) -> None:
        """Asks the backend for models that were not in use here lately; those in use are refreshed beside requests."""
        if self._remote is None:
            return
        asked = [question for key in keys for question in self._questions(key)]
        if asked:
            await self._remote.ask([question.name for question in asked], lambda values: _take(asked, values))

    def _questions(self, key: Key) -> Iterator[Question]:
        model, since = key[0], self._since(key[0])
        of_model = self._agreements.question((model, since)), self._forgets.question(model)
        for question in (*of_model, self._calibrations.question((*key, since)), self._limits.question(key)):
            if question is not None:
                yield question

    def corrected(self, model: str) -> bool:
        """Whether answers to anybody corrected how a model is counted."""
        return self._agreements.records.filled and bool(self._agreements.get((model, self._since(model))).votes)

    def correction(self, model: str, caller: bytes, row: float) -> Correction | None:
        """How answers correct the counts of a model for a caller: by its own, else by what the callers agree on beside
        the family's `row`."""
        since = self._since(model)
        known = self._calibrations.get((model, caller, since))
        if known.ratio is not None:
            return Correction(known.ratio, known.share)
        agreed = self._agreements.get((model, since)).ratio(row)
        return None if agreed is None else Correction(agreed)

    def observe(self, model: str, caller: bytes, ratio: float) -> None:
        """Adds what the usage of an answer to a caller told of a model's ratio; replicas are told within `REFRESH`
        seconds."""
        since = self._since(model)
        key = model, caller, since
        before = self._calibrations.get(key)
        known = before.observed(ratio)
        self._calibrations.put(key, known)
        if known.ratio != before.ratio:
            agreement = self._agreements.get((model, since))
            voted = agreement.voted(self._voter(caller), known)
            if voted is not agreement:
                self._agreements.put((model, since), voted)

    def _voter(self, caller: bytes) -> bytes:
        seals = self._keyring.seals or self._keyring.local
        return seals.name("voter", caller)[-DIGEST:]

    def personal(self, model: str) -> bool:
        """Whether callers of a model may be told apart: else nobody need know who calls."""
        return self._limits.records.filled or (self._agreements.records.filled and self.corrected(model))

    def learned(self, model: str, caller: bytes) -> LearnedLimits:
        """What refusals proved of a model for a caller, as far as it holds now."""
        record = self._limits.get((model, caller))
        return record.learned(self._wall(), self._since(model)) if record.proofs else NOTHING_LEARNED

    def _since(self, model: str) -> float:
        here = self._forgotten.at(model)
        return max(here, self._forgets.get(model)) if len(self._forgets) else here

    def prove(self, model: str, caller: bytes, learned: LearnedLimits, proof: Proof) -> None:
        """Keeps what a refusal proved, now; replicas are told at once."""
        self._keep((model, caller), self._limits.get((model, caller)).proved(learned, replace(proof, at=self._wall())))

    def answered(self, model: str, caller: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Takes back what an answer to so many tokens disproves; replicas are told at once."""
        record = self._limits.get((model, caller))
        if record.proofs:
            self._keep((model, caller), record.answered(used, reply, self._wall(), agrees=agrees, probed=probed))

    def _keep(self, key: Key, record: Limits) -> None:
        if record != self._limits.get(key):
            self._limits.put(key, record)
            self._changed.set()

    def probes(self, model: str, caller: bytes) -> bool:
        """Whether the request that asks may try a caller's limits: one in each interval, and one at once after the
        upstream could not be reached."""
        key, here = (model, caller), self._clock()
        age = self._untried(key, self._wall())
        if age < self._probe_after and age <= here - self._unreachable:
            return False
        self._probed.put(key, here)
        return True

    def _untried(self, key: Key, now: float) -> float:
        """For how many seconds a caller's limits were neither proven nor tried. The time of day may be set back."""
        ages = [abs(now - proof.at) for _, proof in self._limits.get(key).holding(now, self._since(key[0]))]
        tried = self._probed.get(key)
        return min([*ages, *([] if tried is None else [self._clock() - tried])], default=math.inf)

    def mark_unreachable(self) -> None:
        """The upstream could not be reached: it may come back with other limits."""
        self._unreachable = self._clock()

    def forget(self, model: str) -> None:
        """Forgets what was learned of a model, of every caller; other workers know at once, replicas soon."""
        now = self._wall()
        self._forgotten.forget(model, now)
        self._forgets.put(model, now)
        self._changed.set()

    def shown(self, model: str | None = None, caller: bytes | None = None) -> list[Shown]:
        """The limits that hold now, of all models and callers or of these."""
        now = self._wall()
        return [
            Shown(key[0], self._hashed(key[1]), kind, proof, proof.at + LIFE[kind], self._due(key, kind, now))
            for key, record in self._limits.items()
            if model in (None, key[0]) and caller in (None, key[1])
            for kind, proof in record.holding(now, self._since(key[0]))
        ]

    def _due(self, key: Key, kind: str, now: float) -> float | None:
        if kind == "alternates":
            return None
        age = self._untried(key, now)
        return now if age > self._clock() - self._unreachable else max(now, now + self._probe_after - age)

    def counted(self, model: str, caller: bytes | None = None) -> list[Counted]:
        """What answers told of a model's counts, of all callers or of one."""
        since = self._since(model)
        return [
            Counted(self._hashed(key[1]), Correction(known.ratio, known.share), known.count)
            for key, known in self._calibrations.items()
            if key[0] == model and key[2] == since and caller in (None, key[1]) and known.ratio is not None
        ]

    def agreed(self, model: str, row: float) -> tuple[int, float | None]:
        """How many callers have a say in a model's ratio, and what it is for those of whom nothing is known."""
        agreement = self._agreements.get((model, self._since(model)))
        return len(agreement.votes), agreement.ratio(row)

    def _hashed(self, caller: bytes) -> str:
        seals = self._keyring.seals or self._keyring.local
        return seals.name("caller", caller)[-8:].decode()

    async def refresh_on(self) -> None:
        """Reads and tells for as long as we run."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), REFRESH)
            self._changed.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Reads what is in use, and tells what is new here."""
        await self._forgets.refresh()
        await self._limits.refresh()
        await self._calibrations.refresh()
        await self._agreements.refresh()


def _take(asked: list[Question], values: Values) -> None:
    for question, value in zip(asked, values, strict=True):
        question.take(value)


def _named(model: str) -> bytes:
    return model.encode("utf-8", "surrogatepass")


def _time(payload: bytes) -> float | None:
    try:
        return msgspec.msgpack.decode(payload, type=Time)
    except msgspec.MsgspecError:
        return None
