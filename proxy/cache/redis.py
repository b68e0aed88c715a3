"""The Redis backends: the only module that imports redis-py.

A backend is a server, the master that sentinels name, or a cluster. To add one, write a class with the methods of
`remote.Backend` and add its URL schemes to `BACKENDS`.
"""

from __future__ import annotations

import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, NoScriptError, OutOfMemoryError, ResponseError

from proxy.cache.account_script import SCRIPT, Found, Write, found
from proxy.cache.remote import MAX_ACTIVE_EXCHANGES, MAX_ACTIVE_READS, Backend, BackendError, Values
from proxy.cache.sealing import PREFIX
from proxy.errors import ConfigError

# Timeouts of a command and of a connection. With redis-py's defaults and retries a dead server takes 59 s to fail. No
# request waits that long: its limit is `remote.READ_BUDGET_S`.
COMMAND_TIMEOUT_S = 0.25
CONNECT_TIMEOUT_S = 1.0
TTL_JITTER = 0.1  # share of a value's time to live: values written together must not all expire together
MAX_CONNECTIONS = MAX_ACTIVE_READS + MAX_ACTIVE_EXCHANGES + 8  # those for operations that no request waits for
PORT, SENTINEL_PORT = 6379, 26379
MASTER = "mymaster"  # the name in Redis' own documentation and examples
# Sets a field of a hash that ends with its first field's time; returns the sum of all fields and the time left in ms.
TALLY = """
if redis.call('HLEN', KEYS[1]) > 0 or ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
end
local sum = 0
for _, amount in ipairs(redis.call('HVALS', KEYS[1])) do sum = sum + (tonumber(amount) or 0) end
return {sum, math.max(0, redis.call('PTTL', KEYS[1]))}
"""
SHA = sha1(SCRIPT.encode()).hexdigest()  # by which Redis knows it
# Errors of a server that answers: the connection to it is not the trouble.
ANSWERS = (NoScriptError, NoPermissionError, OutOfMemoryError, ResponseError)
Client = redis.asyncio.Redis | RedisCluster
Cleanup = Callable[[], Awaitable[None]]


def _limits() -> dict[str, Any]:
    """The options of every connection, to servers and to sentinels."""
    return {
        "socket_timeout": COMMAND_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,  # no HELLO and no CLIENT, so that a narrow ACL suffices
        "driver_info": None,
    }


class RedisBackend:
    """Commands to one Redis. `client` connects when it is first used; `address` is for the log. `on_failure` is called
    after a command that failed, `on_close` with `close`."""

    def __init__(
        self, client: Client, address: str, on_failure: Cleanup | None = None, on_close: Cleanup | None = None
    ) -> None:
        self._client, self._address, self._on_failure, self._on_close = client, address, on_failure, on_close

    @property
    def address(self) -> str:
        """Hosts and ports, or the socket's path."""
        return self._address

    async def get(self, names: Sequence[bytes]) -> Values:
        """One MGET."""
        values = await self._run(self._client.mget(list(names)))
        if not isinstance(values, list) or len(values) != len(names) or not all(map(_is_value, values)):
            raise BackendError("NoSuchAnswer")  # the server is not a Redis
        return values

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """One pipeline of SETs, each with an expiry."""
        pipe = self._client.pipeline(transaction=False)
        for name, value, seconds in items:
            pipe.set(name, value, px=round(1000 * seconds * random.uniform(1 - TTL_JITTER, 1 + TTL_JITTER)))
        await self._run(pipe.execute())

    async def set_default(self, name: bytes, value: bytes) -> bytes | None:
        """SET NX, then GET: the first writer decides."""
        await self._run(self._client.set(name, value, nx=True))
        stored = await self._run(self._client.get(name))
        return stored if _is_value(stored) else None

    async def tally(self, name: bytes, field: bytes, amount: int, seconds: float) -> tuple[int, float]:
        """One EVAL."""
        given = name, field, str(amount), str(max(1, round(1000 * seconds)))
        found = await self._run(self._client.eval(TALLY, 1, *given))
        if not isinstance(found, list) or len(found) != 2 or not all(isinstance(one, int) for one in found):
            raise BackendError("NoSuchAnswer")
        return max(0, found[0]), max(0.0, found[1] / 1000)

    async def account(self, name: bytes, write: Write) -> Found:
        """One EVALSHA; where the script is not there yet, an EVAL."""
        given = write.arguments
        try:
            answer = await self._run(self._client.evalsha(SHA, 1, name, *given))
        except BackendError as error:
            if str(error) != NoScriptError.__name__:
                raise
            answer = await self._run(self._client.eval(SCRIPT, 1, name, *given))
        read = found(answer, len(write.asks))
        if read is None:
            raise BackendError("NoSuchAnswer")
        return read

    async def sizes(self, names: Sequence[bytes]) -> Sequence[int]:
        """One pipeline of STRLENs; a value of another type counts as 0."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.strlen(name)
        sizes = await self._run(pipe.execute(raise_on_error=False))
        return [size if isinstance(size, int) else 0 for size in sizes]

    async def delete(self, names: Sequence[bytes]) -> None:
        """One UNLINK."""
        await self._run(self._client.unlink(*names))

    async def close(self) -> None:
        """Closes all connections."""
        await self._run(self._client.aclose())
        if self._on_close is not None:
            await self._run(self._on_close())

    async def _run(self, command: Awaitable[Any]) -> Any:
        """The result of a command. Turns every exception of the library, bugs included, into BackendError without its
        text, which may contain keys, values and passwords."""
        try:
            return await command
        except Exception as error:
            if self._on_failure is not None and type(error) not in ANSWERS:
                with contextlib.suppress(Exception):
                    await self._on_failure()
            raise BackendError(type(error).__name__) from None


class ClusterBackend(RedisBackend):
    """Commands to a cluster: names of several slots are read at once, by one MGET for each."""

    async def get(self, names: Sequence[bytes]) -> Values:
        """One MGET for each slot, all in one round trip."""
        places: dict[bytes, list[int]] = {}
        for place, name in enumerate(names):
            places.setdefault(name.partition(b"}")[0], []).append(place)
        if len(places) <= 1:
            return await super().get(names)
        pipe = self._client.pipeline(transaction=False)
        for of_slot in places.values():
            pipe.execute_command("MGET", *(names[place] for place in of_slot))
        found: list[bytes | None] = [None] * len(names)
        for of_slot, values in zip(places.values(), await self._run(pipe.execute()), strict=True):
            if not isinstance(values, list) or len(values) != len(of_slot) or not all(map(_is_value, values)):
                raise BackendError("NoSuchAnswer")
            for place, value in zip(of_slot, values, strict=True):
                found[place] = value
        return found

    async def put(self, items: Sequence[tuple[bytes, bytes, float]]) -> None:
        """One pipeline of SETs to each node; what is common to all follows them, as it may say that others changed."""
        common = [item for item in items if item[0].startswith(PREFIX)]
        for part in ([item for item in items if not item[0].startswith(PREFIX)], common):
            if part:
                await super().put(part)


def _is_value(found: object) -> TypeGuard[bytes | None]:
    return found is None or isinstance(found, bytes)


def _server(url: str) -> Backend:
    """A server at a URL (redis://, rediss://, unix://)."""
    parts = urlsplit(url)
    client = redis.asyncio.Redis.from_url(url, max_connections=MAX_CONNECTIONS, **_limits())
    first = _first_connection(client)
    if isinstance(first, SSLConnection):
        client.connection_pool.connection_class = _with_context(SSLConnection, first.ssl_context.get())
    return RedisBackend(client, f"{parts.hostname}:{parts.port or PORT}" if parts.hostname else parts.path)


def _first_connection(client: redis.asyncio.Redis) -> Any:
    """A connection of a client, not opened: an invalid option fails here, at the start."""
    pool = client.connection_pool
    return pool.connection_class(**pool.connection_kwargs)


@dataclass(frozen=True, slots=True)
class _Hosts:
    """The parts of a URL with several hosts. `options` are redis-py's, from user, password and query; `path` is what
    follows the hosts. `context` is set if TLS is used."""

    hosts: tuple[tuple[str, int], ...]
    path: tuple[str, ...]
    options: dict[str, Any]
    context: ssl.SSLContext | None

    @property
    def address(self) -> str:
        """The hosts and their ports."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def tls(self) -> dict[str, Any]:
        """The options of TLS."""
        given = {name: value for name, value in self.options.items() if name.startswith("ssl_")}
        return given | {"ssl": self.context is not None}


def _hosts_of(url: str, port: int) -> _Hosts:
    """The parts of a URL such as rediss+cluster://user:password@host:port,host/. Raises ValueError."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    named = [urlsplit(f"//{host}") for host in hosts.split(",")]
    if not all(host.hostname for host in named):
        raise ValueError("a host has no name")
    scheme = parts.scheme.partition("+")[0]
    options: dict[str, Any] = {**parse_url(f"{scheme}://{user}{at}any?{parts.query}")}
    del options["host"]
    tls = options.pop("connection_class", None)
    context = tls(**{n: v for n, v in options.items() if n.startswith("ssl_")}).ssl_context.get() if tls else None
    path = tuple(part for part in parts.path.split("/") if part)
    return _Hosts(tuple((host.hostname or "", host.port or port) for host in named), path, options, context)


def _sentinel(url: str) -> Backend:
    """The master of a name, as sentinels report it: redis+sentinel://host:port,host:port/NAME/db. The user and the
    password are those of the servers, `sentinel_username` and `sentinel_password` those of the sentinels."""
    parts = _hosts_of(url, SENTINEL_PORT)
    name, database = (*parts.path, *(MASTER, "0")[len(parts.path) :])
    options = {key: value for key, value in parts.options.items() if not key.startswith("sentinel_")}
    own = {key.removeprefix("sentinel_"): parts.options[key] for key in parts.options.keys() - options.keys()}
    pooled = {**_limits(), **options, "db": int(database), "max_connections": MAX_CONNECTIONS}
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        parts.hosts,
        sentinel_kwargs={**_limits(), **parts.tls, **own},
        ssl=parts.context is not None,
        **pooled,
    )
    if parts.context is None:
        client = sentinels.master_for(name)
    else:
        secure = _with_context(SentinelManagedSSLConnection, parts.context)
        client = sentinels.master_for(name, connection_class=secure)
        for sentinel in sentinels.sentinels:
            sentinel.connection_pool.connection_class = _with_context(SSLConnection, parts.context)
    _first_connection(client)
    return RedisBackend(client, f"{parts.address}/{name}", on_close=sentinels.aclose)


def _cluster(url: str) -> Backend:
    """A cluster, of which some nodes are named: redis+cluster://host:port,host:port."""
    parts = _hosts_of(url, PORT)
    if parts.path not in ((), ("0",)):
        raise ValueError("a cluster has one database")
    client = RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in parts.hosts],
        dynamic_startup_nodes=False,  # the named hosts stay: all addresses behind them may change
        require_full_coverage=False,  # what can be had is better than nothing
        max_connections=MAX_CONNECTIONS,
        **_limits() | parts.options | parts.tls,
    )
    if parts.context is not None:
        secure = _with_context(SSLConnection, parts.context)
        client.connection_kwargs["connection_class"] = secure
        for node in client.startup_nodes:
            node.connection_class = secure
    return ClusterBackend(client, parts.address, client.aclose)  # a pipeline that fails does not ask for the new master


def _with_context(kind: type[SSLConnection], context: ssl.SSLContext) -> type[SSLConnection]:
    """TLS connections that share one context. Making a context reads the system's certificates and blocks the event
    loop for 50 to 100 ms; redis-py makes one for each connection."""

    class SharedContext(kind):  # type: ignore[valid-type, misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context.context = context

    return SharedContext


BACKENDS: Mapping[str, Callable[[str], Backend]] = {
    "redis": _server,
    "rediss": _server,
    "unix": _server,
    "redis+sentinel": _sentinel,
    "rediss+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "rediss+cluster": _cluster,
}


def backend_from_url(url: str) -> Backend:
    """The backend for a URL. Raises ConfigError without repeating the URL, which may contain a password."""
    make = BACKENDS.get(url.partition("://")[0].lower())
    if make is None:
        raise ConfigError(f"PLIMSOLL_REDIS must begin with {', '.join(f'{scheme}://' for scheme in BACKENDS)}")
    try:
        return make(url)
    except Exception:
        raise ConfigError("PLIMSOLL_REDIS contains an invalid host, port, path, file or option") from None
