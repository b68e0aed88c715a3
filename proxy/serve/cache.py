"""What replicas share, behind one door; the only module that knows redis. No request fails or waits long because of it.

To add a backend: a class with the methods of `shared.remote.Backend`, and its URL schemes in `BACKENDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.errors import ConfigError
from proxy.serve.shared.contents import Contents
from proxy.serve.shared.counts import Counts, Pair, Tally
from proxy.serve.shared.keyring import SECRET, Keyring
from proxy.serve.shared.memory import LocalMemory as LocalMemory
from proxy.serve.shared.remote import MOST_ASKING, Backend, BackendError, Remote, Values
from proxy.serve.shared.teaching import PROBE_AFTER, Counted, Key, Shown, Teaching
from proxy.types import Learned, Proof

# A command's and a connection's end; redis-py's own, with its retries, are 59 s. No request waits for either: its wait
# is `remote.BUDGET`.
COMMAND_SECONDS = 0.25
CONNECT_SECONDS = 1.0
CLOSE_SECONDS = 0.25
SPREAD = 0.1  # of a value's time to live: not all end at once
ASIDE = 8  # connections for what no request waits for


class RedisBackend:
    """Redis behind one URL (redis://, rediss://, unix://)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._place = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        self._client = redis.asyncio.Redis.from_url(
            url,
            socket_timeout=COMMAND_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            max_connections=MOST_ASKING + ASIDE,
            protocol=2,  # no HELLO and no CLIENT, so that a narrow ACL will do
            driver_info=None,
        )
        pool = self._client.connection_pool
        first = pool.connection_class(**pool.connection_kwargs)  # an option that means nothing fails here, at the start
        if isinstance(first, SSLConnection):
            pool.connection_class = _sharing(first.ssl_context.get())

    @property
    def place(self) -> str:
        """Host and port, or the socket's path."""
        return self._place

    async def get(self, names: Sequence[bytes]) -> Values:
        """One MGET."""
        values = await _done(self._client.mget(list(names)))
        if not isinstance(values, list) or len(values) != len(names) or not all(map(_is_value, values)):
            raise BackendError("NoSuchAnswer")  # whatever it is that listens there
        return values

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """One pipeline of SETs, each with its end."""
        pipe = self._client.pipeline(transaction=False)
        for name, value, seconds in items:
            pipe.set(name, value, px=round(1000 * seconds * random.uniform(1 - SPREAD, 1 + SPREAD)))
        await _done(pipe.execute())

    async def agree(self, name: bytes, value: bytes) -> bytes | None:
        """SET NX, then GET: whoever came first decided."""
        await _done(self._client.set(name, value, nx=True))
        agreed = await _done(self._client.get(name))
        return agreed if _is_value(agreed) else None

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        """One pipeline of STRLENs; what is no string has no size."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.strlen(name)
        sizes = await _done(pipe.execute(raise_on_error=False))
        return [size if isinstance(size, int) else 0 for size in sizes]

    async def drop(self, names: Sequence[bytes]) -> None:
        """One UNLINK."""
        await _done(self._client.unlink(*names))

    async def close(self) -> None:
        """Ends all connections."""
        await _done(self._client.aclose())


def _is_value(found: object) -> TypeGuard[bytes | None]:
    return found is None or isinstance(found, bytes)


def _sharing(context: ssl.SSLContext) -> type[SSLConnection]:
    """TLS connections with one context for all: to make one reads the machine's certificates, 50 to 100 ms in which
    the event loop would stand still at each new connection."""

    class Sharing(SSLConnection):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context.context = context

    return Sharing


async def _done(work: Awaitable[Any]) -> Any:
    """What a command came to. Whatever the library raises, its own mistakes too, becomes one kind of error, without
    its text: keys, values and passwords stand in those."""
    try:
        return await work
    except Exception as error:
        raise BackendError(type(error).__name__) from None


BACKENDS: Mapping[str, Callable[[str], Backend]] = {
    "redis": RedisBackend,
    "rediss": RedisBackend,
    "unix": RedisBackend,
}


def backend_of(url: str) -> Backend:
    """The backend of a URL. Raises ConfigError, which does not repeat the URL: a password may stand in it."""
    make = BACKENDS.get(url.partition("://")[0].lower())
    if make is None:
        raise ConfigError(f"PLIMSOLL_REDIS must begin with {', '.join(f'{scheme}://' for scheme in BACKENDS)}")
    try:
        return make(url)
    except Exception:
        raise ConfigError("PLIMSOLL_REDIS holds a port, a file or an option that means nothing") from None


class Cache:
    """Counts, lessons and contents: in this process first, and shared where there is a URL.

    `secret` makes names and seals; without one, replicas agree on one and contents stay in process. `probe_after` is
    how many seconds a learned limit is believed before a request tries it. Methods may be called before `start` and
    after `close`: then they know what this process knows.
    """

    def __init__(
        self,
        url: str | None = None,
        secret: bytes | None = None,
        upstream: str = "",
        probe_after: float = PROBE_AFTER,
    ) -> None:
        self.probe_after = probe_after
        self.memory = LocalMemory()
        self._tally = Tally()
        self._keyring = Keyring(secret)
        self._remote = Remote(backend_of(url), SECRET) if url else None
        self.shared = self._remote is not None  # whether there is a backend at all
        self._counts = Counts(self.memory, self._remote, self._keyring, self._tally) if self._remote else None
        self._teaching = Teaching(upstream, self._remote, self._keyring, self._tally, probe_after=probe_after)
        self.personal = self._teaching.personal  # bound, not wrapped: every request asks
        self.corrected = self._teaching.corrected
        self.correction_now = self._teaching.correction
        self.contents = Contents(self._remote, self._keyring, self._tally)

    async def start(self) -> None:
        """Connects, and begins to share. It does not wait for the backend."""
        if self._remote is None:
            return
        self._remote.start()
        self._remote.spawn(self._teaching.refresh_on())
        if not self._keyring.may_seal:
            self._remote.spawn(self._keyring.agree_on(self._remote))

    async def close(self) -> None:
        """Tells the backend what it was not told yet, if it answers soon, and ends all connections."""
        if self._remote is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._teaching.refresh(), CLOSE_SECONDS)
        await self._remote.close()

    async def fetch_counts(self, pairs: Sequence[Pair]) -> None:
        """Puts what is shared of these into `memory`: one question, and at most `remote.BUDGET` seconds."""
        if self._counts is not None:
            await self._counts.fetch(pairs)

    def store_counts(self, pairs: Sequence[Pair]) -> None:
        """Shares what `memory` now knows of pairs that `fetch_counts` asked for in vain. Nobody waits for it."""
        if self._counts is not None:
            self._counts.store(pairs)

    async def learn_of(self, keys: Iterable[Key]) -> None:
        """Asks for what other replicas learned of models and callers; at most `remote.BUDGET` seconds, and only now and
        then."""
        await self._teaching.learn_of(keys)

    def learned_now(self, model: str, caller: bytes) -> Learned:
        """What refusals proved of a model for a caller, by what is known here."""
        return self._teaching.learned(model, caller)

    def prove(self, model: str, caller: bytes, learned: Learned, proof: Proof) -> None:
        """Keeps what a refusal proved of a model for a caller, on every replica; `proof` tells its circumstances."""
        self._teaching.prove(model, caller, learned, proof)

    def answered(self, model: str, caller: bytes, used: int, reply: int, *, agrees: bool, probed: bool) -> None:
        """Takes back, on every replica, what the answer to a prompt of `used` tokens disproves (`Limits.answered`)."""
        self._teaching.answered(model, caller, used, reply, agrees=agrees, probed=probed)

    def probes(self, model: str, caller: bytes) -> bool:
        """Whether the request that asks may try a caller's limits: one in each interval may."""
        return self._teaching.probes(model, caller)

    def doubt(self) -> None:
        """The upstream could not be reached: it may come back with other limits."""
        self._teaching.doubt()

    def forget(self, model: str) -> None:
        """Forgets what was learned of a model and of its counts, of every caller, on every worker and replica."""
        self._teaching.forget(model)

    def shown(self, model: str | None = None, caller: bytes | None = None) -> list[Shown]:
        """The limits that were learned and hold now, with their proofs."""
        return self._teaching.shown(model, caller)

    def counted(self, model: str, caller: bytes | None = None) -> list[Counted]:
        """What answers told of a model's counts, of all callers or of one."""
        return self._teaching.counted(model, caller)

    def agreed(self, model: str, row: float) -> tuple[int, float | None]:
        """How many callers have a say in a model's ratio beside the family's `row`, and the ratio they agree on."""
        return self._teaching.agreed(model, row)

    def observe(self, model: str, caller: bytes, ratio: float) -> None:
        """Adds what the usage of one answer to a caller told of a model's ratio."""
        self._teaching.observe(model, caller, ratio)

    def lookups(self) -> dict[tuple[str, str], int]:
        """Lookups so far, by tier and result."""
        return {
            ("local", "hit"): self.memory.hits,
            ("local", "miss"): self.memory.misses,
            ("redis", "hit"): self._tally.hits,
            ("redis", "miss"): self._tally.misses,
        }

    def troubles(self) -> dict[tuple[str], int]:
        """What went wrong so far, by kind: those of `remote.Tally`, and `foreign` values."""
        kinds = ("skipped", "late", "errors", "lost", "oversize")
        tally = self._remote.tally if self._remote else None
        return {("foreign",): self._tally.foreign, **{(kind,): getattr(tally, kind, 0) for kind in kinds}}

    def open_breakers(self) -> dict[tuple[str], int]:
        """1 for what is not asked at present, reading or writing."""
        breakers = {"reading": self._remote.reading, "writing": self._remote.writing} if self._remote else {}
        return {(name,): int(not breaker.closed) for name, breaker in breakers.items()}
