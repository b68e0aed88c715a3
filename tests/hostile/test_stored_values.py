"""N7: hostile values under the proxy's own names in a real Redis: each is a miss, and nobody's plan changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from proxy.cache.sealing import MAX_VALUE_BYTES, Sealer
from tests.e2e.services import sentence
from tests.hostile.harness import CHAT, Running, eventually, friendly, refused, running, upstream
from tests.keys import checking_keys
from tests.recorder import Peer, Recorder, Request
from tests.redis_server import RedisServer, redis_server

SECRET = "a secret of the user's own"
KINDS = ("count:", "limits", "accepted:1", "line:1", "lines:1", "intervals:1")
ALICE, BOB = "sk-alice", "sk-bob"
LONG: dict[str, Any] = {
    "model": "gpt-4",
    "messages": [{"role": "user", "content": sentence(i, 3_000)} for i in range(10)],
}
Put = Callable[[RedisServer, str], object]


async def refusing(request: Request, peer: Peer) -> None:
    """An upstream whose window is 3,000 tokens for Alice."""
    if request.header(b"authorization") == [b"Bearer sk-alice"] and len(request.body) > 13_000:
        text = "This model's maximum context length is 3000 tokens. However, your messages resulted in 5000 tokens."
        await peer.send(refused(text))
    else:
        await friendly(request, peer)


def plan(proxy: Running, there: Recorder, key: str) -> bytes:
    """What the upstream gets of the long chat of a caller."""
    before = len(there.requests)
    assert proxy.ask(LONG, key=key).status == 200
    return [r.body for r in there.requests[before:] if r.target == CHAT.encode()][-1]


@pytest.fixture(scope="module")
def there() -> Iterator[Recorder]:
    with upstream(refusing) as recorder:
        yield recorder


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def settings(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rules = checking_keys(tmp_path_factory.mktemp("rules"))
    return {"PLIMSOLL_REDIS": redis.url, "PLIMSOLL_SECRET": SECRET, "PLIMSOLL_RULES": rules}


@pytest.fixture(scope="module")
def stored(there: Recorder, redis: RedisServer, settings: dict[str, Any]) -> Sequence[str]:
    """The names of what a proxy stored: counts, and what it learned of Alice."""
    with running(there.url, **settings) as proxy:

        def learned() -> bool:
            for _ in range(3):
                plan(proxy, there, ALICE)
            found = redis.names()
            return all(any(f":{kind}" in name for name in found) for kind in KINDS[:3])

        eventually(learned)
    return redis.names()


@pytest.fixture(scope="module")
def untouched(there: Recorder, stored: Sequence[str], settings: dict[str, Any]) -> bytes:
    """Bob's plan where nobody has written anything."""
    with running(there.url, **{**settings, "PLIMSOLL_REDIS": ""}) as proxy:
        return plan(proxy, there, BOB)


def typed(*command: str) -> Put:
    """Another type under a name."""

    def put(redis: RedisServer, name: str) -> None:
        redis.cli("DEL", name)
        redis.cli(command[0], name, *command[1:])

    return put


def raw(value: bytes) -> Put:
    return lambda redis, name: redis.put(name, value)


def changed(change: Callable[[bytes], bytes]) -> Put:
    """What is there, changed."""

    def put(redis: RedisServer, name: str) -> None:
        redis.put(name, change(redis.cli("GET", name)[:-1]))

    return put


def signed(payload: bytes, secret: str = SECRET) -> Put:
    """A payload as the proxy itself would have signed it, or somebody with another secret."""
    return lambda redis, name: redis.put(name, Sealer(secret.encode()).sign(name.encode(), payload))


def flipped(value: bytes) -> bytes:
    at = random.Random(7).randrange(1, len(value))
    return value[:at] + bytes((value[at] ^ 1,)) + value[at + 1 :]


DEEP = b"\x91" * (MAX_VALUE_BYTES - 100)
HOSTILE: Mapping[str, Sequence[Put]] = {
    "types": (
        typed("RPUSH", "1", "2"),
        typed("HSET", "a", "1"),
        typed("SADD", "a"),
        typed("ZADD", "1", "a"),
        typed("XADD", "*", "a", "b"),
        typed("SETBIT", "4000000", "1"),
    ),
    "bytes": (
        raw(b""),
        raw(b"\x01"),
        raw(b"\x00" * (8 << 20)),
        raw(json.dumps({"window": 1}).encode("utf-16")),
        raw(b"\x01" + b"\xff" * 600),
        raw(b"\x02" + b"\x00" * 40),
        raw(b"[" * 100_000),
        changed(lambda value: value[:-1]),
        changed(lambda value: value[:9]),
        changed(lambda value: value + b"\x00"),
        changed(flipped),
        changed(lambda value: value * 2),
        changed(lambda value: b"\x02" + value[1:]),
        signed(b"\x81\xa6window\x97\x64\xcb\x41\xd9\x00\x00\x00\x00\x00\x00\xa0\x00\x00\x00\xa0", "another's"),
    ),
    "signed": (
        *map(signed, (b"", b"\xc1", b"\xc0", b"\x00", b"\xff", b"\x91\xff", b"\xcb\x7f\xf8\0\0\0\0\0\0", DEEP)),
        *(signed(start + DEEP) for start in (b"\x93\xcb" + b"\0" * 8 + b"\xc3", b"\x81\xa6window", b"\x92\x95\x90")),
        signed(b"\x92\xcb\x42\x20\x00\x00\x00\x00\x00\x00\xc3"),
        signed(b"\xdd\xff\xff\xff\xff" + b"\x01" * 50),
        signed(b"\xdf\xff\xff\xff\xff"),
        signed(b"\x81" * 30_000),
    ),
}


@pytest.mark.parametrize("group", HOSTILE)
def test_N7_hostile_values_are_misses(
    workers: int,
    there: Recorder,
    redis: RedisServer,
    stored: Sequence[str],
    settings: dict[str, Any],
    untouched: bytes,
    group: str,
) -> None:
    kept = {name: redis.cli("GET", name)[:-1] for name in stored}
    for number, name in enumerate(stored):
        HOSTILE[group][number % len(HOSTILE[group])](redis, name)
    with running(there.url, workers=workers, **settings) as proxy:
        for _ in range(2 * workers):
            assert plan(proxy, there, BOB) == untouched
            assert 0 < len(plan(proxy, there, ALICE)) < 13_000, "she is refused and healed, as ever"
        eventually(lambda: group == "types" or met_one(proxy, there, untouched))
        assert not proxy.log("Traceback", 0) and not proxy.log("never retrieved", 0) and not proxy.log("bug", 0)
    for name in stored:
        redis.cli("DEL", name)
        redis.put(name, kept[name])


def met_one(proxy: Running, there: Recorder, untouched: bytes) -> bool:
    """Whether a value was read and was none of ours: each request reads again what Redis did not tell in time."""
    assert plan(proxy, there, BOB) == untouched
    assert 0 < len(plan(proxy, there, ALICE)) < 13_000
    return proxy.metric("plimsoll_cache_troubles_total", kind="foreign") > 0


def test_N7_a_tower_of_lists_is_no_record() -> None:
    """The decoders of records end at what they do not expect; none reads a tower to its top."""
    from proxy.cache import accepted_callers, calibration, counts, intervals, limit_proofs, record_kinds

    decoders: Sequence[Callable[[bytes], object]] = (
        *(accepted_callers._unpacked, calibration.unpack, calibration.unpack_votes, counts._decode),
        *(intervals.unpack, limit_proofs.unpack, record_kinds.unpack_time),
    )
    number, text = b"\xcb" + b"\0" * 8, b"\xa1x"
    for before in (b"", number, b"\xc3", b"\x00", text, number + b"\xc3", b"\0" * 3 + number + text, b"\0" * 9):
        for items in range(1, 16):
            for start in (bytes((0x90 | items,)), b"\x92" + bytes((0x90 | items,)), b"\x81" + text):
                for decode in decoders:
                    assert decode(start + before + DEEP) is None
