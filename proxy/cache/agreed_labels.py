"""Which sets of labels of metrics all replicas tell apart: the same ones in each, as far as they know of each other.

Theory of operation
===================

The backend holds one list for all replicas: of each kind so many keyed digests of sets as there may be, with the day on
which a replica last said that it uses them. A replica reads it now and then, and adds what it uses itself, as long as
there is room. A new set is told apart at once, and no longer once the list turns out to be full: then it is folded
everywhere. What nobody has used for `KEEP_DAYS` makes room.

Two replicas that write at once may lose an entry; whose it is adds it again. A backend that was emptied gets the list
again from whoever is first. One that does not answer leaves each replica with what it knows, and what it adds itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.cache.replicated import refresh_often
from proxy.cache.sealing import Sealer
from proxy.model.bounded import Bounded

KIND = "labels:1"
DAY_S = 86_400.0
KEEP_DAYS = 7
READ_S = 10.0  # an added set is known to all within this time
PAUSE_S = 0.5
DIGEST_BYTES = 8
MAX_SETS = 1_000  # of a kind, in a list that is read
MAX_DIGESTS = 8_192

Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Day = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Sets = Annotated[dict[Digest, Day], msgspec.Meta(max_length=MAX_SETS)]
Lists = dict[str, dict[bytes, int]]  # by kind, in the order in which they were added: the day of the last use
_DECODER = msgspec.msgpack.Decoder(Annotated[dict[str, Sets], msgspec.Meta(max_length=8)])


class AgreedLabels:
    """The sets that the replicas of a deployment `name` tell apart. `allows` returns without I/O."""

    def __init__(self, name: str, remote: Remote, keyring: Keyring, wall: Callable[[], float] = time.time) -> None:
        self._name, self._remote, self._keyring, self._wall = name.encode(), remote, keyring, wall
        self._sealer: Sealer | None = None
        self._agreed: Lists = {}
        self._used: dict[str, dict[bytes, None]] = {}  # by this process; what is not agreed yet among it
        self._most: dict[str, int] = {}
        self._digests: Bounded[tuple[str, ...], bytes] = Bounded(MAX_DIGESTS)
        self._changed = asyncio.Event()

    def allows(self, kind: str, labels: Sequence[str], most: int) -> bool:
        """Whether a set is told apart: it is agreed, or there are fewer than `most` of its kind."""
        sealer = self._keyring.sealer
        if sealer is None:
            return True
        if sealer is not self._sealer:  # the operator's secret is another one: so are all digests
            self._begin(sealer)
        digest = self._digest(sealer, (kind, *labels))
        self._most[kind] = most
        used, agreed = self._used.setdefault(kind, {}), self._agreed.get(kind, {})
        if digest in used:
            return True
        if digest not in agreed and len(agreed.keys() | used.keys()) >= most:
            return False
        used[digest] = None
        self._changed.set()
        return True

    def _begin(self, sealer: Sealer) -> None:
        self._sealer, self._agreed, self._used = sealer, {}, {}
        self._digests.clear()

    def _digest(self, sealer: Sealer, entry: tuple[str, ...]) -> bytes:
        found = self._digests.get(entry)
        if found is None:
            parts = (part.encode("utf-8", "surrogatepass") for part in entry)
            found = self._digests.put(entry, bytes.fromhex(sealer.name(KIND, *parts)[-2 * DIGEST_BYTES :].decode()))
        return found

    async def refresh_loop(self) -> None:
        """Agrees with the other replicas, until cancelled."""

        async def paced() -> None:
            await self.refresh()
            await asyncio.sleep(PAUSE_S)

        await paced()
        await refresh_often(paced, self._changed, seconds=READ_S)

    async def refresh(self) -> None:
        """Reads the list, and adds what is used here as far as there is room."""
        sealer = self._keyring.sealer
        if sealer is None:
            return
        if sealer is not self._sealer:
            self._begin(sealer)
        name = sealer.name(KIND, self._name)
        values = await self._remote.attempt(lambda backend: backend.get([name]))
        if values is None or sealer is not self._sealer:
            return
        theirs = _unpacked(sealer.verify(name, values[0])) if values[0] is not None else None
        today = int(self._wall() // DAY_S)
        merged = self._merged(self._agreed if theirs is None else theirs, today)
        self._agreed = merged
        self._used = {kind: {one: None for one in used if one in merged[kind]} for kind, used in self._used.items()}
        if merged != theirs and any(merged.values()):
            self._remote.write(name, sealer.sign(name, msgspec.msgpack.encode(merged)), KEEP_DAYS * DAY_S)

    def _merged(self, theirs: Lists, today: int) -> Lists:
        """A list without what is not used any more, and with what is used here, as far as there is room."""
        merged = {
            kind: {one: at for one, at in sets.items() if today - at < KEEP_DAYS} for kind, sets in theirs.items()
        }
        for kind, used in self._used.items():
            sets = merged.setdefault(kind, {})
            for one in used:
                if one in sets or len(sets) < self._most[kind]:
                    sets[one] = max(today, sets.get(one, 0))
        return merged


def _unpacked(payload: bytes | None) -> Lists | None:
    try:
        return None if payload is None else _DECODER.decode(payload)
    except msgspec.MsgspecError:
        return None
