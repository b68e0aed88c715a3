"""The client for requests that the proxy itself sends to an upstream on behalf of a caller (summaries, embeddings).

It decides which of the caller's headers are forwarded, who is billed, and whether the request is made at all. It does
not interpret the response, except for the `usage` that says what it cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from proxy.apis import USUAL, apis
from proxy.upstreams.extra_calls import CallCost, CallDenied, ExtraCalls
from proxy.upstreams.fair_queue import FairQueue, QueueFull
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import Sender, Upstream
from proxy.wire.headers import CREDENTIALS, QUERY, Header
from proxy.wire.paths import KEY_IN_QUERY

# Prefixes of headers that describe the client's own body and request: they would be wrong for ours.
DROPPED_PREFIXES = (b"content-", b"accept", b"transfer-", b"if-", b"idempotency-", b"x-request-id")
JSON: Header = (b"content-type", b"application/json")
INLINE_BYTES = 65_536  # a longer response is parsed in a thread
# Headers by which an upstream or a gateway may distinguish its tenants. A client can invent values for some of them, so
# they separate what is learned (`tenant_of`), but they never decide who is billed (`caller_of`).
TENANT_HEADERS = CREDENTIALS | {b"cookie", b"openai-organization", b"openai-project"}
# The headers in which an API reads the key of its caller. What else a client sends as a key, an upstream with a key of
# its own (or a gateway) may ignore.
READ_KEYS = {api.name: api.server.keys for api in apis()}
BYTES_PER_TOKEN = 4  # estimates the cost of a request whose response reports no usage


class CallFailed(Exception):
    """An answer has no result. `status`: its HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@dataclass(slots=True)
class InternalClient:
    """Sends the extra calls of one `kind` (`summary`, `embeddings`) to one upstream.

    `dedicated`: the upstream is configured for these calls and is not the one that clients use. It never receives a
    client's headers, and all calls are billed to the operator. Otherwise a call carries the client's own headers, and
    only calls for clients without a key are billed to the operator, if the upstream has the operator's key. `anyone`:
    every caller may spend the operator's money, within the budget.
    """

    upstream: Sender
    kind: str
    extra_calls: ExtraCalls
    queue: FairQueue
    dedicated: bool = False
    anyone: bool = False

    async def introduce(self, headers: Headers) -> None:
        """Reads what other replicas know of the client that sent these headers, where that decides about a call."""
        caller = caller_of(headers)
        if self._operator_pays(caller) and not self.anyone:
            await self.extra_calls.accepted.learn(caller)

    def permits(self, headers: Headers) -> bool:
        """Whether a call may be made for the client that sent these headers. A denial is recorded."""
        reason = self._denial(caller_of(headers))
        if reason:
            self.extra_calls.record_call(self.kind, reason)
        return not reason

    def _denial(self, caller: bytes) -> str:
        if not self._operator_pays(caller):
            return ""
        if self.anyone:
            return "" if self.extra_calls.left else "over_budget"
        return self.extra_calls.denial_reason(caller, caller != ANONYMOUS)

    def _operator_pays(self, caller: bytes) -> bool:
        return self.dedicated or (caller == ANONYMOUS and self.upstream.has_key)

    @contextlib.asynccontextmanager
    async def slot(self, caller: bytes, urgent: bool = False) -> AsyncIterator[None]:
        """Waits for a slot in the queue, before the caller's other calls if it is urgent, and holds it.

        Raises CallDenied if the queue is full.
        """
        try:
            async with self.queue.slot(caller, urgent):
                yield
        except QueueFull:
            self.extra_calls.record_call(self.kind, "busy")
            raise CallDenied("busy") from None

    async def post(
        self,
        target: bytes,
        body: bytes,
        headers: Headers,
        limit: int,
        cost: CallCost | None = None,
        needed: Headers = (),
    ) -> tuple[int, bytes]:
        """Returns the status and the body of the response; of a body over `limit` bytes only the beginning.

        `needed`: headers that the call itself needs. Adds what the call cost to `cost`. Raises UpstreamError, and
        CallDenied if the budget is spent.
        """
        caller = caller_of(headers)
        paid, estimate = self._operator_pays(caller), len(body) // BYTES_PER_TOKEN
        if paid and not self.extra_calls.left:
            self.extra_calls.record_call(self.kind, "over_budget")
            raise CallDenied("over_budget")
        cost = cost or CallCost()
        cost.calls += 1
        started, tokens, result = time.perf_counter(), estimate, "failed"
        if paid:
            self.extra_calls.charge(estimate)
        try:
            status, payload = await self._send(target, body, headers, limit, needed)
            result = "ok" if status == 200 else "failed"
            reported = await _reported_tokens(payload) if status == 200 else 0
            tokens = estimate if reported is None else reported
            return status, payload
        finally:
            seconds = time.perf_counter() - started
            if paid:
                self.extra_calls.charge(tokens - estimate)
            cost.tokens += tokens
            cost.seconds += seconds
            self.extra_calls.record_call(self.kind, result, tokens, seconds)

    async def call_free(self, target: bytes, body: bytes, headers: Headers, limit: int, beside: str = "") -> bytes:
        """Makes a call that costs nothing, with what the caller's own request has: its headers, and the operator's key
        only where that gets it too. `beside`: see `Upstream.beside`. Returns the body of the response.

        Raises UpstreamError, and CallFailed for another status than 200 or a longer body than `limit`.
        """
        upstream = self.upstream.beside(beside) if beside and isinstance(self.upstream, Upstream) else self.upstream
        forwarded = [header for header in headers if not header[0].startswith(DROPPED_PREFIXES)]
        answer = await upstream.send("POST", target, [*forwarded, JSON], body)
        try:
            if answer.status != 200:
                raise CallFailed(answer.status)
            payload = await answer.read(limit)
            if not answer.whole and len(payload) > limit:
                raise CallFailed(answer.status)
            return payload
        finally:
            await answer.close()

    async def _send(
        self, target: bytes, body: bytes, headers: Headers, limit: int, needed: Headers
    ) -> tuple[int, bytes]:
        forwarded = [] if self.dedicated else [h for h in headers if not h[0].startswith(DROPPED_PREFIXES)]
        answer = await self.upstream.send("POST", target, [*forwarded, *needed, JSON], body)
        try:
            return answer.status, await answer.read(limit)
        finally:
            await answer.close()

    async def close(self) -> None:
        """Closes the connections to a dedicated upstream; the clients' upstream is closed by its owner."""
        if self.dedicated:
            await self.upstream.close()


def caller_of(headers: Headers) -> bytes:
    """The caller: who pays for a request. A 16-byte digest of the credentials alone, including those in the query."""
    return _digest(headers, CREDENTIALS)


def key_digest(headers: Headers) -> bytes | None:
    """A 16-byte digest of the key of a client that sends one in a header, the same however it is written. None of all
    others: of several keys the upstream may ignore what was invented, and a query can be written in many ways."""
    keys = _credentials(headers, CREDENTIALS)
    key = _bare(keys[0][1]) if len(keys) == 1 and keys[0][0] != QUERY else None
    return None if key is None else blake2b(key, digest_size=16).digest()


def _credentials(headers: Headers, names: frozenset[bytes]) -> list[Header]:
    return [h for h in headers if h[0] in names or (h[0] == QUERY and KEY_IN_QUERY.search(h[1]))]


def _bare(value: bytes) -> bytes | None:
    """A key without `Bearer`; None of what is written in another way."""
    words = value.split()
    return words[-1] if len(words) == 1 or (len(words) == 2 and words[0].lower() == b"bearer") else None


def tenant_of(headers: Headers) -> bytes:
    """The tenant: for whom a response is evidence of limits and counts. A 16-byte digest of all headers of
    `TENANT_HEADERS`, so one caller may be several tenants."""
    return _digest(headers, TENANT_HEADERS)


def voter_of(headers: Headers, address: str, accepted: bool, api: str = "") -> bytes:
    """The caller as a voter on what others get, behind an answer of an `api` with 2xx: whose key it is, if the upstream
    `accepted` keys, else the client's address. A client that sends several keys, one that the API does not read, or one
    that can be written in several ways, may invent what its upstream ignores: it counts by its address."""
    keys = [(name, value) for name, value in headers if name in CREDENTIALS or name == QUERY]
    if accepted and len(keys) == 1 and keys[0][0] in READ_KEYS.get(api, USUAL.keys):
        key = _bare(keys[0][1])
        if key is not None:
            return b"key:" + key
    return b"address:" + _network(address).encode()


def _network(address: str) -> str:
    """An address of a client; of IPv6 the network of 64 bits, whose every address one client may use."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))


def _digest(headers: Headers, names: frozenset[bytes]) -> bytes:
    found = _credentials(headers, names)
    if len(found) == 1:  # as mostly
        lines = _encoded(*found[0])
    else:
        lines = b"".join([_encoded(*header) for header in sorted(found)])
    return blake2b(lines, digest_size=16).digest()


def _encoded(name: bytes, value: bytes) -> bytes:
    return b"%d:%b%d:%b" % (len(name), name, len(value), value)


ANONYMOUS = caller_of(())  # the one caller that stands for all clients without a key


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


async def _reported_tokens(payload: bytes) -> int | None:
    """The tokens that a response reports as its cost; None if it reports none."""
    if len(payload) <= INLINE_BYTES:
        return _total_tokens(payload)
    return await asyncio.to_thread(_total_tokens, payload)


def _total_tokens(payload: bytes) -> int | None:
    try:
        usage = _ANSWER.decode(payload).usage
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return None if usage is None or (usage.total_tokens or -1) < 0 else usage.total_tokens
