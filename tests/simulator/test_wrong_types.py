"""Values of every wrong type at every place of a request: the simulator answers or refuses, and never fails."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest

from proxy.simulator.app import simulator
from tests.fuzz.bodies import places
from tests.fuzz.dialects import DIALECTS, Dialect
from tests.simulator.test_app import exchange

WRONG: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**40, "", "x", [], {}, [None], [1], ["x"], [{}], [[]], {"type": "x"})
MOST_PLACES = 60  # of one request
HEADERS = [(b"content-type", b"application/json")]


def valid(dialect: Dialect) -> dict[str, Any]:
    """A request of several messages that is not long."""
    found = [dialect.valid(seed) for seed in range(40)]
    return min((body for body in found if len(list(places(body))) > 20), key=lambda body: len(json.dumps(body)))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_wrong_type_is_an_error_of_the_simulators(dialect: Dialect) -> None:
    body = valid(dialect)
    headers = [*HEADERS, *(tuple(h.split(b": ", 1)) for h in dialect.headers)]

    async def check() -> None:
        for at in range(min(MOST_PLACES, len(list(places(body))))):
            for value in WRONG:
                changed = copy.deepcopy(body)
                holder, key = list(places(changed))[at]
                holder[key] = copy.deepcopy(value)
                reply = await exchange(
                    simulator(),
                    path=dialect.path,
                    body=json.dumps(changed).encode(),
                    headers=headers,  # type: ignore[arg-type]
                )
                assert reply.status in (200, 400, 404), (key, value)

    asyncio.run(check())
