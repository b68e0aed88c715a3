"""Tokens of prompts as upstreams count them, under keyed hashes of what identifies a prompt, for one tenant each.

One kind is of prompts that upstreams have stored, by their ids; another of prompts that upstreams counted on request.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from proxy.cache.keyring import Keyring, found_under
from proxy.cache.remote import Remote, Values
from proxy.cache.stats import LookupStats
from proxy.model.bounded import Bounded

MAX_LOCAL = 50_000
TTL_S = 30 * 86_400.0  # as long as OpenAI keeps responses
KIND = "stored"
COUNTED, COUNTED_TTL_S = "counted", 3_600.0  # on request: a repeated request comes soon
MAX_TOKENS = 10**9
_TOKENS = msgspec.msgpack.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)])


class StoredPrompts:
    """Tokens by tenant and id. No tenant gets a count of another one. `kind` names them in the backend, where they are
    kept for `ttl` seconds."""

    def __init__(
        self, remote: Remote | None, keyring: Keyring, stats: LookupStats, kind: str = KIND, ttl: float = TTL_S
    ) -> None:
        self._kind = kind
        self._ttl = ttl
        self._remote = remote
        self._keyring = keyring
        self._stats = stats
        self._local: Bounded[bytes, int] = Bounded(MAX_LOCAL)

    async def get(self, tenant: bytes, ident: str) -> int:
        """The tokens, from this process or else from the backend within a request's budget; 0 if they are not known."""
        local, sealer = self._keyring.local.name(self._kind, tenant, _bytes(ident)), self._keyring.sealer
        found = self._local.get(local)
        if found is not None or self._remote is None or sealer is None:
            return found or 0
        names = self._keyring.names(sealer.name(self._kind, tenant, _bytes(ident), whose=tenant), self._ttl)

        def deliver(values: Values) -> None:
            name, value = found_under(names, values)
            tokens = self._stats.record(value, None if value is None else _decoded(sealer.verify(name, value)))
            if tokens is not None:
                self._local.put(local, tokens)

        await self._remote.read(names, deliver)
        return self._local.get(local) or 0

    def put(self, tenant: bytes, ident: str, tokens: int) -> None:
        """Keeps the tokens in this process, and queues them for the backend."""
        tokens = min(tokens, MAX_TOKENS)
        self._local.put(self._keyring.local.name(self._kind, tenant, _bytes(ident)), tokens)
        sealer = self._keyring.sealer
        if self._remote is not None and sealer is not None:
            name = sealer.name(self._kind, tenant, _bytes(ident), whose=tenant)
            self._remote.write(name, sealer.sign(name, msgspec.msgpack.encode(tokens)), self._ttl)


def _bytes(ident: str) -> bytes:
    return ident.encode("utf-8", "surrogatepass")


def _decoded(payload: bytes | None) -> int | None:
    try:
        return None if payload is None else _TOKENS.decode(payload)
    except msgspec.MsgspecError:
        return None
