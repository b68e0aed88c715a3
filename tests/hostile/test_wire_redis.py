"""The list of the wire's dangers, 48 to 54: a Redis that is gone, slow, full, wrong or poisoned."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.e2e.services import sentence
from tests.hostile.conftest import Place
from tests.hostile.harness import CHAT, Running, eventually, running, upstream
from tests.hostile.raw import Wire, post
from tests.ports import held_port
from tests.redis_server import RedisServer, redis_server

SECRET = {"PLIMSOLL_SECRET": "a secret of the user's own"}
NUMBERS = count()


def large(number: int | None = None) -> bytes:
    """A chat near the line whose messages are worth a question to Redis; without a number, never seen before."""
    start = 10 * (next(NUMBERS) if number is None else number)
    said = [{"role": "user", "content": sentence(start + i, 2_500)} for i in range(3)]
    return json.dumps({"model": "gpt-4", "messages": said}).encode()


@dataclass(slots=True)
class Fake:
    """A Redis by name only: after so many seconds it says one thing to every command, or (empty) nothing."""

    says: bytes = b""
    seconds: float = 0.0
    port: int = 0
    connections: int = 0
    commands: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
                    await reader.readexactly(int((await reader.readuntil(b"\r\n"))[1:]) + 2)
                self.commands += 1
                await asyncio.sleep(self.seconds)
                if self.says:
                    writer.write(self.says + b"\r\n")
        self.open.discard(writer)
        writer.close()


@contextlib.contextmanager
def faking() -> Iterator[Fake]:
    """It, listening in a thread."""
    fake, ready, over = Fake(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, limit=1 << 24)
        fake.port = server.sockets[0].getsockname()[1]
        ready.set()
        await over.wait()
        server.close()
        for writer in tuple(fake.open):
            writer.transport.abort()
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield fake
    loop.call_soon_threadsafe(over.set)
    thread.join(20)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture(scope="module")
def strange(workers: int) -> Iterator[tuple[Running, Fake]]:
    """A proxy whose Redis is none."""
    with faking() as fake, upstream() as there:
        url = f"redis://127.0.0.1:{fake.port}/0"
        with running(there.url, workers=workers, admin=False, PLIMSOLL_REDIS=url, **SECRET) as proxy:
            yield proxy, fake


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A real one."""
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def services(workers: int, redis: RedisServer) -> Iterator[Place]:
    """A proxy that has reached it."""
    with upstream() as there:
        with running(there.url, workers=workers, admin=False, PLIMSOLL_REDIS=redis.url, **SECRET) as proxy:
            yield Place(proxy, there)


def known(redis: RedisServer) -> int:
    """How many counts it holds."""
    return sum("count" in name for name in redis.names())


def shares(place: Place, redis: RedisServer) -> None:
    """The proxy uses its Redis, at the latest after a while."""

    def shared() -> bool:
        before = known(redis)
        place.ask(large())
        with contextlib.suppress(TimeoutError):
            eventually(lambda: known(redis) > before, 30)
        return known(redis) > before

    eventually(shared, 60)


def test_D48_a_redis_that_is_gone_or_slow_costs_no_request(strange: tuple[Running, Fake], workers: int) -> None:
    proxy, fake = strange
    for says, seconds in ((b"", 0.0), (b"*0", 0.5)):
        fake.says, fake.seconds = says, seconds
        before = fake.commands
        for _ in range(15):
            assert proxy.ask(large()).status == 200
        assert fake.commands - before < 40, "it is left alone while it does not answer"
    with upstream() as there, held_port() as port:
        refused = f"redis://127.0.0.1:{port}/0"
        for url in (refused,) if workers > 1 else (refused, "redis://no-such-host.invalid:6379/0"):
            with running(there.url, workers=workers, admin=False, PLIMSOLL_REDIS=url, **SECRET) as alone:
                for _ in range(5):
                    assert alone.ask(large()).status == 200
                assert len([line for line in alone.lines if "ache" in line or "edis" in line]) < 10


REFUSALS = (
    b"-OOM command not allowed when used memory > 'maxmemory'.",
    b"-READONLY You can't write against a read only replica.",
    b"-LOADING Redis is loading the dataset in memory",
    b"-MOVED 3999 127.0.0.1:1",
    b"-ASK 3999 127.0.0.1:1",
    b"-NOAUTH Authentication required.",
    b"-NOPERM this user has no permissions to run the 'mget' command",
    b"-WRONGPASS invalid username-password pair or user is disabled.",
    b"-ERR max number of clients reached",
    b"-MISCONF Redis is configured to save RDB snapshots",
    b"+OK",
    b":7",
    b"$-1",
    b"*1\r\n$3\r\nxyz",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
)


def test_D49_whatever_redis_says_the_request_goes_on(strange: tuple[Running, Fake]) -> None:
    proxy, fake = strange
    lines = len([line for line in proxy.lines if not line.startswith("{")])
    for says in REFUSALS:
        fake.says, fake.seconds = says, 0.0
        for _ in range(3):
            assert proxy.ask(large()).status == 200
    assert not proxy.log("Traceback", 0) and not proxy.log("never retrieved", 0)
    told = [line for line in proxy.lines if not line.startswith("{")][lines:]
    assert len(told) < 20, "a line a minute for each worker, not one for each request"
    assert not any("Entry" in line for line in told)


def test_D54_many_requests_at_once_do_not_queue_for_redis(strange: tuple[Running, Fake]) -> None:
    proxy, fake = strange
    fake.says, fake.seconds = b"", 0.0
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(proxy.port)) for _ in range(40)]
        for wire in wires:
            wire.send(post(large()))
        assert all(wire.reply().status == 200 for wire in wires)
    assert len(fake.open) <= 2 * (32 + 8) + 4


def test_D50_poisoned_values_are_ignored(place: Place, redis: RedisServer, workers: int) -> None:
    shares(place, redis)
    body, chance = large(50_000), random.Random(50)
    right = [place.ask(body).headers["x-plimsoll-tokens"] for _ in range(4)]
    while known(redis) <= 3:  # what is counted while Redis is slow is not written
        shares(place, redis)
    poisons = [chance.randbytes(60), b"", b"\xff" * 1_000, b"1", b"plimsoll", b"x" * (20 << 20)]
    poisons += [redis.cli("GET", name)[:-1] for name in redis.names()[:2]]  # what is another's
    for place_of, name in enumerate(redis.names()):
        redis.put(name, poisons[place_of % len(poisons)])
    with running(place.there.url, workers=workers, admin=False, PLIMSOLL_REDIS=redis.url, **SECRET) as other:
        got = [other.ask(body) for _ in range(4)]
        assert {g.status for g in got} == {200}
        assert {g.headers["x-plimsoll-tokens"] for g in got} == set(right)
        assert len({r.body for r in place.there.requests if r.method == b"POST" and r.target == CHAT.encode()}) > 0
    redis.cli("FLUSHALL")


def test_D51_what_redis_forgets_is_counted_again(place: Place, redis: RedisServer) -> None:
    shares(place, redis)
    for number in range(60_000, 60_005):
        first = place.ask(large(number)).headers["x-plimsoll-tokens"]
        redis.cli("FLUSHALL")
        assert {place.ask(large(number)).headers["x-plimsoll-tokens"] for _ in range(3)} == {first}


def test_D52_clients_that_leave_never_mix_up_values(place: Place, redis: RedisServer) -> None:
    shares(place, redis)
    right = {n: place.ask(large(n)).headers["x-plimsoll-tokens"] for n in range(70_000, 70_004)}
    chance = random.Random(52)
    for _ in range(100):
        with Wire(place.proxy.port) as wire:
            wire.send(post(large(chance.choice(list(right)))))
            if chance.random() < 0.5:
                wire.reset()
    for number, tokens in right.items():
        assert place.ask(large(number)).headers["x-plimsoll-tokens"] == tokens


def test_D53_a_redis_that_is_back_is_used_again(place: Place, redis: RedisServer) -> None:
    shares(place, redis)
    redis.kill()
    for _ in range(6):
        assert place.ask(large()).status == 200
    redis.start()
    shares(place, redis)
