"""The secret of the shared cache: the operator's, or else a random one on which replicas agree through the backend.

It holds the secret and the `Sealer` derived from it. It does not read or write cached values.
"""

from __future__ import annotations

import asyncio
import os

from proxy.cache.remote import Event, Remote, ignore
from proxy.cache.sealing import PREFIX, Sealer

SECRET_NAME = PREFIX + b"secret"  # the Redis key of the agreed secret
SECRET_BYTES = 32
AGREE_INTERVAL_S = 60.0  # the backend may have been emptied
RETRY_S = 1.0


class Keyring:
    """`sealer` is None until there is a secret. `local` always works, for names that do not leave the process.

    Everyone who can read the backend can read an agreed secret. It separates our values from those of other users of
    the same Redis, but it does not protect content: `can_seal` is False.
    """

    def __init__(self, secret: bytes | None, event: Event = ignore) -> None:
        self.can_seal = secret is not None
        self._event = event
        self._secret = secret if secret is not None else os.urandom(SECRET_BYTES)
        self.local = Sealer(self._secret)
        self.sealer = self.local if secret is not None else None

    def use(self, secret: bytes) -> None:
        """Names, signs and encrypts with another secret of the operator from now on: what was stored with the old one
        is a miss. `local` stays, so that this process keeps what it has."""
        self._secret, self.sealer = secret, Sealer(secret)

    async def agree_loop(self, remote: Remote) -> None:
        """Agrees on a secret with the other replicas, and repeats that until cancelled."""
        self._event("PLIMSOLL_SECRET is not set: replicas share a random one, which all who read Redis can read")
        while True:
            await asyncio.sleep(AGREE_INTERVAL_S if await self._agree(remote) else RETRY_S)

    async def _agree(self, remote: Remote) -> bool:
        agreed = await remote.attempt(lambda backend: backend.set_default(SECRET_NAME, self._secret))
        if agreed is None or len(agreed) != SECRET_BYTES:
            return False
        if agreed != self._secret or self.sealer is None:
            self._secret, self.sealer = agreed, Sealer(agreed)
        return True
