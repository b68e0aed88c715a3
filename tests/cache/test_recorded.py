"""Values that earlier versions left in Redis are read: replicas of two versions share one during an upgrade.

A file in `recorded/` has what one version wrote under the secret below: names, and values in hexadecimal. A change that
does not read them needs another name for its kind (`limits:2`), so that neither version takes the other's for damaged.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.cache import counts
from proxy.cache.contents import Contents
from proxy.cache.counts import LocalCounts, SharedCounts
from proxy.cache.keyring import SECRET_NAME, Keyring
from proxy.cache.model_records import ModelRecords
from proxy.cache.remote import Remote
from proxy.cache.stats import LookupStats
from proxy.model.limits import Correction, LearnedLimits
from tests.cache.shelf import Shelf

FILES = sorted((Path(__file__).parent / "recorded").glob("*.json"))
NOW = 1_795_000_000.0  # when they were written


class Reader:
    """A replica of this version over what another one left."""

    def __init__(self, shelf: Shelf) -> None:
        self.remote, self.keyring, self.stats = Remote(shelf, SECRET_NAME), Keyring(b"recorded"), LookupStats()
        parts = self.remote, self.keyring, self.stats
        self.records = ModelRecords("https://api.example/v1", *parts, lambda: NOW, lambda: NOW)
        self.memory = LocalCounts()
        self.counts = SharedCounts(self.memory, *parts)
        self.contents = Contents(*parts)


async def limits(reader: Reader) -> None:
    await reader.records.load([("gpt-4", b"tenant")])
    assert reader.records.learned("gpt-4", b"tenant") == LearnedLimits(window=6_000, scale=1.25)
    proofs = {view.kind: view.proof for view in reader.records.proofs("gpt-4", b"tenant")}
    proof = proofs["window"]
    assert (proof.value, proof.at, proof.rule, proof.counted) == (6_000, NOW, "context_length", 7_000)
    assert (proof.reply, proof.named, proof.quality) == (500, 7_100, "exact")


async def corrections(reader: Reader) -> None:
    """Ratios are of another kind than the lines of today: neither version reads the other's, and none is damaged."""
    await reader.records.load([("llama", b"tenant"), ("gpt-4", b"tenant")])
    assert reader.records.correction("llama", b"tenant", Correction(1.0), True) is None


async def invalidations(reader: Reader) -> None:
    await reader.records.load([("gone", b"tenant")])


async def token_counts(reader: Reader) -> None:
    await reader.counts.fetch([(b"key", b"a text that was counted")])
    assert reader.memory.get(b"key") == (12, 3)


async def summaries(reader: Reader) -> None:
    assert await reader.contents.get("summary", b"caller", b"key") == b"What they said."


@pytest.mark.parametrize("read", [limits, corrections, invalidations, token_counts, summaries])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_an_earlier_version_stored_is_read(
    file: Path, read: Callable[[Reader], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "KIND", f"count:{file.stem}")  # counts are shared within one version
    monkeypatch.setattr(counts, "MIN_FETCH_BYTES", 0)
    monkeypatch.setattr("proxy.cache.remote.READ_BUDGET_S", 10.0)

    async def check() -> None:
        values = {name.encode(): bytes.fromhex(value) for name, value in json.loads(file.read_text()).items()}
        reader = Reader(Shelf(values=values))
        reader.remote.read_breaker.close()
        try:
            await read(reader)
        finally:
            await reader.remote.close()
        assert (reader.stats.foreign, reader.stats.hits > 0) == (0, True)

    asyncio.run(check())


def test_values_of_some_version_are_recorded() -> None:
    assert FILES
