"""Redis Sentinel and Redis Cluster, as real ones: what is stored is shared, and outlives the death of the master."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from proxy.cache.cache import Cache
from proxy.cache.redis import BACKENDS, RedisBackend, backend_from_url
from proxy.cache.remote import BackendError
from proxy.cache.sealing import PREFIX, PREFIXES
from proxy.errors import ConfigError
from proxy.model.limits import LearnedLimits, Proof
from proxy.observe.log import event
from tests.certificates import certified
from tests.redis_groups import NAME, Access, Group, cluster, sentinels, until

# redis-py may lose a socket when a cancellation meets it while it connects; whoever runs next would be blamed for it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
KINDS: dict[str, Callable[[Access], AbstractContextManager[Group]]] = {"sentinel": sentinels, "cluster": cluster}
PREFIXED = (PREFIX, PREFIX, *PREFIXES[5::20])  # the first two of one slot, and one of each third of all slots
NAMES = [prefix + b"x:%d" % number for number, prefix in enumerate(PREFIXED)]
PASSWORDS = Access("p@ss:w/rd-canary", "s%ntinel-canary")


def url_of(kind: str, group: Group, access: Access = Access()) -> str:  # noqa: B008 - frozen
    """The URL of a group, with its passwords as a URL has them."""
    user = ":p%40ss%3Aw%2Frd-canary@" if access.password else ""
    tls = f"&ssl_ca_certs={access.certificate}" if access.certificate else ""
    if kind == "sentinel":
        own = "sentinel_password=s%25ntinel-canary" if access.sentinel_password else ""
        return f"redis{'s' * bool(tls)}+sentinel://{user}{group.hosts}/{NAME}/2?{own}{tls}"
    return f"redis{'s' * bool(tls)}+cluster://{user}{group.hosts}/0?{tls}"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def group(kind: str) -> Iterator[Group]:
    with KINDS[kind](Access()) as made:
        yield made


def run(url: str, test: Callable[[RedisBackend], Awaitable[None]]) -> None:
    """Runs a test with a backend."""

    async def whole() -> None:
        backend = backend_from_url(url)
        assert isinstance(backend, RedisBackend)
        try:
            async with asyncio.timeout(120):
                await test(backend)
        finally:
            await backend.close()

    asyncio.run(whole())


async def everything(backend: RedisBackend) -> None:
    """Uses every command."""
    values = [b"1", b"22", None, b"\x00" * 60_000, b"5"]
    await backend.put([(name, value, 60.0) for name, value in zip(NAMES, values, strict=True) if value is not None])
    assert await backend.get(NAMES) == values
    assert await backend.sizes(NAMES) == [1, 2, 0, 60_000, 1]
    await backend.delete(NAMES[:2])
    assert await backend.get(NAMES) == [None, None, *values[2:]]
    assert await backend.set_default(NAMES[0], b"first") == b"first"
    assert await backend.set_default(NAMES[0], b"second") == b"first"


@pytest.mark.usefixtures("patient")
def test_every_command_works(kind: str, group: Group) -> None:
    run(url_of(kind, group), everything)


@pytest.mark.usefixtures("patient")
def test_passwords_and_tls_are_those_of_the_url_and_appear_nowhere(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    access = Access(PASSWORDS.password, PASSWORDS.sentinel_password, *certified(tmp_path, "127.0.0.1"))
    with KINDS[kind](access) as group:
        run(url_of(kind, group, access), everything)

        async def refused(backend: RedisBackend) -> None:
            with pytest.raises(BackendError) as raised:
                await backend.get(NAMES)
            assert "canary" not in str(raised.value)

        run(url_of(kind, group, Access(certificate=access.certificate)), refused)
        run(url_of(kind, group, PASSWORDS), refused)  # without TLS
        assert "canary" not in backend_from_url(url_of(kind, group, access)).address
    assert "canary" not in "".join(capfd.readouterr())


async def comes_back(backend: RedisBackend) -> None:
    """Waits until a value can be read and another written; every failure on the way is a BackendError."""
    while True:
        try:
            await backend.put([(NAMES[1], b"later", 60.0)])
            assert await backend.get(NAMES[:2]) == [b"earlier", b"later"]
            return
        except BackendError:
            await asyncio.sleep(0.1)


def test_what_was_stored_outlives_the_death_of_the_master(kind: str, group: Group) -> None:
    async def check(backend: RedisBackend) -> None:
        await backend.put([(NAMES[0], b"earlier", 600.0)])
        await asyncio.to_thread(until, lambda: NAMES[0].decode() in _names(kind, group))
        group.master.kill()
        await comes_back(backend)

    run(url_of(kind, group), check)


def _names(kind: str, group: Group) -> list[str]:
    if kind == "sentinel":
        return group.replica.cli("-n", "2", "--scan").decode().split()
    return group.replica.names()


def test_a_change_of_masters_that_both_survive_is_followed(kind: str, group: Group) -> None:
    async def check(backend: RedisBackend) -> None:
        await backend.put([(NAMES[0], b"earlier", 600.0)])
        await asyncio.to_thread(until, lambda: NAMES[0].decode() in _names(kind, group))
        if kind == "cluster":
            group.replica.cli("cluster", "failover")
        else:
            group.replica.cli("replicaof", "no", "one")  # the sentinels make the old master one again, or follow
        await comes_back(backend)
        await comes_back(backend)

    run(url_of(kind, group), check)


def test_while_the_master_is_dead_the_cache_costs_nothing_and_then_it_is_shared_again(
    kind: str, group: Group, capfd: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        one, two = (Cache(url_of(kind, group), b"secret", "https://api", event=event) for _ in range(2))
        await one.start()
        await two.start()
        try:
            await _opened(one, two)
            group.master.kill()
            while not one.open_breakers()[("reading",)]:
                await one.load_records([("m", b"t%d" % len(one.failures()))])
                await one.fetch_counts([(b"k", b"x" * 20_000)])
                await asyncio.sleep(0.01)
            await _opened(one, two)
            one.record_proof("m", b"tenant", LearnedLimits(window=4_096), Proof(0, 0))
            while two.learned_limits("m", b"tenant").window != 4_096:
                await two.load_records([("m", b"tenant")])
                await asyncio.sleep(0.05)
        finally:
            await one.close()
            await two.close()

    asyncio.run(asyncio.wait_for(check(), 120))
    assert "the shared cache fails; requests continue without it" in capfd.readouterr().err


async def _opened(*caches: Cache) -> None:
    """Waits until all breakers are closed."""
    while any(cache.open_breakers()[("reading",)] for cache in caches):
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://user:hunter2@/name/0",
        "redis+sentinel://user:hunter2@h:26379,/name/0",
        "redis+sentinel://user:hunter2@h:port/name/0",
        "redis+sentinel://user:hunter2@h/name/zero",
        "redis+sentinel://user:hunter2@h/name/0/more",
        "redis+sentinel://user:hunter2@h/name?no_such_option=1",
        "rediss+sentinel://user:hunter2@h/name?ssl_ca_certs=/no/such/file",
        "redis+cluster://user:hunter2@h,h:70000",
        "redis+cluster://user:hunter2@h/1",
        "redis+cluster://user:hunter2@h?no_such_option=1",
        "rediss+cluster://user:hunter2@h?ssl_ca_certs=/no/such/file",
    ],
)
def test_a_url_that_means_nothing_stops_the_start_and_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="an invalid host, port, path, file or option") as caught:
        backend_from_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:hunter2@redis.local/0", "redis.local:6379"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("redis+sentinel://user:hunter2@one,two:5000/boss/1?sentinel_password=hunter2", "one:26379,two:5000/boss"),
        ("redis+sentinel://one", "one:26379/mymaster"),
        ("redis+cluster://user:hunter2@one,[::1]:5000", "one:6379,[::1]:5000"),
    ],
)
def test_a_backends_place_shows_no_password(url: str, address: str) -> None:
    assert backend_from_url(url).address == address


def test_the_schemes_are_those_of_the_documents() -> None:
    several = {f"redis{tls}+{kind}" for tls in ("", "s") for kind in KINDS}
    assert set(BACKENDS) == {"redis", "rediss", "unix"} | several
