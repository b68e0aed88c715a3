"""The Redis backend: the only module that imports redis-py.

To add a backend, write a class with the methods of `remote.Backend` and add its URL schemes to `BACKENDS`.
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

from proxy.cache.remote import MAX_ACTIVE_READS, Backend, BackendError, Values
from proxy.errors import ConfigError

# Timeouts of a command and of a connection. With redis-py's defaults and retries a dead server takes 59 s to fail. No
# request waits that long: its limit is `remote.READ_BUDGET_S`.
COMMAND_TIMEOUT_S = 0.25
CONNECT_TIMEOUT_S = 1.0
TTL_JITTER = 0.1  # share of a value's time to live: values written together must not all expire together
BACKGROUND_CONNECTIONS = 8  # for operations that no request waits for


class RedisBackend:
    """A Redis server at a URL (redis://, rediss://, unix://). Connects when it is first used."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
        self._client = redis.asyncio.Redis.from_url(
            url,
            socket_timeout=COMMAND_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            max_connections=MAX_ACTIVE_READS + BACKGROUND_CONNECTIONS,
            protocol=2,  # no HELLO and no CLIENT, so that a narrow ACL suffices
            driver_info=None,
        )
        pool = self._client.connection_pool
        first = pool.connection_class(**pool.connection_kwargs)  # an invalid option fails here, at the start
        if isinstance(first, SSLConnection):
            pool.connection_class = _sharing_context(first.ssl_context.get())

    @property
    def address(self) -> str:
        """Host and port, or the socket's path."""
        return self._address

    async def get(self, names: Sequence[bytes]) -> Values:
        """One MGET."""
        values = await _run(self._client.mget(list(names)))
        if not isinstance(values, list) or len(values) != len(names) or not all(map(_is_value, values)):
            raise BackendError("NoSuchAnswer")  # the server is not a Redis
        return values

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """One pipeline of SETs, each with an expiry."""
        pipe = self._client.pipeline(transaction=False)
        for name, value, seconds in items:
            pipe.set(name, value, px=round(1000 * seconds * random.uniform(1 - TTL_JITTER, 1 + TTL_JITTER)))
        await _run(pipe.execute())

    async def set_default(self, name: bytes, value: bytes) -> bytes | None:
        """SET NX, then GET: the first writer decides."""
        await _run(self._client.set(name, value, nx=True))
        stored = await _run(self._client.get(name))
        return stored if _is_value(stored) else None

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        """One pipeline of STRLENs; a value of another type counts as 0."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.strlen(name)
        sizes = await _run(pipe.execute(raise_on_error=False))
        return [size if isinstance(size, int) else 0 for size in sizes]

    async def delete(self, names: Sequence[bytes]) -> None:
        """One UNLINK."""
        await _run(self._client.unlink(*names))

    async def close(self) -> None:
        """Closes all connections."""
        await _run(self._client.aclose())


def _is_value(found: object) -> TypeGuard[bytes | None]:
    return found is None or isinstance(found, bytes)


def _sharing_context(context: ssl.SSLContext) -> type[SSLConnection]:
    """TLS connections that share one context. Making a context reads the system's certificates and blocks the event
    loop for 50 to 100 ms; redis-py makes one for each connection."""

    class SharedContext(SSLConnection):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context.context = context

    return SharedContext


async def _run(command: Awaitable[Any]) -> Any:
    """The result of a command. Turns every exception of the library, bugs included, into BackendError without its text,
    which may contain keys, values and passwords."""
    try:
        return await command
    except Exception as error:
        raise BackendError(type(error).__name__) from None


BACKENDS: Mapping[str, Callable[[str], Backend]] = {
    "redis": RedisBackend,
    "rediss": RedisBackend,
    "unix": RedisBackend,
}


def backend_from_url(url: str) -> Backend:
    """The backend for a URL. Raises ConfigError without repeating the URL, which may contain a password."""
    make = BACKENDS.get(url.partition("://")[0].lower())
    if make is None:
        raise ConfigError(f"PLIMSOLL_REDIS must begin with {', '.join(f'{scheme}://' for scheme in BACKENDS)}")
    try:
        return make(url)
    except Exception:
        raise ConfigError("PLIMSOLL_REDIS contains an invalid port, file or option") from None
