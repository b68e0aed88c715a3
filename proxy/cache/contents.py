"""Content that we made (summaries), kept for the caller it was made for: in this process, and elsewhere only sealed."""

from __future__ import annotations

from proxy.cache.counts import DAY, Tally
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.model.bounded import SMALL, Bounded

MOST = 10_000
BYTES = 32 * 2**20  # kept in this process


class Contents:
    """Content by kind, caller and key. What one caller put, no other gets, and a secret of the user's seals it."""

    def __init__(self, remote: Remote | None, keyring: Keyring, tally: Tally) -> None:
        self._remote = remote
        self._keyring = keyring
        self._tally = tally
        self._here: Bounded[bytes, bytes] = Bounded(MOST, BYTES)

    async def get(self, kind: str, caller: bytes, key: bytes) -> bytes | None:
        """What was put: from this process, else from the backend within a request's budget."""
        local, seals = self._keyring.local.name(kind, caller, key), self._keyring.seals
        content = self._here.get(local)
        if content is not None or self._remote is None or seals is None or not self._keyring.may_seal:
            return content
        name = seals.name(kind, caller, key)

        def take(values: Values) -> None:
            (value,) = values
            found = self._tally.note(value, None if value is None else seals.unseal(name, caller, value))
            if found is not None:
                self._here.put(local, found, SMALL + len(found))

        await self._remote.ask([name], take)
        return self._here.get(local)

    def put(self, kind: str, caller: bytes, key: bytes, content: bytes, seconds: float = 7 * DAY) -> None:
        """Keeps content; nobody waits for the backend."""
        self._here.put(self._keyring.local.name(kind, caller, key), content, SMALL + len(content))
        seals = self._keyring.seals
        if self._remote is not None and seals is not None and self._keyring.may_seal:
            name = seals.name(kind, caller, key)
            self._remote.write(name, seals.seal(name, caller, content), seconds)
