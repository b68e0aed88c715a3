"""Cached content that the proxy generated (summaries), for one caller each. It leaves the process only encrypted."""

from __future__ import annotations

from proxy.cache.keyring import Keyring, found_under
from proxy.cache.remote import Remote, Values
from proxy.cache.stats import LookupStats
from proxy.model.bounded import SMALL, Bounded

MAX_LOCAL, MAX_LOCAL_BYTES = 10_000, 32 * 2**20
TTL_S = 7 * 86_400.0


class Contents:
    """Content by kind, caller and key. A caller's content is never returned to another caller. It goes to the backend
    only if the operator has set a secret to encrypt it with (`Keyring.can_seal`)."""

    def __init__(self, remote: Remote | None, keyring: Keyring, stats: LookupStats) -> None:
        self._remote = remote
        self._keyring = keyring
        self._stats = stats
        self._local: Bounded[bytes, bytes] = Bounded(MAX_LOCAL, MAX_LOCAL_BYTES)

    async def get(self, kind: str, caller: bytes, key: bytes) -> bytes | None:
        """The content, from this process or else from the backend within a request's budget; None if there is none."""
        local, sealer = self._keyring.local.name(kind, caller, key), self._keyring.sealer
        content = self._local.get(local)
        if content is not None or self._remote is None or sealer is None or not self._keyring.can_seal:
            return content
        names = self._keyring.names(sealer.name(kind, caller, key, whose=caller), TTL_S)

        def deliver(values: Values) -> None:
            name, value = found_under(names, values)
            found = self._stats.record(value, None if value is None else sealer.unseal(name, caller, value))
            if found is not None:
                self._local.put(local, found, SMALL + len(found))

        await self._remote.read(names, deliver)
        return self._local.get(local)

    def put(self, kind: str, caller: bytes, key: bytes, content: bytes, seconds: float = TTL_S) -> None:
        """Stores content in this process and queues it for the backend, to live there for so many seconds."""
        self._local.put(self._keyring.local.name(kind, caller, key), content, SMALL + len(content))
        sealer = self._keyring.sealer
        if self._remote is not None and sealer is not None and self._keyring.can_seal:
            name = sealer.name(kind, caller, key, whose=caller)
            self._remote.write(name, sealer.seal(name, caller, content), seconds)
