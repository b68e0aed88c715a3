"""M18: what belongs to one tenant is in one slot of a Redis Cluster, and is found by both versions' names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from proxy.cache import keyring as keys
from proxy.cache import replicated
from proxy.cache.cache import Cache
from proxy.cache.counts import MIN_FETCH_BYTES
from proxy.cache.redis import backend_from_url
from proxy.cache.remote import BackendError
from proxy.cache.sealing import PREFIX, PREFIXES, Sealer
from proxy.model.limits import LearnedLimits, Proof, Shape
from tests.cache.lessons import FAMILY, VOTE, counts_as, teach
from tests.redis_groups import Group, cluster
from tests.redis_server import RedisServer, be_patient, redis_server

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECRET, UPSTREAM = b"s" * 32, "http://u"
TENANTS = [b"tenant %09d" % number for number in range(40)]
ALICE, BOB = TENANTS[:2]
CALLS = re.compile(rb"cmdstat_(\w+):calls=(\d+)")
WAIT_S = 60.0


class FormerSealer(Sealer):
    """Names as the version without slots has them."""

    def name(self, kind: str, *parts: bytes, whose: bytes = b"") -> bytes:
        return super().name(kind, *parts)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is waited for however busy the machine is."""
    be_patient(monkeypatch)
    monkeypatch.setattr(replicated, "REFRESH_S", 0.2)


@pytest.fixture
def group() -> Iterator[Group]:
    with cluster() as made:
        yield made


@pytest.fixture(params=["a server", "a cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "a server":
        with redis_server() as server:
            yield server.url
    else:
        with cluster() as made:
            yield f"redis+cluster://{made.hosts}"


async def started(stack: AsyncExitStack, url: str, former: bool = False) -> Cache:
    """A replica; `former`: of the version without slots."""
    with pytest.MonkeyPatch.context() as patch:
        if former:
            patch.setattr(keys, "Sealer", FormerSealer)
        cache = Cache(url, SECRET, UPSTREAM)
    await cache.start()
    stack.push_async_callback(cache.close)
    await soon(lambda: not cache.open_breakers()[("reading",)])
    return cache


async def soon(true: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.01)


def calls(group: Group, command: bytes) -> int:
    """How often the masters did a command."""
    told = b"".join(master.cli("info", "commandstats") for master in group.masters)
    return sum(int(count) for name, count in CALLS.findall(told) if name == command)


async def read_once(cache: Cache, tenant: bytes, model: str = "m") -> None:
    """What a request of a tenant reads of what others know."""
    accepted = cache.accepted.lookup(tenant)
    await cache.read([*cache.record_reads([(model, tenant)]), *([accepted] if accepted else [])])


def test_M18_what_tenants_have_is_on_all_masters_of_a_cluster(group: Group) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            cache = await started(stack, f"redis+cluster://{group.hosts}")
            for tenant in TENANTS:
                cache.record_proof("m", tenant, LearnedLimits(window=4_096), Proof(0, 0))
                cache.accepted.accept(tenant)
                cache.contents.put("summary", tenant, b"key", b"text")
                cache.stored.put(tenant, "resp_1", 7)
            await soon(lambda: sum(len(tenants_names(node)) for node in group.masters) == 4 * len(TENANTS))
            assert all(len(tenants_names(node)) > len(TENANTS) / 2 for node in group.masters)

    asyncio.run(check())


def tenants_names(node: RedisServer) -> list[str]:
    """The names on a master of what is not common to all."""
    return [name for name in node.names() if not name.startswith(PREFIX.decode())]


def test_M18_the_first_request_of_a_tenant_is_one_command_and_its_counts_are_another(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "UPDATE_S", -1e9)  # no version without slots is about any more

    async def check() -> None:
        async with AsyncExitStack() as stack:
            cache = Cache(f"redis+cluster://{group.hosts}", SECRET, UPSTREAM)  # not started: nothing else reads
            stack.push_async_callback(cache.close)
            await read_once(cache, ALICE)  # of the model, too
            for tenant in TENANTS[1:9]:
                before = calls(group, b"mget")
                await read_once(cache, tenant)
                assert calls(group, b"mget") == before + 1
                await cache.fetch_counts([(b"%d" % n, b"x" * MIN_FETCH_BYTES + b"%d" % n) for n in range(30)], tenant)
                assert calls(group, b"mget") == before + 2

    asyncio.run(check())


def test_M18_a_slot_that_moves_to_another_master_is_followed(group: Group) -> None:
    async def check() -> None:
        backend = backend_from_url(f"redis+cluster://{group.hosts}")
        names = [prefix + b"x:%d" % n for n, prefix in enumerate(PREFIXES[:6])]
        try:
            await backend.put([(name, b"old", 60.0) for name in names])
            assert list(await backend.get(names)) == [b"old"] * 6
            for name in names[:2]:
                moved(group, name.decode())
            await backend.put([(name, b"new", 60.0) for name in names])
            assert list(await backend.get(names)) == [b"new"] * 6
            moved(group, names[3].decode())
            assert list(await backend.get(names[3:4])) == [b"new"]
            moved(group, names[4].decode())
            assert list(await backend.get(names)) == [b"new"] * 6
        finally:
            await backend.close()

    asyncio.run(check())


def moved(group: Group, name: str) -> None:
    """Moves a slot, with the one name in it, to the next master."""
    slot = group.masters[0].cli("cluster", "keyslot", name).decode().strip()
    (here,) = (node for node in group.masters if name in node.names())
    there = group.masters[(group.masters.index(here) + 1) % 3]
    home, other = (node.cli("cluster", "myid").decode().strip() for node in (here, there))
    there.cli("cluster", "setslot", slot, "importing", home)
    here.cli("cluster", "setslot", slot, "migrating", other)
    here.cli("migrate", "127.0.0.1", str(there.port), name, "0", "5000")
    for node in (there, here, *group.masters):
        node.cli("cluster", "setslot", slot, "node", other)


def test_M18_a_master_that_hangs_keeps_the_stamp_of_what_is_written_to_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [prefix + b"x" for prefix in PREFIXES]

    async def before() -> None:
        backend = backend_from_url(f"redis+cluster://{group.hosts}")
        await backend.put([(name, b"old", 60.0) for name in names])
        await backend.close()

    async def check() -> None:
        backend = backend_from_url(f"redis+cluster://{group.hosts}")
        try:
            hanging = next(node for node in group.masters if node is not group.master)
            name = next(name for name in names if name.decode() in hanging.names())
            with hanging.stopped():
                with pytest.raises(BackendError):
                    await backend.put([(PREFIX + b"stamp", b"new", 60.0), (name, b"new", 60.0)])
            assert PREFIX.decode() + "stamp" not in group.master.names()
        finally:
            await backend.close()

    asyncio.run(before())
    monkeypatch.setattr("proxy.cache.redis.COMMAND_TIMEOUT_S", 0.3)  # of the master that hangs alone
    asyncio.run(check())


def test_M18_what_replicas_with_the_former_names_wrote_is_known_to_those_with_slots(url: str) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            old, new = await started(stack, url, former=True), await started(stack, url)
            old.accepted.accept(ALICE)
            old.record_proof("m", ALICE, LearnedLimits(window=4_096), Proof(0, 0))
            teach(old, "m", ALICE, 1.5, VOTE, votes=True)
            old.contents.put("summary", ALICE, b"key", b"text")
            old.stored.put(ALICE, "resp_1", 7)
            async with asyncio.timeout(WAIT_S):
                while not (knows(new) and await new.stored.get(ALICE, "resp_1") == 7):
                    await read_once(new, ALICE)
                    await asyncio.sleep(0.05)
                while await new.contents.get("summary", ALICE, b"key") != b"text":
                    await asyncio.sleep(0.05)
            assert counts_as(new.correction("m", ALICE, FAMILY, False), 1.5)
            assert not new.accepted.has(BOB)

    asyncio.run(check())


def knows(cache: Cache) -> bool:
    """Whether a replica knows that a caller was accepted, and of the limit of its model."""
    return cache.accepted.has(ALICE) and cache.learned_limits("m", ALICE).window == 4_096


def test_M18_what_was_moved_is_found_under_its_name_of_now_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            old, new = await started(stack, url, former=True), await started(stack, url)
            old.accepted.accept(ALICE)
            old.record_proof("m", ALICE, LearnedLimits(window=4_096), Proof(0, 0))
            async with asyncio.timeout(WAIT_S):
                while not knows(new):
                    await read_once(new, ALICE)
                    await asyncio.sleep(0.05)
            monkeypatch.setattr(keys, "UPDATE_S", -1e9)
            later = await started(stack, url)
            async with asyncio.timeout(WAIT_S):
                while not knows(later):
                    await read_once(later, ALICE)
                    await asyncio.sleep(0.05)

    asyncio.run(check())


def test_M18_a_key_that_a_replica_with_the_former_names_saw_refused_is_refused_by_those_with_slots(url: str) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            old, new = await started(stack, url, former=True), await started(stack, url)
            old.accepted.accept(ALICE)
            async with asyncio.timeout(WAIT_S):
                while not new.accepted.has(ALICE):
                    await read_once(new, ALICE)
                    await asyncio.sleep(0.05)
            old.accepted.refuse(ALICE)
            await soon(lambda: not new.accepted.has(ALICE))

    asyncio.run(check())


def test_M18_what_was_forgotten_and_what_was_spent_are_one_for_both_versions(url: str) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            old, new = await started(stack, url, former=True), await started(stack, url)
            assert old.spending is not None and new.spending is not None
            old.spending.charge(70)
            new.spending.charge(20)
            await soon(lambda: old.spending and new.spending and old.spending.total == new.spending.total == 90)
            new.record_proof("m", ALICE, LearnedLimits(window=4_096), Proof(0, 0))
            assert new.learned_limits("m", ALICE).window == 4_096
            new.record_reads([("m", ALICE)])
            old.forget("m")
            await soon(lambda: new.learned_limits("m", ALICE).window is None)
            new.record_proof("n", ALICE, LearnedLimits(window=4_096), Proof(0, 0))
            old.record_reads([("n", ALICE)])
            new.forget("n")
            new.record_sample("n", ALICE, Shape.TEXT, (100, 120), FAMILY)
            await soon(lambda: old.proofs("n") == [] and new.proofs("n") == [])

    asyncio.run(check())


def test_M18_names_of_the_former_version_are_read_until_all_of_them_have_expired() -> None:
    now = [0.0]
    keyring = keys.Keyring(SECRET, clock=lambda: now[0])
    assert keyring.sealer is not None
    name = keyring.sealer.name("accepted:1", ALICE, whose=ALICE)
    former = FormerSealer(SECRET).name("accepted:1", ALICE, whose=ALICE)
    assert keyring.names(name, 3_600.0) == [name, former] and name != former
    now[0] = keys.UPDATE_S + 3_600.0
    assert keyring.names(name, 3_600.0) == [name, former]
    now[0] += 1
    assert keyring.names(name, 3_600.0) == [name]
    assert keyring.names(name, 7 * 86_400.0) == [name, former]
    assert keyring.names(former, 7 * 86_400.0) == [former], "what is common to all has kept its name"
