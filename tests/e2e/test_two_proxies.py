"""Two proxies on one Redis: what one counted and learned the other knows; and whatever Redis does costs no request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from proxy.model.limits import LearnedLimits
from proxy.simulator.app import SimulatorConfig
from proxy.tokens.encodings import Encoding
from tests.e2e.services import Running, body, ours, plimsoll, sentence, simulating, talk
from tests.recorder import recording
from tests.redis_server import RedisServer, be_patient, redis_server
from tests.serving import ask, eventually, get, run

SECRET = "a secret of the user's own"
CANARY = "canary-2718"
# Long messages, near the line: they are counted before they leave, and worth a question to Redis.
LONG = [{"role": "user", "content": f"{CANARY} {i} " + sentence(i, 2_500)} for i in range(4)]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@contextlib.asynccontextmanager
async def pair(upstream: str, server: RedisServer, secret: str = SECRET) -> AsyncIterator[tuple[Running, Running]]:
    """Two proxies that have reached their Redis."""
    shared = {"PLIMSOLL_REDIS": server.url, "PLIMSOLL_SECRET": secret}
    async with plimsoll(upstream, **shared) as one, plimsoll(upstream, **shared) as two:
        for proxy in (one, two):
            await eventually(lambda proxy=proxy: connected(proxy), 20)  # type: ignore[misc]
        yield one, two


def connected(proxy: Running) -> bool:
    """Whether it asks its Redis."""
    remote = proxy.services.cache._remote
    return remote is not None and remote.read_breaker.closed and proxy.services.cache._keyring.sealer is not None


def hits(proxy: Running) -> int:
    """How often Redis knew what it was asked."""
    return proxy.services.cache.lookups()["redis", "hit"]


def counts(server: RedisServer) -> int:
    """How many counts it holds."""
    return sum("count" in name for name in server.names())


@pytest.mark.usefixtures("patient")
def test_what_one_proxy_counted_the_other_does_not_count(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = Encoding.count

    def noting(self: Encoding, text: str) -> int:
        counted.append(len(text))
        return count(self, text)

    monkeypatch.setattr(Encoding, "count", noting)

    async def check() -> None:
        async with recording() as up, pair(up.url, server) as (one, two):
            first = await one.chat(body(LONG, "gpt-4-32k"))
            assert max(counted) > 10_000
            await eventually(lambda: counts(server) >= 4, 30)
            counted.clear()
            second = await two.chat(body(LONG, "gpt-4-32k"))
            assert ours(first) == ours(second) and hits(two) >= 4
            assert max(counted, default=0) < 1_000
            metrics = (await ask(two.port, get(b"/metrics"))).body.decode()
            assert f'plimsoll_cache_lookups_total{{result="hit",tier="redis"}} {hits(two)}.0' in metrics

    run(check())


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("provider", "model", "kept"), [("openai-old", "gpt-4", "limits"), ("openai", "nobody-knows-it", "intervals")]
)
def test_what_one_proxy_was_refused_for_the_other_knows(
    server: RedisServer, provider: str, model: str, kept: str
) -> None:
    """A refusal that names the limit is a limit for both; one without figures is an interval for both."""

    async def check() -> None:
        config = SimulatorConfig(provider, windows={model: 4_096}, window_field="")
        async with simulating(config) as (up, url), pair(url, server) as (one, two):
            assert (await one.chat(body(talk(100), model, max_tokens=500))).status == 200
            assert (await one.told()).result == "healed"
            sent = len(up.received)
            await eventually(lambda: any(kept in name for name in server.names()), 30)
            assert (await two.chat(body(talk(100), model, max_tokens=500))).status == 200
            outcome = await two.told()
            assert (outcome.result, outcome.refusals, len(up.received)) == ("fitted", (), sent + 1)
            assert kept == "intervals" or outcome.window == one.learned(model).window

    run(check())


@pytest.mark.usefixtures("patient")
def test_what_the_other_learned_holds_for_requests_that_bytes_prove_to_fit_too(server: RedisServer) -> None:
    async def check() -> None:
        config = SimulatorConfig(windows={"gpt-4o": 4_096})
        async with simulating(config) as (up, url), pair(url, server) as (one, two):
            assert (await one.chat(body(talk(100), "gpt-4o", max_tokens=500))).status == 200
            await eventually(lambda: any("limits" in name for name in server.names()), 30)
            assert (await two.chat(body(talk(100), "gpt-4o", max_tokens=500))).status == 200
            assert (await two.told()).result == "fitted" and len(up.received) == 3

    run(check())


@pytest.mark.usefixtures("patient")
def test_a_lesson_reaches_a_proxy_that_is_at_work(server: RedisServer) -> None:
    async def check() -> None:
        async with simulating(SimulatorConfig(windows={"gpt-4": 4_096})) as (_, url), pair(url, server) as (one, two):
            await two.chat(body(talk(2)))  # it has asked, and found nothing
            await one.chat(body(talk(100), max_tokens=500))
            await eventually(lambda: two.learned("gpt-4").window == 4_096)
            await two.chat(body(talk(100), max_tokens=500))
            assert (await two.told(2)).result == "fitted"

    run(check())


@pytest.mark.usefixtures("patient")
def test_a_lesson_that_an_answer_disproves_is_forgotten_by_all(server: RedisServer) -> None:
    async def check() -> None:
        async with simulating(SimulatorConfig(windows={"gpt-4": 8_192})) as (up, url), pair(url, server) as (one, two):
            one.teach("gpt-4", LearnedLimits(window=4_096))
            for proxy in (one, two):
                await proxy.chat(body(talk(2)))
            await eventually(lambda: two.learned("gpt-4").window == 4_096)
            await two.chat(body(talk(100)), b"x-plimsoll-mode: observe")  # 4,800 tokens, and they are answered
            await eventually(lambda: one.learned("gpt-4").window is None)
            for proxy in (one, two):
                await proxy.chat(body(talk(100)))
                assert up.received[-1].body == body(talk(100))

    run(check())


@pytest.mark.usefixtures("patient")
def test_redis_shows_nothing_of_what_was_said(server: RedisServer) -> None:
    async def check() -> None:
        async with simulating(SimulatorConfig(windows={"gpt-4": 4_096})) as (_, url), pair(url, server) as (one, two):
            said = [{"role": "user", "content": f"{CANARY} " + sentence(i, 900)} for i in range(6)]
            for proxy in (one, two):
                await proxy.chat(body(said, max_tokens=500))
                await proxy.chat(body(LONG, "gpt-4-32k"))
            await eventually(lambda: counts(server) >= 4, 30)
            names = server.names()
            assert all(name.startswith("plimsoll:") for name in names)
            dump = "\n".join(names).encode() + b"".join(server.cli("GET", name) for name in names)
            for secret in (CANARY.encode(), b"Entry", b"crane", b"gpt-4", b"sk-test", SECRET.encode()):
                assert secret not in dump

    run(check())


def test_killing_redis_under_load_costs_no_request(server: RedisServer) -> None:
    slowest = 0.0

    async def one_client(proxy: Running, number: int) -> None:
        nonlocal slowest
        for i in range(30):
            text = sentence(number * 1_000 + i, 1_000)  # new to everybody: a question to Redis each time
            began = time.perf_counter()
            reply = await proxy.chat(body([{"role": "user", "content": text}] * 4))
            slowest = max(slowest, time.perf_counter() - began)
            assert reply.status == 200

    async def check() -> None:
        async with recording() as up, pair(up.url, server) as (one, two):
            clients = [asyncio.create_task(one_client(proxy, n)) for n, proxy in enumerate((one, two) * 4)]
            await eventually(lambda: len(up.requests) > 60)
            await asyncio.to_thread(server.kill)
            await eventually(lambda: len(up.requests) > 150)
            await asyncio.to_thread(server.start)
            await asyncio.gather(*clients)
            assert len(up.requests) == 240
            assert all(o.result in ("passed", "fitted") for o in (*one.outcomes, *two.outcomes))
            assert slowest < 30  # redis-py's own defaults would wait 59 s
            await eventually(lambda: connected(one) and connected(two))

    run(check(), 180)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(100)
        yield door.getsockname()[1]


async def answers_in_time(redis: str, rounds: int = 1) -> float:
    """The slowest of ten requests through a proxy with this Redis, beyond what one takes without: in seconds. Of
    several rounds the quickest counts: a machine that is busy for a moment delays one of them."""
    times = []
    async with recording() as up:
        for environment in ({}, {"PLIMSOLL_REDIS": redis}) * rounds:
            async with plimsoll(up.url, **environment) as proxy:
                took = []
                for i in range(10):
                    text = sentence(i, 1_000)
                    began = time.perf_counter()
                    assert (await proxy.chat(body([{"role": "user", "content": text}] * 4))).status == 200
                    took.append(time.perf_counter() - began)
                times.append(max(took))
    return min(times[1::2]) - min(times[::2])


def test_a_redis_that_never_answers_delays_nobody_beyond_the_budget() -> None:
    with black_hole() as port:
        assert run(answers_in_time(f"redis://127.0.0.1:{port}/0"), 90) < 30


def test_a_redis_that_is_not_there_delays_nobody() -> None:
    assert run(answers_in_time("redis://127.0.0.1:9/0"), 90) < 30


def test_a_wrong_password_costs_no_request(capfd: pytest.CaptureFixture[str]) -> None:
    with redis_server("--requirepass", "right-password") as server:
        url = server.url.replace("redis://", "redis://:wrong-password@")
        assert run(answers_in_time(url, 5)) < 0.25
    told = "".join(capfd.readouterr())
    assert "the shared cache fails" in told
    assert "wrong-password" not in told and "right-password" not in told


@pytest.mark.usefixtures("patient")
def test_proxies_without_a_secret_agree_on_one(server: RedisServer) -> None:
    async def check() -> None:
        async with recording() as up, pair(up.url, server, "") as (one, two):
            await eventually(lambda: one.services.cache._keyring._secret == two.services.cache._keyring._secret, 30)
            await one.chat(body(LONG, "gpt-4-32k"))
            await eventually(lambda: counts(server) >= 4, 30)
            await two.chat(body(LONG, "gpt-4-32k"))
            assert hits(two) >= 4

    run(check())
