"""Which sets of labels replicas tell apart: the same ones, and each its own while the backend is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from proxy.cache.agreed_labels import DAY_S, KEEP_DAYS, KIND, MAX_SETS, AgreedLabels
from proxy.cache.cache import Cache
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.observe.metrics.aggregation import MAX_CALLERS, MAX_PAIRS, MAX_WITH_CALLER
from tests.cache.shelf import Shelf, until
from tests.redis_server import redis_server

SECRET, MOST = b"s" * 32, 4
MODELS = [f"model-{number}" for number in range(8)]


class Replica:
    """One replica's share in the agreement. The clock of all stands still unless a test sets it."""

    def __init__(self, shelf: Shelf, secret: bytes = SECRET) -> None:
        self.now = 100 * DAY_S
        self.remote = Remote(shelf, b"probe")
        self.keyring = Keyring(secret)
        self.labels = AgreedLabels("http://u", self.remote, self.keyring, lambda: self.now)

    def uses(self, models: Iterable[str], kind: str = "pair") -> list[str]:
        """Those of these models that it tells apart."""
        return [model for model in models if self.labels.allows(kind, ("chat", model), MOST)]

    async def agree(self) -> None:
        """Reads, and writes at once."""
        await self.labels.refresh()
        while self.remote._queue:
            await self.remote._write_batch()


def run(*steps: object) -> None:
    async def whole() -> None:
        for step in steps:
            assert asyncio.iscoroutine(step)
            await step

    asyncio.run(whole())


def test_what_one_replica_tells_apart_the_next_one_does_and_nothing_else() -> None:
    shelf = Shelf()
    one, other = Replica(shelf), Replica(shelf)
    assert one.uses(MODELS) == MODELS[:4]
    run(one.agree(), other.agree())
    assert other.uses(reversed(MODELS)) == [*reversed(MODELS[:4])]


def test_of_two_that_begin_at_once_the_one_that_is_late_folds_what_has_no_room() -> None:
    shelf = Shelf()
    one, other = Replica(shelf), Replica(shelf)
    assert one.uses(MODELS[:3]) == MODELS[:3] and other.uses(MODELS[4:7]) == MODELS[4:7]
    run(one.agree(), other.agree(), one.agree())
    assert one.uses(MODELS) == other.uses(MODELS) == [*MODELS[:3], MODELS[4]]


def test_without_a_backend_each_tells_apart_what_comes_first_and_later_they_agree() -> None:
    shelf = Shelf(fault="ConnectionError")
    one, other = Replica(shelf), Replica(shelf)
    run(one.agree(), other.agree())
    assert one.uses(MODELS) == MODELS[:4] and other.uses(reversed(MODELS)) == [*reversed(MODELS[4:])]
    shelf.fault = ""
    for replica in (one, other):
        replica.remote.read_breaker.close()
    run(one.agree(), other.agree(), one.agree())
    assert one.uses(MODELS) == other.uses(MODELS) == MODELS[:4]


def test_an_entry_that_two_writers_lost_comes_back_and_an_emptied_backend_gets_all_again() -> None:
    shelf = Shelf()
    one, other = Replica(shelf), Replica(shelf)
    one.uses(MODELS[:2])
    run(one.agree())
    written = dict(shelf.values)
    run(other.agree())
    other.uses(MODELS[2:4])
    run(other.agree())
    shelf.values.update(written)  # the list as `one` had it
    run(other.agree(), one.agree())
    assert one.uses(MODELS) == MODELS[:4]
    shelf.values.clear()
    assert Replica(shelf).uses(MODELS[4:]) == MODELS[4:]
    run(one.agree())
    third = Replica(shelf)
    run(third.agree())
    assert third.uses(MODELS[4:]) == [] and third.uses(MODELS) == MODELS[:4]


def test_what_nobody_uses_for_days_makes_room_and_what_is_used_stays() -> None:
    shelf = Shelf()
    one, other = Replica(shelf), Replica(shelf)
    one.uses(MODELS[:4])
    run(one.agree(), other.agree())
    assert other.uses(MODELS[:2]) == MODELS[:2]
    other.now += KEEP_DAYS * DAY_S
    run(other.agree())
    later = Replica(shelf)
    later.now = other.now
    run(later.agree())
    assert later.uses(MODELS[4:]) == MODELS[4:6] and later.uses(MODELS[:2]) == MODELS[:2]


def test_kinds_have_room_of_their_own() -> None:
    shelf = Shelf()
    one, other = Replica(shelf), Replica(shelf)
    one.uses(MODELS[:4])
    run(one.agree(), other.agree())
    assert other.uses(MODELS[4:], "caller") == MODELS[4:]
    run(other.agree(), one.agree())
    assert one.uses(MODELS, "caller") == MODELS[4:] and one.uses(MODELS) == MODELS[:4]


def test_what_others_wrote_under_the_name_is_nothing_and_no_name_is_in_it() -> None:
    shelf = Shelf()
    one = Replica(shelf)
    one.uses(MODELS[:2])
    run(one.agree())
    ((name, value),) = shelf.values.items()
    assert KIND.encode() in name and b"model" not in value and b"chat" not in value
    for wrong in (b"", b"\x01" + bytes(40), value[:-1], bytes(90_000)):
        shelf.values[name] = wrong
        stranger = Replica(shelf)
        run(stranger.agree())
        assert stranger.uses(MODELS) == MODELS[:4]
        run(one.agree())
        assert one.uses(MODELS[:2]) == MODELS[:2]


def test_another_secret_begins_anew() -> None:
    shelf = Shelf()
    one = Replica(shelf)
    one.uses(MODELS[:4])
    run(one.agree())
    one.keyring.use(b"another")
    assert one.uses(MODELS[4:]) == MODELS[4:]
    run(one.agree())
    assert one.uses(MODELS) == MODELS[4:]


def test_a_list_has_room_for_what_metrics_tell_apart() -> None:
    assert max(MAX_PAIRS, MAX_WITH_CALLER, MAX_CALLERS) <= MAX_SETS


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("patient")
def test_replicas_on_a_real_redis_agree_and_one_that_is_killed_changes_nothing_that_is_told_apart() -> None:
    async def check() -> None:
        with redis_server() as server:
            one, other = (Cache(server.url, SECRET, "http://u") for _ in range(2))
            assert one.labels is not None and other.labels is not None
            for cache in (one, other):
                await cache.start()
                await until(lambda cache=cache: not cache.open_breakers()[("reading",)])  # type: ignore[misc]
            assert [one.labels.allows("pair", (model,), MOST) for model in MODELS] == [True] * 4 + [False] * 4
            await until(lambda: any(KIND in name for name in server.names()))
            await other.labels.refresh()
            backwards = [other.labels.allows("pair", (model,), MOST) for model in reversed(MODELS)]
            assert backwards == [False] * 4 + [True] * 4
            server.kill()
            await other.labels.refresh()
            assert [other.labels.allows("pair", (model,), MOST) for model in MODELS] == [True] * 4 + [False] * 4
            await asyncio.gather(one.close(), other.close())

    asyncio.run(check())
