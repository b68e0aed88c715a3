"""Two proxies on a Redis whose master dies: every request is answered, and afterwards they share what they learn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from proxy.simulator.app import SimulatorConfig
from tests.e2e.services import Running, body, plimsoll, simulating, talk
from tests.redis_groups import NAME, Group, cluster, sentinels
from tests.serving import eventually, run

# redis-py may lose a socket when a cancellation meets it while it connects; whoever runs next would be blamed for it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def is_open(proxy: Running) -> int:
    """Whether it reads nothing from its Redis."""
    return proxy.services.cache.open_breakers()[("reading",)]


@pytest.mark.parametrize(
    ("started", "url"), [(sentinels, "redis+sentinel://{}/" + NAME), (cluster, "redis+cluster://{}")]
)
def test_no_request_fails_while_the_master_dies_and_lessons_are_shared_again(
    started: Callable[[], AbstractContextManager[Group]], url: str
) -> None:
    async def check(group: Group) -> None:
        shared = {"PLIMSOLL_REDIS": url.format(group.hosts), "PLIMSOLL_SECRET": "a secret"}
        config = SimulatorConfig(windows={"before": 4_096, "after": 4_096}, window_field="")
        async with (
            simulating(config) as (_, upstream),
            plimsoll(upstream, **shared) as one,
            plimsoll(upstream, **shared) as two,
        ):
            await eventually(lambda: not is_open(one) and not is_open(two), 60)
            await learned(one, two, "before")
            group.master.kill()
            noticed: set[int] = set()
            while len(noticed) < 2:  # one may have it again before the other has missed it
                assert [(await proxy.chat(body(talk(10)))).status for proxy in (one, two)] == [200, 200]
                noticed |= {proxy.port for proxy in (one, two) if is_open(proxy)}
            while is_open(one) or is_open(two):
                assert [(await proxy.chat(body(talk(10)))).status for proxy in (one, two)] == [200, 200]
                await asyncio.sleep(0.02)
            await learned(one, two, "after")

    with started() as group:
        run(check(group), 180)


async def learned(one: Running, two: Running, model: str) -> None:
    """One is refused for the length of a request; the other then knows the window."""
    assert (await one.chat(body(talk(100), model, max_tokens=500))).status == 200
    assert one.learned(model).window
    ends = time.monotonic() + 60
    while two.learned(model) != one.learned(model):
        assert time.monotonic() < ends
        assert (await two.chat(body(talk(2), model, max_tokens=500))).status == 200
        await asyncio.sleep(0.1)
