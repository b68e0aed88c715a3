"""How long the prompts are that upstreams have stored: counts under keyed hashes of their ids, for one tenant each."""

from __future__ import annotations

from typing import Annotated

import msgspec

from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote, Values
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded

MAX_LOCAL = 50_000
TTL_S = 30 * 86_400.0  # as long as OpenAI keeps responses
KIND = "stored"
MAX_TOKENS = 10**9
_TOKENS = msgspec.msgpack.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)])


class StoredPrompts:
    """Tokens of stored prompts with their replies, by tenant and id. No tenant gets a count of another one."""

    def __init__(self, remote: Remote | None, keyring: Keyring, stats: LookupStats) -> None:
        self._remote = remote
        self._keyring = keyring
        self._stats = stats
        self._local: Bounded[bytes, int] = Bounded(MAX_LOCAL)

    async def get(self, tenant: bytes, ident: str) -> int:
        """The tokens, from this process or else from the backend within a request's budget; 0 if they are not known."""
        local, sealer = self._keyring.local.name(KIND, tenant, _bytes(ident)), self._keyring.sealer
        found = self._local.get(local)
        if found is not None or self._remote is None or sealer is None:
            return found or 0
        name = sealer.name(KIND, tenant, _bytes(ident))

        def deliver(values: Values) -> None:
            (value,) = values
            tokens = self._stats.record(value, None if value is None else _decoded(sealer.verify(name, value)))
            if tokens is not None:
                self._local.put(local, tokens)

        await self._remote.read([name], deliver)
        return self._local.get(local) or 0

    def put(self, tenant: bytes, ident: str, tokens: int) -> None:
        """Keeps the tokens in this process, and queues them for the backend."""
        tokens = min(tokens, MAX_TOKENS)
        self._local.put(self._keyring.local.name(KIND, tenant, _bytes(ident)), tokens)
        sealer = self._keyring.sealer
        if self._remote is not None and sealer is not None:
            name = sealer.name(KIND, tenant, _bytes(ident))
            self._remote.write(name, sealer.sign(name, msgspec.msgpack.encode(tokens)), TTL_S)


def _bytes(ident: str) -> bytes:
    return ident.encode("utf-8", "surrogatepass")


def _decoded(payload: bytes | None) -> int | None:
    try:
        return None if payload is None else _TOKENS.decode(payload)
    except msgspec.MsgspecError:
        return None
