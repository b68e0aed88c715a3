"""What upstreams taught of their models, kept here and shared: counts for all callers, limits for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from proxy.bounded import Bounded
from proxy.serve.shared import calibration, limits
from proxy.serve.shared.calibration import DIGEST, Agreement, Calibration
from proxy.serve.shared.counts import DAY, Tally
from proxy.serve.shared.forgotten import Forgotten
from proxy.serve.shared.keyring import Keyring
from proxy.serve.shared.limits import LIFE, Limits
from proxy.serve.shared.remote import Remote, Values
from proxy.serve.shared.replicated import Codec, Question, Replicated
from proxy.types import NOTHING_LEARNED, Correction, Learned, Proof, replace

REFRESH = 2.0  # seconds after which it is seen here what another replica learned
MOST_MODELS = 2_048  # clients choose the names
# Callers' records of models. Clients choose both; but a record is made only of a refusal that proved something, so that
# to push another caller's out takes a thousand requests that an upstream refuses, and costs that caller one round trip.
MOST_LIMITS = 4_096
PROBE_AFTER = 60.0  # seconds: the default of PLIMSOLL_PROBE_AFTER
Key = tuple[str, bytes]  # a model and a caller
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


@dataclass(frozen=True, slots=True)
class Shown:
    """One proof as operators see it: whose (a short keyed hash), of which model, what it limits, and its end in seconds
    since 1970."""

    model: str
    caller: str
    kind: str
    proof: Proof
    until: float


class Teaching:
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
        self._wall = wall
        self._probe_after = probe_after
        self._forgotten = forgotten or Forgotten()
        self._unreachable = 0.0
        self._probed: Bounded[Key, float] = Bounded(MOST_LIMITS)
        self._changed = asyncio.Event()

        def of_model(model: str) -> tuple[bytes, ...]:
            return place, _named(model)

        def of_caller(key: Key) -> tuple[bytes, ...]:
            return place, _named(key[0]), key[1]

        empty, votes = Calibration(), Agreement()
        self._calibrations: Replicated[Key, Calibration] = Replicated(
            Codec("ratio:2", of_caller, empty, Calibration.joined, calibration.pack, calibration.unpack, DAY),
            *(MOST_LIMITS, remote, keyring, tally, clock),
        )
        self._agreements: Replicated[str, Agreement] = Replicated(
            Codec("ratios:2", of_model, votes, Agreement.joined, calibration.pack_votes, calibration.unpack_votes, DAY),
            *(MOST_MODELS, remote, keyring, tally, clock),
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
        model = key[0]
        of_model = self._agreements.question(model), self._forgets.question(model)
        for question in (*of_model, self._calibrations.question(key), self._limits.question(key)):
            if question is not None:
                yield question

    def corrected(self, model: str) -> bool:
        """Whether answers to anybody corrected how a model is counted."""
        return bool(self._agreements.get(model).votes)

    def correction(self, model: str, caller: bytes, row: float) -> Correction | None:
        """How answers correct the counts of a model for a caller: by its own, else by what the callers agree on beside
        the family's `row`."""
        known = self._calibrations.get((model, caller))
        if known.ratio is not None:
            return Correction(known.ratio, known.share)
        agreed = self._agreements.get(model).ratio(row)
        return None if agreed is None else Correction(agreed)

    def observe(self, model: str, caller: bytes, ratio: float) -> None:
        """Adds what the usage of an answer to a caller told of a model's ratio; replicas are told within `REFRESH`
        seconds."""
        key = model, caller
        before = self._calibrations.get(key)
        known = before.observed(ratio)
        self._calibrations.put(key, known)
        if known.ratio != before.ratio:
            agreement = self._agreements.get(model)
            voted = agreement.voted(self._voter(caller), known)
            if voted is not agreement:
                self._agreements.put(model, voted)

    def _voter(self, caller: bytes) -> bytes:
        seals = self._keyring.seals or self._keyring.local
        return seals.name("voter", caller)[-DIGEST:]

    @property
    def limited(self) -> bool:
        """Whether there is any limit at all: where not, nobody need know who calls."""
        return len(self._limits) > 0

    def learned(self, model: str, caller: bytes) -> Learned:
        """What refusals proved of a model for a caller, as far as it holds now."""
        record = self._limits.get((model, caller))
        return record.learned(self._wall(), self._since(model)) if record.proofs else NOTHING_LEARNED

    def _since(self, model: str) -> float:
        return max(self._forgotten.at(model), self._forgets.get(model))

    def prove(self, model: str, caller: bytes, learned: Learned, proof: Proof) -> None:
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
        key, now = (model, caller), self._wall()
        proofs = [proof.at for _, proof in self._limits.get(key).holding(now, self._since(model))]
        last = max([*proofs, self._probed.get(key) or 0.0])
        if abs(now - last) < self._probe_after and last >= self._unreachable:
            return False
        self._probed.put(key, now)
        return True

    def doubt(self) -> None:
        """The upstream could not be reached: it may come back with other limits."""
        self._unreachable = self._wall()

    def forget(self, model: str) -> None:
        """Forgets what was learned of a model, of every caller; other workers know at once, replicas soon."""
        now = self._wall()
        self._forgotten.forget(model, now)
        self._forgets.put(model, now)
        self._changed.set()

    def shown(self, model: str | None = None, caller: bytes | None = None) -> list[Shown]:
        """What holds now, of all models and callers or of these."""
        now, seals = self._wall(), self._keyring.seals or self._keyring.local
        return [
            Shown(name, seals.name("caller", who)[-8:].decode(), kind, proof, proof.at + LIFE[kind])
            for (name, who), record in self._limits.items()
            if model in (None, name) and caller in (None, who)
            for kind, proof in record.holding(now, self._since(name))
        ]

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
