"""Questions of our own to an upstream, on behalf of a client: with its own headers, where it may see them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from proxy.upstreams.extra_calls import Extras, NotAsked, Spent
from proxy.upstreams.fair_queue import Busy, Turns
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import CREDENTIALS, Upstream
from proxy.wire.headers import QUERY, Header
from proxy.wire.paths import KEY_IN_QUERY

# Headers that speak of the client's own body and request.
NOT_OURS = (b"content-", b"accept", b"transfer-", b"if-", b"idempotency-", b"x-request-id")
JSON: Header = (b"content-type", b"application/json")
INLINE_BYTES = 65_536  # of an answer: a longer one is read in a thread
# What parts the clients of one gateway beside its credential: whatever an upstream may go by. Anybody may make some up:
# they part what is learned, never whose money it is.
TENANT = CREDENTIALS | {
    *(b"cookie", b"openai-organization", b"openai-project", b"x-goog-api-key", b"ocp-apim-subscription-key"),
    *(b"cf-aig-authorization", b"helicone-auth", b"x-litellm-api-key", b"x-portkey-api-key", b"x-portkey-virtual-key"),
}
TOKEN_BYTES = 4  # of a question, where nobody tells what it cost


@dataclass(slots=True)
class Asking:
    """Who is asked, for knowledge of one `kind`. `foreign`: it is not the upstream that clients talk to, and must not
    see their headers; then all calls are on the operator's money, else those of clients without a key are, where the
    upstream gets the operator's."""

    upstream: Upstream
    kind: str
    extras: Extras
    turns: Turns
    foreign: bool = False

    def may(self, headers: Headers) -> bool:
        """Whether a question may be asked for a client; one that may not is counted."""
        caller = caller_of(headers)
        why = self.extras.why_not(caller, caller != NOBODY) if self._paid(caller) else ""
        if why:
            self.extras.note(self.kind, why)
        return not why

    def _paid(self, caller: bytes) -> bool:
        """Whether the operator pays for what is asked for a caller."""
        return self.foreign or (caller == NOBODY and self.upstream.has_key)

    @contextlib.asynccontextmanager
    async def turn(self, caller: bytes) -> AsyncIterator[None]:
        """Waits until it is a caller's turn to ask. Raises NotAsked where too many wait."""
        try:
            async with self.turns.turn(caller):
                yield
        except Busy:
            self.extras.note(self.kind, "busy")
            raise NotAsked("busy") from None

    async def post(
        self, target: bytes, body: bytes, headers: Headers, limit: int, spent: Spent | None = None
    ) -> tuple[int, bytes]:
        """The status of the answer, and its body or the beginning of it (over `limit` bytes). Adds what it cost to
        `spent`. Raises UpstreamError, and NotAsked where the budget is spent."""
        caller = caller_of(headers)
        paid, guess = self._paid(caller), len(body) // TOKEN_BYTES
        if paid and not self.extras.left:
            self.extras.note(self.kind, "over_budget")
            raise NotAsked("over_budget")
        spent = spent or Spent()
        spent.calls += 1
        began, tokens, result = time.perf_counter(), guess, "failed"
        if paid:
            self.extras.take(guess)
        try:
            status, payload = await self._post(target, body, headers, limit)
            result = "ok" if status == 200 else "failed"
            told = await _cost(payload) if status == 200 else 0
            tokens = guess if told is None else told
            return status, payload
        finally:
            took = time.perf_counter() - began
            if paid:
                self.extras.take(tokens - guess)
            spent.tokens += tokens
            spent.seconds += took
            self.extras.note(self.kind, result, tokens, took)

    async def _post(self, target: bytes, body: bytes, headers: Headers, limit: int) -> tuple[int, bytes]:
        ours = [] if self.foreign else [h for h in headers if not h[0].startswith(NOT_OURS)]
        answer = await self.upstream.send("POST", target, [*ours, JSON], body)
        try:
            return answer.status, await answer.read(limit)
        finally:
            await answer.close()

    async def close(self) -> None:
        """Closes the connections that are of nobody else."""
        if self.foreign:
            await self.upstream.close()


def caller_of(headers: Headers) -> bytes:
    """On whose behalf it is asked: a digest of a request's credentials, that in its query among them."""
    return _digest(headers, CREDENTIALS)


def tenant_of(headers: Headers) -> bytes:
    """Whose it is what an answer teaches: a digest of all that upstreams tell their clients apart by."""
    return _digest(headers, TENANT)


def _digest(headers: Headers, names: frozenset[bytes]) -> bytes:
    made = blake2b(digest_size=16)
    for name, value in sorted(h for h in headers if h[0] in names or (h[0] == QUERY and KEY_IN_QUERY.search(h[1]))):
        made.update(b"%d:%b%d:%b" % (len(name), name, len(value), value))
    return made.digest()


NOBODY = caller_of(())  # all clients without a key


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


async def _cost(payload: bytes) -> int | None:
    """The tokens that an answer says it cost; None where it says nothing."""
    if len(payload) <= INLINE_BYTES:
        return _cost_in(payload)
    return await asyncio.to_thread(_cost_in, payload)


def _cost_in(payload: bytes) -> int | None:
    try:
        usage = _ANSWER.decode(payload).usage
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return None if usage is None or (usage.total_tokens or -1) < 0 else usage.total_tokens
