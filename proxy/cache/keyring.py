"""The secret that names and seals are made from: the user's, or one that replicas agree on through their backend."""

from __future__ import annotations

import asyncio
import os

from proxy.cache.remote import Event, Remote, ignore
from proxy.cache.sealing import PREFIX, Seals

SECRET = PREFIX + b"secret"  # where the agreed secret stands
BYTES = 32
AGREE_AGAIN = 60.0  # seconds: somebody may have emptied the backend
TRY_AGAIN = 1.0


class Keyring:
    """`seals` is None until there is a secret. An agreed one can be read by all who can read the backend: it keeps
    counts apart from other users' of the same Redis, and is not good enough for content (`may_seal`)."""

    def __init__(self, secret: bytes | None, event: Event = ignore) -> None:
        self.may_seal = secret is not None
        self._event = event
        self._secret = secret if secret is not None else os.urandom(BYTES)
        self.local = Seals(self._secret)
        self.seals = self.local if secret is not None else None

    async def agree_on(self, remote: Remote) -> None:
        """Keeps to the secret that all replicas keep to, for as long as we run."""
        self._event("PLIMSOLL_SECRET is not set: replicas share a random one, which all who read Redis can read")
        while True:
            await asyncio.sleep(AGREE_AGAIN if await self._agree(remote) else TRY_AGAIN)

    async def _agree(self, remote: Remote) -> bool:
        agreed = await remote.aside(lambda backend: backend.agree(SECRET, self._secret))
        if agreed is None or len(agreed) != BYTES:
            return False
        if agreed != self._secret or self.seals is None:
            self._secret, self.seals = agreed, Seals(agreed)
        return True
