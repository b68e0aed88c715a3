"""Small records kept here and shared through the backend: what one replica knows, the others soon know."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.cache.counts import Tally
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.model.bounded import Bounded

ACTIVE = 60.0  # seconds that a record counts as in use after a request for it
MOST_READ = 512  # records of one question
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Codec(Generic[K, R]):
    """How records are named and kept: `parts` are what a key's name is made of, `joined` makes one record of ours and
    another replica's; `unpack` gives None for what is no record. `seconds` is how long the backend keeps one."""

    kind: str
    parts: Callable[[K], Sequence[bytes]]
    empty: R
    joined: Callable[[R, R], R]
    pack: Callable[[R], bytes]
    unpack: Callable[[bytes], R | None]
    seconds: float


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask the backend for, and who takes the value."""

    name: bytes
    take: Callable[[bytes | None], None]


class Replicated(Generic[K, R]):
    """Records by key; without a backend they stay in this process. One that is empty takes no room."""

    def __init__(
        self,
        codec: Codec[K, R],
        most: int,
        remote: Remote | None,
        keyring: Keyring,
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._codec = codec
        self._most = most
        self._remote = remote
        self._keyring = keyring
        self._tally = tally
        self._clock = clock
        self.records: Bounded[K, R] = Bounded(most)
        self._used: Bounded[K, float] = Bounded(most)  # when a request last used it, with a backend
        self._asked: Bounded[K, float] = Bounded(most)  # when the backend was last asked for it
        self._unsent: dict[K, None] = {}

    def get(self, key: K) -> R:
        """What is known here; the same object as long as it is the same record."""
        found = self.records.get(key)
        return self._codec.empty if found is None else found

    def put(self, key: K, record: R) -> None:
        """Keeps a record; replicas are told by the next `refresh`."""
        self.records.put(key, record)
        self._tell(key)

    def _tell(self, key: K) -> None:
        if self._remote is not None and len(self._unsent) < self._most:
            self._unsent[key] = None

    def question(self, key: K) -> Question | None:
        """What to ask the backend before a request uses a record that was not in use here lately; those in use are
        refreshed beside requests."""
        now, asked = self._clock(), self._asked.get(key)
        self._used.put(key, now)
        if (name := self._name(key)) is None or (asked is not None and now - asked < ACTIVE):
            return None
        self._asked.put(key, now)
        return Question(name, lambda value: self._take(key, value))

    def items(self) -> list[tuple[K, R]]:
        """All records that are known here."""
        return list(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def _name(self, key: K) -> bytes | None:
        seals = self._keyring.seals
        if self._remote is None or seals is None:
            return None
        return seals.name(self._codec.kind, *self._codec.parts(key))

    def _take(self, key: K, value: bytes | None) -> None:
        name, seals, codec = self._name(key), self._keyring.seals, self._codec
        payload = seals.unwrap(name, value) if value is not None and name and seals else None
        theirs = self._tally.note(value, None if payload is None else codec.unpack(payload))
        ours = self.records.get(key)
        if theirs is None:
            known = ours
        elif ours is None:
            known = theirs
        else:
            known = codec.joined(ours, theirs) if key in self._unsent else codec.joined(theirs, ours)
        if known is None:
            return
        if known != ours:
            self.records.put(key, known)
        if known != theirs:  # theirs is older, or was lost, or another replica wrote over ours
            self._tell(key)

    async def refresh(self) -> None:
        """Reads the records in use, and tells those that are new here."""
        seals, now = self._keyring.seals, self._clock()
        if self._remote is None or seals is None:
            return
        active = [key for key, used in self._used if now - used < ACTIVE]
        keys = list(dict.fromkeys([*self._unsent, *active]))[:MOST_READ]
        names = [seals.name(self._codec.kind, *self._codec.parts(key)) for key in keys]
        values: Values | None = await self._remote.aside(lambda backend: backend.get(names)) if names else None
        if values is None:
            return
        for key, name, value in zip(keys, names, values, strict=True):
            self._take(key, value)
            self._asked.put(key, now)
            if key in self._unsent:
                del self._unsent[key]
                if (known := self.records.get(key)) is not None:
                    self._remote.write(name, seals.wrap(name, self._codec.pack(known)), self._codec.seconds)
