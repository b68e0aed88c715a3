"""What no request waits for: its count while the upstream works, and what later turns will want."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.http.memory_budget import Budget, Room
from proxy.model.budget import Budget as Spending
from proxy.model.budget import Over
from proxy.model.caller_rule import CallerRule
from proxy.model.plan import Ladder, Mode
from proxy.model.structs import replace
from proxy.request.later import Later
from proxy.request.stages import Planned
from proxy.request.work import MAX_TASKS
from tests.e2e.services import body, sentence, talk
from tests.request.planned import Arrived, arrived, prepared, services


def proven(**fields: Any) -> tuple[Later, Arrived]:
    """A request that is proven to fit, and what counts it."""
    planner = services().gateway.default.planner
    context = arrived(body(talk(2), "gpt-4o", **fields))
    prepared(planner, context)
    assert context.proven and context.total is None
    return planner.later, context


def test_a_count_changes_nothing_but_the_count() -> None:
    later, context = proven()
    counted = asyncio.run(later.count(context.stage, context.record))
    assert counted.total is not None and counted.proven
    assert replace(counted, counted=context.counted) == context.stage


def test_a_short_one_is_counted_whatever_waits_and_a_long_one_is_not() -> None:
    later, short = proven()

    async def check() -> None:
        long = arrived(body([{"role": "user", "content": sentence(1, 20_000)}], "gpt-4.1"))
        planned = await services().gateway.default.planner.prepare(long.received, long.record)
        blocked = asyncio.Event()
        for _ in range(MAX_TASKS):
            later.background.start(blocked.wait(), 1)
        assert later.start_count(planned, long.record) is None
        counting = later.start_count(short.stage, short.record)
        assert counting is not None and (await counting).total is not None
        blocked.set()
        await later.background.close()

    asyncio.run(check())


class Noting:
    """Plans nothing, and notes what it was to plan."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Ladder]] = []

    async def build(self, received: Any, scanned: Any, ladder: Ladder, record: Any) -> None:
        self.asked.append((scanned, ladder))
        raise LookupError("a bug of ours")


@pytest.mark.parametrize("mode", [Mode.FIT, Mode.OBSERVE])
def test_wants_of_later_turns_are_fetched_only_where_a_plan_may_be_sent_and_their_room_is_given_back(
    mode: Mode,
) -> None:
    async def check() -> None:
        made = services(PLIMSOLL_LADDER="agent")
        planner, budget = made.gateway.default.planner, Budget(1 << 30, 1)
        context = arrived(body(talk(60)), mode)
        planned: Planned = await planner.prepare(replace(context.received, room=Room(budget)), context.record)
        noting: Any = Noting()
        later = Later(planner.background, planner.totals, planner.plans)
        later._plans = noting
        scanned, ladder = planned.scanned, made.rules.ladders["default"]
        assert scanned is not None
        before = budget.used
        later.prefetch(planned.received, replace(scanned, probing=True), ladder, context.record)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(noting.asked) == (mode is Mode.FIT) and budget.used == before
        held = CallerRule(1, "ann", budget=Spending("b", 1_000, over=Over.FIT))
        under = replace(planned.received, controls=replace(planned.received.controls, rule=held))
        later.prefetch(under, replace(scanned, probing=True), ladder, context.record)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(noting.asked) == (mode is Mode.FIT), "what ends later could not be charged to a budget"
        for seen, asked in noting.asked:
            assert not seen.probing and seen.scan.text == b"" and all(step.ahead is None for step in asked.steps)

    asyncio.run(check())
