"""Remembers where the conversations that went by ended, so that of one that grew only what is new is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan
from proxy.tokens.counting_key import SEED

# Conversations are told apart by so many bytes of their beginning, the most first: many share their instructions.
LEVELS = (262_144, 65_536, 16_384, 8_192)
RIVALS = 4  # conversations with one beginning that are remembered, the latest first
MOST, BYTES = 4_000, 24 << 20  # beginnings
STRETCH = 4_096  # bytes of what is remembered of a conversation besides its instructions: digests, and their state

Beginning = tuple[str, int]  # of an API's body: bodies of two APIs may begin with the same bytes
Ends = tuple[tuple[bytes, KnownPrefix], ...]


@dataclass(slots=True)
class PrefixCache:
    """A bounded memory. A body is known by a digest of all its bytes so far, never by less."""

    _ends: Bounded[Beginning, Ends] = field(default_factory=lambda: Bounded(MOST, BYTES))

    def find(self, api: Api, body: bytes) -> KnownPrefix | None:
        """The longest stretch that is remembered of those that the body begins with; takes 0.1 ms for a megabyte."""
        if len(body) < LEVELS[-1]:
            return None
        view = memoryview(body)
        for level in LEVELS:
            if level <= len(body):
                key = api.name, xxh3_64_intdigest(view[:level], SEED)
                for digest, prefix in self._ends.get(key) or ():
                    if prefix.end <= len(body) and xxh3_128_digest(view[: prefix.end], SEED) == digest:
                        return prefix
        return None

    def keep(self, api: Api, body: bytes, scan: Scan, marks: PrefixDigest) -> None:
        """Remembers where the conversation of a body ends, if that is anything new."""
        if len(body) < LEVELS[-1]:
            return
        prefix = api.known_prefix(body, scan, marks)
        if prefix is None:
            return
        view = memoryview(body)
        found = (xxh3_128_digest(view[: prefix.end], SEED), prefix)
        for level in LEVELS:
            if level <= prefix.end:
                key = api.name, xxh3_64_intdigest(view[:level], SEED)
                others = [rival for rival in self._ends.get(key) or () if rival[1] is not scan.known]
                ends = (found, *others[: RIVALS - 1])
                self._ends.put(key, ends, sum(map(_weight, ends)))


def _weight(end: tuple[bytes, KnownPrefix]) -> int:
    """Its bytes; it may stand at every level, and is counted at each for its share."""
    return (STRETCH + len(end[1].lead)) // len(LEVELS)
