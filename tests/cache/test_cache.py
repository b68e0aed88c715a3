from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.cache import counts
from proxy.cache import redis as caching
from proxy.cache.cache import Cache
from proxy.errors import ConfigError
from proxy.model.limits import LearnedLimits, Proof
from proxy.observe.log import event
from tests.cache.lessons import FAMILY, VOTE, counts_as, teach
from tests.cache.shelf import WAIT_SECONDS, until
from tests.certificates import certified
from tests.ports import held_port
from tests.redis_server import RedisServer, redis_server

# redis-py may lose a socket when a cancellation meets it while it connects; whoever runs next would be blamed for it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECRET = b"a secret of the user's"
CALLER = b"a caller"
CANARY = b"canary: what they talked about"
PAIRS = [(b"key-%d" % number, CANARY + b" %d" % number) for number in range(20)]
README = Path(__file__).parents[2] / "deploy" / "docs" / "resources.md"
HANG_S = 30.0  # no request waits for so long; redis-py's own defaults would wait 59 s


@pytest.fixture(autouse=True)
def all_is_worth_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MIN_FETCH_BYTES", 0)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@asynccontextmanager
async def cache_at(url: str | None, secret: bytes | None = SECRET) -> AsyncIterator[Cache]:
    """A started cache, closed at the end."""
    cache = Cache(url, secret, "https://api.example/v1", event=event)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.close()


def stored(server: RedisServer) -> list[str]:
    """The names of all that is not a stamp of records."""
    return [name for name in server.names() if ":stamp:" not in name]


def run(test: Callable[..., Awaitable[None]], url: str | None, caches: int = 1, secret: bytes | None = SECRET) -> None:
    """Runs a test with started caches of one Redis."""

    async def whole() -> None:
        if caches == 1:
            async with cache_at(url, secret) as one:
                await test(one)
        else:
            async with cache_at(url, secret) as one, cache_at(url, secret) as two:
                await test(one, two)

    asyncio.run(whole())


def answers(cache: Cache) -> int:
    """What Redis was asked for and answered so far."""
    lookups = cache.lookups()
    return lookups[("redis", "hit")] + lookups[("redis", "miss")]


async def fetched(cache: Cache, number: int = 20) -> list[tuple[int, ...] | None]:
    """What Redis has for pairs, once it has answered: on a busy machine it may take more than a request's budget. It is
    asked again only after a read that failed, so that what it answered is counted once."""
    await until(lambda: not reading(cache))
    pairs, before = PAIRS[:number], answers(cache)
    async with asyncio.timeout(WAIT_SECONDS):
        while answers(cache) == before:
            await until(lambda: not failing(cache))
            await cache.fetch_counts(pairs)
            await until(lambda: not reading(cache))
            await asyncio.sleep(0.002)  # without a secret nothing is asked, and nothing waited for
    return [cache.memory.get(key) for key, _ in pairs]


async def count(cache: Cache, number: int = 20) -> None:
    """What a request does, until Redis has answered: it fetches, counts what is new, stores."""
    pairs = PAIRS[:number]
    await fetched(cache, number)
    for key, material in pairs:
        if cache.memory.get(key) is None:
            cache.memory.put(key, (len(material), 7))
    cache.store_counts(pairs)


async def asked(cache: Cache) -> float:
    """Seconds that a request which remembers nothing waits for the cache."""
    began = time.monotonic()
    await cache.fetch_counts([(random.randbytes(8), random.randbytes(100))])
    return time.monotonic() - began


def failing(cache: Cache) -> bool:
    return bool(cache.open_breakers()[("reading",)])


def reading(cache: Cache) -> bool:
    """Whether a read is under way, late or not."""
    assert cache._remote is not None
    return cache._remote._active_reads > 0


RIGHT = [(len(material), 7) for _, material in PAIRS]


def test_two_proxies_on_one_redis_share_their_counts(server: RedisServer) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one)
        assert one.lookups()[("redis", "miss")] == 20
        await until(lambda: len(stored(server)) == 20)
        assert await fetched(two) == RIGHT
        assert two.lookups()[("redis", "hit")] == 20
        assert two.lookups()[("local", "hit")] >= 20

    run(test, server.url, caches=2)


def test_two_proxies_on_one_redis_share_what_they_learned(server: RedisServer) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await two.load_records([("gpt-4", CALLER)])
        one.record_proof("gpt-4", CALLER, LearnedLimits(window=6000), Proof(0, 0))
        teach(one, "gpt-4", CALLER, 1.26, VOTE, votes=True)
        await until(lambda: two.learned_limits("gpt-4", CALLER).window == 6000)
        await until(lambda: counts_as(two.correction("gpt-4", CALLER, FAMILY, False), 1.26))
        one.record_proof("other", CALLER, LearnedLimits(max_input=100), Proof(0, 0))
        await until(lambda: len(stored(server)) == 4)
        await two.load_records([("other", CALLER)])
        await until(lambda: two.learned_limits("other", CALLER).max_input == 100)

    run(test, server.url, caches=2)


def test_a_dump_of_redis_tells_nothing_of_content(server: RedisServer) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one)
        one.contents.put("summary", b"caller", b"key", CANARY)
        one.record_proof("a-private-model", CALLER, LearnedLimits(window=6000), Proof(0, 0))
        await until(lambda: len(stored(server)) == 22)
        async with asyncio.timeout(WAIT_SECONDS):
            while await two.contents.get("summary", b"caller", b"key") != CANARY:
                await until(lambda: not failing(two))
        assert await two.contents.get("summary", b"somebody else", b"key") is None
        kept = "".join(server.names()).encode()
        kept += b"".join(server.cli("--no-raw", "DUMP", name) + server.cli("GET", name) for name in server.names())
        for telling in (b"canary", b"talked", b"private", b"caller", b"example", SECRET):
            assert telling not in kept
        assert all(re.fullmatch(r"plimsoll:\{(v1|\d+)\}:[a-z:0-9.]+:[0-9a-f]{32}", name) for name in server.names())

    run(test, server.url, caches=2)


def test_all_that_is_kept_ends_some_day_and_not_all_at_once(server: RedisServer) -> None:
    async def test(one: Cache) -> None:
        await count(one)
        await until(lambda: len(stored(server)) == 20)
        ends = [int(server.cli("PTTL", name)) for name in server.names()]
        assert all(0.85 * 86_400_000 < end < 1.15 * 86_400_000 for end in ends)
        assert max(ends) - min(ends) > 60_000

    run(test, server.url)


def test_without_a_secret_proxies_agree_on_one_and_share_counts_but_no_content(
    server: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await until(lambda: server.names() == ["plimsoll:{v1}:secret"])
        one.contents.put("summary", b"caller", b"key", CANARY)

        async def shared() -> bool:
            await count(one)
            return await fetched(two) == RIGHT

        async with asyncio.timeout(WAIT_SECONDS):
            while not await shared():
                await asyncio.sleep(0.02)
        assert await two.contents.get("summary", b"caller", b"key") is None
        assert await one.contents.get("summary", b"caller", b"key") == CANARY

    run(test, server.url, caches=2, secret=None)
    assert capfd.readouterr().err.count("PLIMSOLL_SECRET is not set") == 2


def test_another_secret_on_the_same_redis_finds_nothing(server: RedisServer) -> None:
    async def test(one: Cache) -> None:
        await count(one)
        await until(lambda: len(stored(server)) == 20)
        async with cache_at(server.url, b"another secret") as other:
            assert await fetched(other) == [None] * 20
            assert other.failures()[("foreign",)] == 0

    run(test, server.url)


@pytest.mark.parametrize("poison", [b"junk", b"\x01" + b"x" * 60, b"\x07other version", b"x" * 200_000])
def test_a_poisoned_value_is_a_miss_and_is_replaced(server: RedisServer, poison: bytes, patient: None) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one, 1)
        await until(server.names)
        (name,) = server.names()
        good = server.cli("GET", name)
        server.put(name, poison)
        assert await fetched(two, 1) == [None]
        assert two.failures()[("foreign",)] == 1
        await count(two, 1)
        await until(lambda: server.cli("GET", name) == good)

    run(test, server.url, caches=2)


def test_a_name_that_holds_something_else_is_a_miss(server: RedisServer) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one, 1)
        await until(server.names)
        (name,) = server.names()
        server.cli("DEL", name)
        server.cli("LPUSH", name, "a")
        await count(two, 1)
        await until(lambda: server.cli("TYPE", name).strip() == b"string")

    run(test, server.url, caches=2)


def test_a_value_of_100_mb_delays_nobody_and_is_removed(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "COMMAND_TIMEOUT_S", 20.0)  # however long it takes to come on a busy machine

    async def test(one: Cache, two: Cache) -> None:
        await count(one, 1)
        await until(server.names)
        (name,) = server.names()
        server.cli("SETRANGE", name, str(100 * 2**20), "x")
        await until(lambda: not failing(two))
        await two.fetch_counts(PAIRS[:1])
        assert not two.failures()[("oversize",)], "it goes on before the value has come"
        assert two.memory.get(PAIRS[0][0]) is None
        await until(lambda: two.failures()[("oversize",)] == 1)
        assert server.names() == []
        await until(lambda: not failing(two))

    run(test, server.url, caches=2)


def dead(url: str) -> list[float]:
    """Seconds that 50 requests wait for a cache that is not there."""
    waits: list[float] = []

    async def test(cache: Cache) -> None:
        waits.append(await asked(cache))
        await until(lambda: failing(cache))
        for _ in range(49):
            waits.append(await asked(cache))
            cache.record_proof("m", CALLER, LearnedLimits(window=5), Proof(0, 0))
            assert cache.learned_limits("m", CALLER).window == 5
        assert cache.failures()[("skipped",)] >= 40, "nobody waits while the breaker is open"
        await cache.load_records([("m2", CALLER)])
        assert await cache.contents.get("summary", b"c", b"k") is None

    run(test, url)
    return waits


def test_a_redis_that_refuses_delays_no_request() -> None:
    with held_port() as port:
        waits = dead(f"redis://127.0.0.1:{port}/0")
    assert max(waits) < HANG_S


def test_a_black_hole_delays_the_first_request_by_its_budget_and_then_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        waits = dead(f"redis://127.0.0.1:{hole.getsockname()[1]}/0")
    assert waits[0] < HANG_S


def test_a_host_that_does_not_exist_delays_no_request() -> None:
    waits = dead("redis://nobody.invalid:6379/0")
    assert max(waits) < HANG_S


def test_a_wrong_password_is_told_once_and_never_shown(capfd: pytest.CaptureFixture[str], patient: None) -> None:
    with redis_server("--requirepass", "the right one") as server:
        dead(server.url.replace("//", "//user:hunter2@"))
        dead(server.url)
    told = capfd.readouterr().err
    assert told.count("the shared cache fails") == 2
    assert f"server=127.0.0.1:{server.port} trouble=AuthenticationError" in told
    assert "hunter2" not in told


def test_a_slow_redis_is_left_alone_until_it_is_quick_again(server: RedisServer) -> None:
    async def test(one: Cache) -> None:
        await count(one)
        await until(lambda: len(stored(server)) == 20)
        await until(lambda: not failing(one))  # else nobody asks
        with server.stopped():
            waits = [await asked(one) for _ in range(50)]
            assert waits[0] < HANG_S
            assert one.failures()[("skipped",)] >= 40, "nobody waits while the breaker is open"
            assert one.failures()[("late",)] >= 1
        await until(lambda: not failing(one))
        async with cache_at(server.url) as two:
            assert await fetched(two) == RIGHT

    run(test, server.url)


def test_a_redis_that_is_killed_under_load_costs_no_request_and_is_used_again_when_it_is_back(
    server: RedisServer,
) -> None:
    async def test(one: Cache) -> None:
        waits: list[float] = []

        async def load() -> None:
            while True:
                waits.append(await asked(one))
                one.store_counts(PAIRS)
                await asyncio.sleep(0.001)

        running = [asyncio.create_task(load()) for _ in range(8)]
        await until(lambda: len(waits) > 200)
        server.kill()
        await until(lambda: failing(one))
        seen = len(waits)
        await until(lambda: len(waits) > seen + 200)
        server.start()
        await until(lambda: not failing(one))
        for task in running:
            task.cancel()
        results = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert max(waits) < HANG_S
        one.record_proof("gpt-4", CALLER, LearnedLimits(window=6000), Proof(0, 0))
        await until(server.names)

    run(test, server.url)


def test_a_full_redis_is_still_read(patient: None) -> None:
    with redis_server("--maxmemory-policy", "noeviction") as server:

        async def test(one: Cache, two: Cache) -> None:
            await count(one, 10)
            await until(lambda: len(stored(server)) == 10)
            server.cli("CONFIG", "SET", "maxmemory", "1")
            assert await fetched(two) == RIGHT[:10] + [None] * 10
            await count(two)
            await until(lambda: two.open_breakers()[("writing",)])
            assert (failing(two), two.failures()[("lost",)]) == (False, 10)
            server.cli("CONFIG", "SET", "maxmemory", "0")
            two.record_proof("m", CALLER, LearnedLimits(window=5), Proof(0, 0))
            await until(lambda: len(stored(server)) == 11)

        run(test, server.url, caches=2)


def test_a_read_only_replica_is_read(server: RedisServer, capfd: pytest.CaptureFixture[str], patient: None) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one, 10)
        await until(lambda: len(stored(server)) == 10)
        with held_port() as port:
            server.cli("REPLICAOF", "127.0.0.1", str(port))
            assert await fetched(two) == RIGHT[:10] + [None] * 10
            await count(two)
            await until(lambda: two.open_breakers()[("writing",)])
            assert not failing(two)

    run(test, server.url, caches=2)
    assert "trouble=ReadOnlyError" in capfd.readouterr().err


def test_a_narrow_acl_will_do(server: RedisServer, capfd: pytest.CaptureFixture[str]) -> None:
    rights = "+get +set +mget +strlen +unlink +ping +select +auth".split()
    server.cli("ACL", "SETUSER", "plimsoll", "on", ">pw", "~plimsoll:*", "resetchannels", "-@all", *rights)

    async def test(one: Cache, two: Cache) -> None:
        await count(one)
        await until(lambda: len(stored(server)) == 20 + 1)
        assert await fetched(two) == RIGHT

    async def told(one: Cache, two: Cache) -> None:
        one.record_proof("m", CALLER, LearnedLimits(window=5), Proof(0, 0))
        await until(lambda: len(stored(server)) == 22)

    async def agreed(one: Cache, two: Cache) -> None:
        await until(lambda: server.names())

    url = server.url.replace("//", "//plimsoll:pw@")
    run(agreed, url, caches=2, secret=None)
    run(test, url, caches=2)
    run(told, url, caches=2)
    assert "NoPermission" not in capfd.readouterr().err


def test_a_right_that_is_missing_is_a_trouble_like_any_other(
    server: RedisServer, capfd: pytest.CaptureFixture[str], patient: None
) -> None:
    server.cli("ACL", "SETUSER", "plimsoll", "on", ">pw", "~*", "-@all", "+get")
    dead(server.url.replace("//", "//plimsoll:pw@"))
    assert "trouble=NoPermissionError" in capfd.readouterr().err


def test_a_thousand_clients_that_go_away_never_leave_a_wrong_value_to_others(server: RedisServer) -> None:
    async def test(one: Cache, two: Cache) -> None:
        await count(one)
        await until(lambda: len(stored(server)) == 20)
        chance = random.Random(1)
        right = dict(zip([key for key, _ in PAIRS], RIGHT, strict=True))

        async def client() -> None:
            cache, pairs = two, chance.sample(PAIRS, 5)
            for key, _ in pairs:
                cache.memory._young.pop(key, None)
            await cache.fetch_counts(pairs)
            assert all(cache.memory.get(key) in (right[key], None) for key, _ in pairs)

        for _ in range(100):
            clients = [asyncio.create_task(client()) for _ in range(10)]
            for task in chance.sample(clients, 8):
                asyncio.get_running_loop().call_later(chance.random() / 500, task.cancel)
            done = await asyncio.gather(*clients, return_exceptions=True)
            assert all(result is None or isinstance(result, asyncio.CancelledError) for result in done)
        assert two.failures()[("foreign",)] == 0
        for key, _ in PAIRS:
            two.memory._young.pop(key, None)
        assert await fetched(two) == RIGHT  # on a machine that stands still the breaker may have opened until now
        assert two.lookups()[("redis", "hit")] > 0

    run(test, server.url, caches=2)


def test_a_burst_of_requests_goes_on_without_waiting_for_connections(server: RedisServer) -> None:
    async def test(one: Cache) -> None:
        await count(one, 1)
        waits = await asyncio.gather(*(asked(one) for _ in range(300)))
        assert max(waits) < HANG_S
        assert one.failures()[("skipped",)] > 0
        assert int(server.cli("INFO", "clients").decode().partition("connected_clients:")[2].split()[0]) < 60

    run(test, server.url)


def test_what_waits_to_be_written_is_written_at_the_end(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    monkeypatch.setattr("proxy.cache.cache.CLOSE_TIMEOUT_S", 20.0)

    async def test(one: Cache) -> None:
        await until(lambda: server.cli("CLIENT", "LIST").count(b"cmd=mget"))
        teach(one, "gpt-4", CALLER, 1.5, VOTE, votes=True)

    run(test, server.url)
    assert len(stored(server)) == 2  # the caller's line, and its vote


def test_redis_may_be_reached_by_tls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key, cert = certified(tmp_path, "127.0.0.1")
    files = ["--tls-key-file", str(key), "--tls-cert-file", str(cert), "--tls-ca-cert-file", str(cert)]
    with redis_server(*files, "--tls-auth-clients", "no", tls=True) as server:

        async def test(one: Cache) -> None:
            await count(one)
            async with cache_at(f"{server.url}?ssl_ca_certs={cert}") as two:
                async with asyncio.timeout(WAIT_SECONDS):
                    while await fetched(two) != RIGHT:
                        await asyncio.sleep(0.01)

        run(test, f"{server.url}?ssl_ca_certs={cert}")
        assert "Certificate" not in capfd.readouterr().err
        dead(server.url)  # a certificate that nobody we trust signed


def test_redis_may_ask_for_a_certificate_of_ours(tmp_path: Path) -> None:
    key, cert = certified(tmp_path, "127.0.0.1")
    our_key, ours = certified(tmp_path, "plimsoll")
    both = tmp_path / "authorities.pem"
    both.write_bytes(cert.read_bytes() + ours.read_bytes())
    files = ["--tls-key-file", str(key), "--tls-cert-file", str(cert), "--tls-ca-cert-file", str(both)]
    with redis_server(*files, "--tls-auth-clients", "yes", tls=True) as server:
        plain = f"{server.url}?ssl_ca_certs={cert}"
        shown = f"{plain}&ssl_certfile={ours}&ssl_keyfile={our_key}"

        async def test(one: Cache) -> None:
            await count(one)
            async with cache_at(shown) as two:
                async with asyncio.timeout(WAIT_SECONDS):
                    while await fetched(two) != RIGHT:
                        await asyncio.sleep(0.01)

        run(test, shown)
        dead(plain)  # who shows none is turned away


def test_redis_may_be_reached_by_a_socket_file(tmp_path: Path) -> None:
    with redis_server("--unixsocket", str(tmp_path / "redis.sock")) as server:

        async def test(one: Cache) -> None:
            await count(one)
            await until(lambda: len(stored(server)) == 20)

        run(test, f"unix://{tmp_path / 'redis.sock'}")


def test_without_a_url_everything_is_remembered_in_this_process() -> None:
    async def test(one: Cache) -> None:
        await one.fetch_counts(PAIRS)
        assert one.memory.get(PAIRS[0][0]) is None
        one.memory.put(PAIRS[0][0], (5,))
        one.store_counts(PAIRS)
        assert one.memory.get(PAIRS[0][0]) == (5,)
        one.record_proof("gpt-4", CALLER, LearnedLimits(window=6000), Proof(0, 0))
        teach(one, "gpt-4", CALLER, 1.1)
        await one.load_records([("gpt-4", CALLER)])
        assert one.learned_limits("gpt-4", CALLER).window == 6000
        assert counts_as(one.correction("gpt-4", CALLER, FAMILY, False), 1.1)
        assert one.correction("x", CALLER, FAMILY, False) is None
        one.contents.put("summary", b"c", b"k", CANARY)
        assert await one.contents.get("summary", b"c", b"k") == CANARY
        assert one.open_breakers() == {}
        assert set(one.failures().values()) == {0}
        assert one.lookups()[("redis", "hit")] == 0

    run(test, None)


def test_a_cache_that_was_closed_knows_what_this_process_knows(server: RedisServer) -> None:
    async def test(one: Cache) -> None:
        await count(one)
        await one.close()
        assert [one.memory.get(key) for key, _ in PAIRS] == RIGHT
        await one.fetch_counts([(b"new", b"x")])
        assert one.memory.get(b"new") is None

    run(test, server.url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memcached://user:hunter2@h", "must begin with redis://, rediss://, unix://"),
        ("redis://user:hunter2@h:port/0", "an invalid host, port, path, file or option"),
        ("redis://user:hunter2@h:70000/0", "an invalid host, port, path, file or option"),
        ("redis://user:hunter2@h/0?socket_timeout=soon", "an invalid host, port, path, file or option"),
        ("rediss://user:hunter2@h/0?ssl_ca_certs=/no/such/file", "an invalid host, port, path, file or option"),
        ("redis://user:hunter2@h/0?no_such_option=1", "an invalid host, port, path, file or option"),
    ],
)
def test_a_url_that_means_nothing_stops_the_start_and_is_not_repeated(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Cache(url)
    assert "hunter2" not in str(caught.value)


def test_the_records_of_two_upstreams_are_kept_apart_and_forgotten_together() -> None:
    cache = Cache()
    other = cache.beside("other")
    assert other.memory is cache.memory and other.contents is cache.contents
    other.record_proof("m", b"t", LearnedLimits(window=9_000), Proof(0, 0))
    teach(other, "m", b"t", 1.5)
    assert cache.learned_limits("m", b"t") == LearnedLimits() and not cache.has_corrections("m")
    assert other.learned_limits("m", b"t").window == 9_000 and other.has_corrections("m")
    cache.record_proof("m", b"t", LearnedLimits(window=7_000), Proof(0, 0))
    assert other.learned_limits("m", b"t").window == 9_000
    cache.forget("m")
    assert other.proofs() == cache.proofs() == []


def test_an_upstream_that_is_left_keeps_its_records_to_itself() -> None:
    first = Cache(secret=b"s" * 32)
    other = first.beside("other")
    other.record_proof("m", b"t", LearnedLimits(window=9_000), Proof(0, 0))
    other.leave()
    other.leave()
    first.use_secret(b"x" * 32)
    assert other.learned_limits("m", b"t").window == 9_000


def test_a_narrow_acl_without_scripts_leaves_each_worker_its_share_of_the_budget_and_all_else_shared(
    server: RedisServer, patient: None
) -> None:
    rights = "+get +set +mget +strlen +unlink +ping +select +auth".split()
    server.cli("ACL", "SETUSER", "plimsoll", "on", ">pw", "~plimsoll:*", "resetchannels", "-@all", *rights)

    async def test(one: Cache, two: Cache) -> None:
        assert one.spending is not None
        one.spending.charge(100)
        one.record_proof("m", CALLER, LearnedLimits(window=5), Proof(0, 0))
        await until(lambda: len(stored(server)) == 1)
        await asyncio.sleep(0.3)
        assert one.spending.total is None and not failing(one)

    run(test, server.url.replace("//", "//plimsoll:pw@"), caches=2)


def test_the_commands_that_the_readme_names_are_enough(server: RedisServer) -> None:
    named = re.search(r"A user needs the commands (.*?), on keys", README.read_text(), re.DOTALL)
    assert named is not None
    rights = [f"+{command.lower()}" for command in re.findall(r"`([A-Z]+)`", named[1])]
    server.cli("ACL", "SETUSER", "plimsoll", "on", ">pw", "~plimsoll:*", "resetchannels", "-@all", *rights)

    async def test(one: Cache, two: Cache) -> None:
        assert one.spending is not None and two.spending is not None
        one.spending.charge(100)
        await until(lambda: two.spending is not None and two.spending.total == 100)

    run(test, server.url.replace("//", "//plimsoll:pw@"), caches=2)
