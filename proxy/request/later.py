"""What no request waits for: counts of requests that fit, and what the steps of later turns will want."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.http.memory_budget import Room
from proxy.model.plan import Ladder
from proxy.request.bugs import report_bug
from proxy.request.planning import PlanBuilder
from proxy.request.stages import Planned, Received, Record, Scanned
from proxy.request.totals import TotalCounter
from proxy.request.work import INLINE_BYTES, Background
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.scan import NotUnderstood


@dataclass(slots=True)
class Later:
    """Counts and fetches in the background, as far as that has capacity."""

    background: Background
    totals: TotalCounter
    plans: PlanBuilder
    _totals: TotalCounter = field(init=False)  # that count in its threads
    _plans: PlanBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._totals = dataclasses.replace(self.totals, pool=self.background.pool)
        self._plans = dataclasses.replace(self.plans, pool=self.background.pool)

    def start_count(self, planned: Planned, record: Record) -> asyncio.Task[Planned] | None:
        """Starts to count a request that is proven to fit, while the upstream works. None for a long one if too much
        background work is under way: its body would be kept in memory for nobody."""
        scanned = planned.scanned
        assert scanned is not None
        if scanned.scan.new <= INLINE_BYTES:
            return asyncio.create_task(self.count(planned, record))
        if self.background.has_capacity(len(scanned.plain)):
            return self.background.start(self.count(planned, record), len(scanned.plain))
        return None

    async def count(self, planned: Planned, record: Record) -> Planned:
        """The same stage with its count; as it was sent, without a ladder, if that cannot be had."""
        began = time.perf_counter()
        try:
            assert planned.scanned is not None and planned.scanned.ladder is not None
            counted = await self._totals.count(planned.received, planned.scanned, planned.scanned.ladder)
            record.phase("count", began)
            return replace(planned, counted=replace(counted, proven=True))
        except NotUnderstood as error:
            return replace(planned, result="not_understood", unplanned=str(error)).as_sent(planned.payload)
        except Exception as error:
            report_bug(record, error)
            return planned.as_sent(planned.payload)

    def prefetch(self, received: Received, scanned: Scanned, ladder: Ladder, record: Record) -> None:
        """Starts to fetch what steps will want at later turns."""
        size, room = len(scanned.plain), None
        if not received.may_change or not self.background.has_capacity(size):
            return
        rule = received.controls.rule
        if rule is not None and rule.budget is not None and rule.budget.enforced:
            return  # what ends after the request could not be settled with it
        if received.room is not None and not (room := received.room.another()).try_reserve(size):
            return
        record.cost = record.cost or CallCost()
        later = replace(scanned, scan=replace(scanned.scan, text=b""), lore=(), probing=False)
        steps = tuple(ladder_step.ahead for ladder_step in ladder.steps if ladder_step.ahead is not None)
        work = self._fetch(received, later, ladder.with_steps(steps), Record(cost=record.cost), room)
        self.background.start(work, size)

    async def _fetch(
        self, received: Received, scanned: Scanned, ladder: Ladder, record: Record, room: Room | None
    ) -> None:
        try:
            await self._plans.build(received, scanned, ladder, record)
        except Exception as error:
            report_bug(record, error)
        finally:
            if room is not None:
                room.release()
