"""Counts of messages that replicas share: fetched before a request is counted, stored after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec

from proxy import __version__
from proxy.cache.keyring import Keyring
from proxy.cache.local_memory import LocalMemory
from proxy.cache.remote import Remote, Values
from proxy.cache.sealing import Seals
from proxy.model.bounded import Bounded

KIND = f"count:{__version__}"  # another version may count otherwise
WORTH = 16 * 1024  # bytes that take longer to count (some 4 ms) than to ask for (0.5 ms)
MOST_KEYS = 500  # of one question: the longest texts, which cost most to count
MOST_ASKED = 20_000  # names of counts that were asked for and not stored yet
HASH_INLINE = 256 * 1024  # bytes that are hashed at once, 0.3 ms; more go to a thread
DAY = 86_400.0  # seconds

Pair = tuple[bytes, bytes]  # the key that a count is remembered by, and the bytes that it depends on
Figures = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=10**9)], ...], msgspec.Meta(min_length=1)]
T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """What the backend had for us so far; `foreign` values under our names were not ours."""

    hits: int = 0
    misses: int = 0
    foreign: int = 0

    def note(self, value: bytes | None, payload: T | None) -> T | None:
        """Counts a value that was found, and what it proved to be; hands that back."""
        self.hits += payload is not None
        self.misses += payload is None
        self.foreign += value is not None and payload is None
        return payload


class Counts:
    """Counts between `memory` and the backend."""

    def __init__(self, memory: LocalMemory, remote: Remote, keyring: Keyring, tally: Tally) -> None:
        self._memory = memory
        self._remote = remote
        self._keyring = keyring
        self._tally = tally
        self._asked: Bounded[bytes, bytes] = Bounded(MOST_ASKED)

    async def fetch(self, pairs: Sequence[Pair]) -> None:
        """Puts what the backend knows of these into the memory: one question, within a request's budget, and none
        where counting is quicker, as it is for the newest turn of a conversation."""
        seals = self._keyring.seals
        if seals is None or not pairs:
            return
        if not self._remote.usable:  # before anything is hashed
            self._remote.tally.skipped += 1
            return
        longest = sorted(pairs, key=lambda pair: -len(pair[1]))[:MOST_KEYS]
        names = await _named(seals, [material for _, material in longest])
        for (key, _), name in zip(longest, names, strict=True):
            self._asked.put(key, name)

        def take(values: Values) -> None:
            for (key, _), name, value in zip(longest, names, values, strict=True):
                counts = self._tally.note(value, None if value is None else _counts(seals.unwrap(name, value)))
                if counts is not None:
                    self._memory.put(key, counts)
                    self._asked.take(key)

        if sum(len(material) for _, material in longest) >= WORTH:
            await self._remote.ask(names, take)

    def store(self, pairs: Sequence[Pair]) -> None:
        """Shares what the memory now knows of pairs that were asked for in vain. Nobody waits for it."""
        for key, _ in pairs:
            name, seals = self._asked.take(key), self._keyring.seals
            if name is not None and seals is not None and (counts := self._memory.get(key)):
                self._remote.write(name, seals.wrap(name, msgspec.msgpack.encode(counts)), DAY)


def _counts(payload: bytes | None) -> tuple[int, ...] | None:
    try:
        return None if payload is None else msgspec.msgpack.decode(payload, type=Figures)
    except msgspec.MsgspecError:
        return None


async def _named(seals: Seals, materials: Sequence[bytes]) -> list[bytes]:
    """The names of counts; hashing long texts does not stop the event loop."""
    if sum(map(len, materials)) <= HASH_INLINE:
        return [seals.name(KIND, material) for material in materials]
    return await asyncio.to_thread(lambda: [seals.name(KIND, material) for material in materials])
