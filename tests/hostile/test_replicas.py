"""Two replicas on one Redis, as processes: a caller is accepted by both, and the operator's budget is one, also while
Redis is killed, hangs, or comes back empty."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.hostile.harness import HELLO, Running, eventually, running, upstream
from tests.hostile.test_money import full, owned, telling
from tests.keys import checking_keys
from tests.recorder import Recorder
from tests.redis_server import RedisServer, redis_server

COST = 123  # tokens of one summary
BUDGET = 6 * COST
AMPLE = 40 * COST
SECRET, ALICE = "s" * 32, "sk-alice"


@contextmanager
def replicas(folder: Path, redis: RedisServer, budget: int = BUDGET) -> Iterator[tuple[Recorder, Running, Running]]:
    """The upstream of summaries, which the operator pays, and two replicas before one that checks keys."""
    with ExitStack() as stack:
        there, payers = stack.enter_context(upstream()), stack.enter_context(upstream(telling))
        more = {
            "PLIMSOLL_EXTRA_CALLS_BUDGET": str(budget),
            "PLIMSOLL_EMBEDDINGS_MODEL": "",
            "PLIMSOLL_RULES": checking_keys(folder),
            "PLIMSOLL_SECRET": SECRET,
            "PLIMSOLL_REDIS": redis.url,
        }
        one, other = (stack.enter_context(running(there.url, **owned(payers, **more))) for _ in range(2))
        yield payers, one, other


def left(proxy: Running) -> float:
    """What a replica knows to be left of the budget."""
    return proxy.metric("plimsoll_extra_budget_left_tokens")


def spend(payers: Recorder, proxy: Running, story: str) -> None:
    """Requests of conversations of their own until a summary was made, which the operator pays. One that was cut
    without a summary keeps that cut."""
    before, turns = len(payers.requests), itertools.count()

    def paid() -> bool:
        assert proxy.ask(full(f"{story}, {next(turns)}"), key=ALICE).status == 200
        return len(payers.requests) > before

    eventually(paid, 60)


def both_know(payers: Recorder, *proxies: Running, budget: int = BUDGET) -> None:
    """Waits until each replica knows what both spent."""
    eventually(lambda: {left(one) for one in proxies} == {max(0, budget - COST * len(payers.requests))}, 60)


def test_M8_of_two_replicas_both_accept_a_caller_and_their_budget_is_one(tmp_path: Path) -> None:
    with redis_server() as redis, replicas(tmp_path, redis) as (payers, one, other):
        assert one.ask(HELLO, key=ALICE).status == 200
        eventually(lambda: any("accepted" in name for name in redis.names()))
        eventually(lambda: other.metric("plimsoll_cache_breaker_open", breaker="reading") == 0)
        assert other.ask(full("a caller that only the other replica knows"), key=ALICE).status == 200
        if not late(other):
            assert other.metric("plimsoll_extra_calls_total", kind="summary", result="unaccepted") == 0
        for turn in range(6):  # one request may cause two calls on a machine that is busy
            if COST * len(payers.requests) < BUDGET:
                spend(payers, (one, other)[turn % 2], f"story {turn}")  # who spends asks what others spent
            if turn:
                both_know(payers, one, other)
        for proxy in (one, other):
            assert proxy.ask(full("late"), key=ALICE).status == 200
        both_know(payers, one, other)
        paid = len(payers.requests)
        assert left(one) == left(other) == 0 and 6 <= paid <= 7
        for turn in range(4):
            assert (one, other)[turn % 2].ask(full(f"later {turn}"), key=ALICE).status == 200
        assert len(payers.requests) == paid, "nothing is left at either of them"


def late(proxy: Running) -> bool:
    """Whether Redis did not answer a read within its budget, as it may not on a machine that is busy."""
    return any(proxy.metric("plimsoll_cache_troubles_total", kind=kind) for kind in ("late", "skipped"))


def killed(redis: RedisServer, during: Callable[[], None]) -> None:
    redis.kill()
    during()
    redis.start()


def hanging(redis: RedisServer, during: Callable[[], None]) -> None:
    with redis.stopped():
        during()


def emptied(redis: RedisServer, during: Callable[[], None]) -> None:
    during()
    redis.kill()
    redis.start()


def busy(redis: RedisServer, during: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        redis.cli("config", "set", "maxmemory", "1")  # from now on it refuses to write
    during()
    redis.cli("config", "set", "maxmemory", "0")


@pytest.mark.parametrize("fault", [killed, hanging, emptied, busy])
def test_M8_a_fault_of_redis_refuses_nobody_and_loses_nothing_of_the_budget(
    tmp_path: Path, fault: Callable[[RedisServer, Callable[[], None]], None]
) -> None:
    with redis_server() as redis, replicas(tmp_path, redis, AMPLE) as (payers, one, other):
        assert one.ask(HELLO, key=ALICE).status == 200
        spend(payers, one, "before")
        spend(payers, other, "before, at the other one")
        both_know(payers, one, other, budget=AMPLE)

        def during() -> None:
            for turn in range(3):
                assert one.ask(HELLO, key=ALICE).status == other.ask(HELLO, key=ALICE).status == 200
                assert one.ask(full(f"meanwhile {turn}"), key=ALICE).status == 200

        fault(redis, during)
        both_know(payers, one, other, budget=AMPLE)
        spend(payers, other, "after")
        both_know(payers, one, other, budget=AMPLE)
        assert 3 <= len(payers.requests) < AMPLE // COST
        eventually(lambda: any("accepted" in name for name in redis.names()), 60)
