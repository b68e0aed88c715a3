"""A cache of scanned conversations: of one that grew since, only the new messages are scanned and counted.

Theory of operation
-------------------

Chat clients send the whole conversation at every turn. Its next body begins with the same bytes, up to the end of the
last message that was sent. Two kinds of digests use this:

* This cache finds the longest known prefix of a body. An entry has the end of the prefix (an offset in bytes), what the
  scan had found there (`ScanState`), and the 128-bit digest of all bytes up to there. The key of an entry is the 64-bit
  digest of the first 8, 16, 64 or 256 KB of the body. `find` hashes these, takes the entries of each key, and compares
  the digest of the whole prefix: one pass over the body, at the speed of memory. Only an equal digest of every byte
  makes a prefix known. A body under 8 KB is always scanned whole.
* A `PrefixDigest` has one digest per message, of this message and all before it, and the state of the hash after the
  last one. The scan of a grown conversation copies this state and continues with the new messages. `totals` caches the
  tokens of all messages so far under each digest. The seed of the digests covers everything else that a count depends
  on (model, tools, learned ratio), so that equal digests mean equal counts.

Some parts have a cost that does not follow from the bytes (images by URL): such a conversation has no `PrefixDigest`.
Nothing here has content, but the first message of a conversation if that is an instruction: `totals` parses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan
from proxy.tokens.counting_key import SEED

# Bytes at the beginning of a body that are hashed for a key, the longest first: many conversations share instructions.
KEY_LENGTHS = (262_144, 65_536, 16_384, 8_192)
MAX_PER_KEY = 4  # prefixes with the same key, the latest first
MAX_KEYS, MAX_BYTES = 4_000, 24 << 20
ENTRY_BYTES = 4_096  # memory of a prefix besides its instructions: the digests and the state of the hash

Key = tuple[str, int]  # the API's name and the digest: bodies of two APIs may begin with the same bytes
Prefixes = tuple[tuple[bytes, KnownPrefix], ...]


@dataclass(slots=True)
class PrefixCache:
    """A bounded cache of prefixes. Not shared between processes."""

    _prefixes: Bounded[Key, Prefixes] = field(default_factory=lambda: Bounded(MAX_KEYS, MAX_BYTES))

    def find(self, api: Api, body: bytes) -> KnownPrefix | None:
        """The longest known prefix of a body; None if it has none. Takes 0.1 ms per megabyte."""
        if len(body) < KEY_LENGTHS[-1]:
            return None
        view = memoryview(body)
        for length in KEY_LENGTHS:
            if length <= len(body):
                key = api.name, xxh3_64_intdigest(view[:length], SEED)
                for digest, prefix in self._prefixes.get(key) or ():
                    if prefix.end <= len(body) and xxh3_128_digest(view[: prefix.end], SEED) == digest:
                        return prefix
        return None

    def keep(self, api: Api, body: bytes, scan: Scan, marks: PrefixDigest) -> None:
        """Stores the prefix that ends with the last message of a body, if it is new."""
        if len(body) < KEY_LENGTHS[-1]:
            return
        prefix = api.request.known_prefix(body, scan, marks)
        if prefix is None:
            return
        view = memoryview(body)
        found = (xxh3_128_digest(view[: prefix.end], SEED), prefix)
        for length in KEY_LENGTHS:
            if length <= prefix.end:
                key = api.name, xxh3_64_intdigest(view[:length], SEED)
                others = [entry for entry in self._prefixes.get(key) or () if entry[1] is not scan.known]
                entries = (found, *others[: MAX_PER_KEY - 1])
                self._prefixes.put(key, entries, sum(map(_weight, entries)))


def _weight(entry: tuple[bytes, KnownPrefix]) -> int:
    """The share of an entry's memory, in bytes, that is counted for one key: it may have a key of every length."""
    return (ENTRY_BYTES + len(entry[1].lead)) // len(KEY_LENGTHS)
