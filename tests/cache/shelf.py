"""A backend for tests that keeps values in a dict, and is slow, broken or full when it is told to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.cache.account_script import Found, Write
from proxy.cache.remote import BackendError, Values

WAIT_SECONDS = 60.0  # it only tells a hang: a breaker that was opened a few times in a row pauses for 16 s


@dataclass(slots=True)
class Shelf:
    """Keeps values; `fault` is the trouble of every call, `full` that of writes, `held` answers wait for `release`."""

    address: str = "shelf:1"
    values: dict[bytes, bytes] = field(default_factory=dict)
    fault: str = ""
    full: bool = False
    gets: list[list[bytes]] = field(default_factory=list)
    puts: list[list[tuple[bytes, bytes, float]]] = field(default_factory=list)
    answered: int = 0
    tallies: dict[bytes, tuple[dict[bytes, int], float]] = field(default_factory=dict)
    agreements: int = 0
    closed: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.released.set()

    def hold(self) -> None:
        """From now on questions are not answered."""
        self.released.clear()

    def release(self) -> None:
        """They are, and so are those that waited."""
        self.released.set()

    async def _turn(self) -> None:
        await self.released.wait()
        if self.fault:
            raise BackendError(self.fault)

    async def get(self, names: Sequence[bytes]) -> Values:
        self.gets.append(list(names))
        await self._turn()
        self.answered += 1
        return [self.values.get(name) for name in names]

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        self.puts.append(list(items))
        await self._turn()
        if self.full:
            raise BackendError("OutOfMemoryError")
        self.values.update((name, value) for name, value, _ in items)

    async def set_default(self, name: bytes, value: bytes) -> bytes | None:
        await self._turn()
        self.agreements += 1
        return self.values.setdefault(name, value)

    async def tally(self, name: bytes, field: bytes, amount: int, seconds: float) -> tuple[int, float]:
        await self._turn()
        amounts, _ = self.tallies.setdefault(name, ({}, seconds))
        if amounts or amount:
            amounts[field] = amount
        return sum(amounts.values()), self.tallies[name][1]

    async def account(self, name: bytes, write: Write) -> Found:
        await self._turn()
        raise BackendError("ResponseError")  # it has no scripts

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        return [len(self.values.get(name, b"")) for name in names]

    async def delete(self, names: Sequence[bytes]) -> None:
        for name in names:
            self.values.pop(name, None)

    async def close(self) -> None:
        self.closed = True


async def until(true: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():
            await asyncio.sleep(0.002)
