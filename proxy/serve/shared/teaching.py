"""The lessons about an upstream's models, kept here and shared: what one replica learned, the others soon know."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.bounded import Bounded
from proxy.serve.shared.counts import DAY, Tally
from proxy.serve.shared.keyring import Keyring
from proxy.serve.shared.lessons import Lesson, pack, unpack
from proxy.serve.shared.remote import Remote, Values
from proxy.types import NOTHING_LEARNED, Learned

REFRESH = 2.0  # seconds after which another replica's lessons are seen here
ACTIVE = 60.0  # seconds that a model counts as in use after a request for it
MOST_MODELS = 2_048  # clients choose the names
MOST_READ = 512  # models of one question


@dataclass(slots=True)
class Known:
    """A model's lesson as it is known here, when a request last used it, and when the backend was last asked."""

    lesson: Lesson = field(default_factory=Lesson)
    used: float = 0.0
    asked: float = -ACTIVE


class Teaching:
    """Lessons by model, of one upstream; without a backend they stay in this process."""

    def __init__(
        self,
        upstream: str,
        remote: Remote | None,
        keyring: Keyring,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._upstream = upstream.encode()
        self._remote = remote
        self._keyring = keyring
        self._tally = tally
        self._clock = clock
        self._wall = wall
        self._models: Bounded[bytes, Known] = Bounded(MOST_MODELS)
        self._lately: dict[str, Known] = {}  # of `_models`, those in use since the last new one came
        self._unsent: dict[str, None] = {}
        self._changed = asyncio.Event()

    def lesson(self, model: str) -> Lesson:
        """What is known here of a model; another object as soon as it is another lesson."""
        known = self._lately.get(model)
        return self._known(model).lesson if known is None else known.lesson

    def learned(self, model: str) -> Learned:
        """What refusals taught of a model, as far as it holds now."""
        lesson = self._known(model).lesson
        return lesson.at(self._wall()) if lesson.learned.supposed else lesson.learned

    async def learn_of(self, model: str) -> None:
        """Asks the backend for a model that was not in use here lately; those in use are refreshed beside requests."""
        known, now = self._known(model), self._clock()
        known.used = now
        if self._remote is None or (name := self._name(model)) is None or now - known.asked < ACTIVE:
            return
        known.asked = now
        await self._remote.ask([name], lambda values: self._take([model], values))

    def keep(self, model: str, learned: Learned) -> None:
        """Keeps what a refusal taught; replicas are told at once."""
        known = self._known(model)
        known.lesson = known.lesson.taught(learned, self._wall())
        self._tell(model)
        self._changed.set()

    def held(self, model: str, prompt: int) -> None:
        """Takes back what an answer to so many tokens proves wrong; replicas are told at once."""
        known = self._known(model)
        if known.lesson.learned is NOTHING_LEARNED:
            return
        lesson = known.lesson.held(prompt, self._wall())
        if lesson is not known.lesson:
            known.lesson = lesson
            self._tell(model)
            self._changed.set()

    def observe(self, model: str, ratio: float) -> None:
        """Adds what an answer's usage told of a model's ratio; replicas are told within `REFRESH` seconds."""
        known = self._known(model)
        known.lesson = known.lesson.observed(ratio)
        self._tell(model)

    def _tell(self, model: str) -> None:
        if self._remote is not None and len(self._unsent) < MOST_MODELS:
            self._unsent[model] = None

    def _known(self, model: str) -> Known:
        known = self._lately.get(model)
        if known is not None:
            return known
        key = _key(model)
        known = self._models.get(key)
        if known is None:
            known = Known()
            self._lately.clear()  # an old one may have to go
            self._models.put(key, known)
        self._lately[model] = known
        return known

    def _name(self, model: str) -> bytes | None:
        seals = self._keyring.seals
        return None if seals is None else seals.name("learned", self._upstream, _key(model))

    def _take(self, models: Sequence[str], values: Values) -> None:
        for model, value in zip(models, values, strict=True):
            name, seals = self._name(model), self._keyring.seals
            payload = seals.unwrap(name, value) if value is not None and name and seals else None
            theirs = self._tally.note(value, None if payload is None else unpack(payload)) or Lesson()
            known = self._known(model)
            new = model in self._unsent
            known.lesson = known.lesson.joined(theirs) if new else theirs.joined(known.lesson)
            if known.lesson != theirs:  # theirs is older, or was lost, or another replica wrote over ours
                self._tell(model)

    async def refresh_on(self) -> None:
        """Reads and tells for as long as we run."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), REFRESH)
            self._changed.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Reads the lessons of all models in use, and tells those that are new here."""
        seals, now = self._keyring.seals, self._clock()
        if self._remote is None or seals is None:
            return
        active = [key.decode("utf-8", "surrogatepass") for key, known in self._models if now - known.used < ACTIVE]
        models = list(dict.fromkeys([*self._unsent, *active]))[:MOST_READ]
        names = [seals.name("learned", self._upstream, _key(model)) for model in models]
        values = await self._remote.aside(lambda backend: backend.get(names)) if names else None
        if values is None:
            return
        self._take(models, values)
        for model, name in zip(models, names, strict=True):
            known = self._known(model)
            known.asked = now
            if model in self._unsent:
                del self._unsent[model]
                self._remote.write(name, seals.wrap(name, pack(known.lesson)), DAY)


def _key(model: str) -> bytes:
    return model.encode("utf-8", "surrogatepass")
