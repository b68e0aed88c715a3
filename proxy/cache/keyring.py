"""The secret of the shared cache: the operator's, or else a random one on which replicas agree through the backend.

It holds the secret and the `Sealer` derived from it. It does not read or write cached values.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from proxy.cache.remote import Event, Remote, Values, ignore
from proxy.cache.sealing import PREFIX, Sealer, former_name

SECRET_NAME = PREFIX + b"secret"  # the Redis key of the agreed secret
SECRET_BYTES = 32
AGREE_INTERVAL_S = 60.0  # the backend may have been emptied
RETRY_S = 1.0
UPDATE_S = 86_400.0  # replicas of a version without slots may still write for so long


class Keyring:
    """`sealer` is None until there is a secret. `local` always works, for names that do not leave the process.

    Everyone who can read the backend can read an agreed secret. It separates our values from those of other users of
    the same Redis, but it does not protect content: `can_seal` is False.
    """

    def __init__(
        self, secret: bytes | None, event: Event = ignore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.can_seal = secret is not None
        self._event = event
        self._clock = clock
        self._began = clock()
        self._secret = secret if secret is not None else os.urandom(SECRET_BYTES)
        self.local = Sealer(self._secret)
        self.sealer = self.local if secret is not None else None

    def use(self, secret: bytes) -> None:
        """Names, signs and encrypts with another secret of the operator from now on: what was stored with the old one
        is a miss. `local` stays, so that this process keeps what it has."""
        self._secret, self.sealer = secret, Sealer(secret)

    def former(self, name: bytes, seconds: float) -> bytes | None:
        """The name under which a version without slots may have written a value that lives for so many seconds; None
        once all of those have expired, and for what never had another name."""
        if self._clock() - self._began > seconds + UPDATE_S or name.startswith(PREFIX):
            return None
        return former_name(name)

    def names(self, name: bytes, seconds: float) -> list[bytes]:
        """A name, and behind it the `former` one, if there is one."""
        former = self.former(name, seconds)
        return [name] if former is None else [name, former]

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


def found_under(names: Sequence[bytes], values: Values) -> tuple[bytes, bytes | None]:
    """The first value that was found, and its name."""
    return next(((name, value) for name, value in zip(names, values, strict=True) if value), (names[0], None))
