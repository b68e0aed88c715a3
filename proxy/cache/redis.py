"""Redis as a backend: the only module that knows redis.

To add a backend: a class with the methods of `remote.Backend`, and its URL schemes in `BACKENDS`.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.cache.local_memory import LocalMemory as LocalMemory
from proxy.cache.remote import MOST_ASKING, Backend, BackendError, Values
from proxy.errors import ConfigError

# A command's and a connection's end; redis-py's own, with its retries, are 59 s. No request waits for either: its wait
# is `remote.BUDGET`.
COMMAND_SECONDS = 0.25
CONNECT_SECONDS = 1.0
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
