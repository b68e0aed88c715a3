"""One request as the gateway holds it: the latest value of each stage that it bound, and the outcome that follows."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from proxy.fit.money import BROKEN_OFF
from proxy.http.memory_budget import Room
from proxy.model.outcome import Extra, Outcome, Usage
from proxy.request.backend import Backend
from proxy.request.figures import Figures, figures_of
from proxy.request.holds import Hold
from proxy.request.shown import Keeping
from proxy.request.stages import Answered, Planned, Received, Record
from proxy.tokens.truncation import truncated
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.headers import request_id

NO_COST = CallCost()


class RequestContext(msgspec.Struct):
    """The latest value of each stage of one request, and its record; only the gateway binds a stage.

    `home`: the upstream that it is planned for; `asked`: the one that the latest attempt went to. `counting`: the count
    that runs while the upstream works. `room`: its body's share of the memory budget. `keeping`: what is kept of it for
    the page. `hold`: what it holds of its caller's budget.
    """

    received: Received
    planned: Planned | None = None
    answered: Answered | None = None
    record: Record = msgspec.field(default_factory=Record)
    home: Backend | None = None
    asked: Backend | None = None
    counting: asyncio.Task[Planned] | None = None
    room: Room | None = None
    figures: Figures | None = None
    keeping: Keeping | None = None
    hold: Hold | None = None

    @property
    def latest(self) -> Planned | None:
        """What is sent: `planned`, with the count that a task has made of it meanwhile."""
        counting = self.counting
        if counting is None or not counting.done() or counting.cancelled():
            return self.planned
        return counting.result()

    @property
    def result(self) -> str:
        """The outcome's label so far."""
        if self.record.result:
            return self.record.result
        return self.latest.result if self.latest is not None else ""

    def figures_now(self) -> Figures:
        """The figures of the content, which is not released yet."""
        sent = self.record.attempts > 0
        return figures_of(self.received, self.latest, sent, self.keeping)

    def close(self) -> None:
        """Returns the share of the memory budget, and takes the figures if they are not taken yet."""
        if self.figures is None:
            self.figures = self.figures_now()
        if self.room is not None:
            self.room.release()

    def final(self) -> Outcome:
        """The outcome, marked where its usage shows that the upstream cut the prompt silently."""
        outcome = self.outcome()
        counted, usage = outcome.prompt_sent, outcome.usage
        if usage is None or counted is None or outcome.status != 200 or usage.prompt >= counted:
            return outcome
        unit = (self.figures or self.figures_now()).unit
        return replace(outcome, truncated=True) if truncated(counted, outcome.quality, unit, usage) else outcome

    def outcome(self) -> Outcome:
        """The outcome, from the last stage that was reached. In `observe` mode the notes are what would be done."""
        figures, answered, record = self.figures or self.figures_now(), self.answered, self.record
        outcome = replace(
            figures.outcome,
            result=record.result or figures.outcome.result or "passed",
            status=0 if answered is None else answered.status,
            usage=None if answered is None else _reported(answered, record),
            own_seconds=record.own_seconds,
            upstream_seconds=record.upstream_seconds,
            first_byte_seconds=record.first_byte_seconds,
            attempts=record.attempts,
            request_id=request_id(record.request_id) if record.request_id else "",
            caller=self.received.controls.caller,
        )
        if answered is not None and outcome.result in BROKEN_OFF:
            outcome = replace(outcome, came=answered.came)
        if self.hold is not None:
            outcome = replace(outcome, budget=self.hold.budget.name, stage=self.hold.stage)
        return outcome if record.is_plain else self._with_events(outcome)

    def _with_events(self, outcome: Outcome) -> Outcome:
        """The outcome with what happens to few requests."""
        answered, record = self.answered, self.record
        cost = record.cost or NO_COST
        if record.trace is not None and answered is not None and answered.tap is not None:
            record.trace.read_along(answered.tap)
        return replace(
            outcome,
            refusals=record.refusals,
            healed=answered is not None and answered.healed,
            extra_calls=cost.calls,
            extra_tokens=cost.tokens,
            extra_seconds=cost.seconds,
            trace=None if record.trace is None else record.trace.result(),
            phases=() if record.phases is None else tuple(record.phases.items()),
            upstream=record.upstream,
        )


def _reported(answered: Answered, record: Record) -> Usage | None:
    """The usage that the upstream reported; with what its header says that it costs, where the usage does not."""
    usage, cost = answered.reported, record.cost_reported
    if usage is None or cost is None:
        return usage
    extra = usage.extra or Extra()
    return usage if extra.cost is not None else replace(usage, extra=replace(extra, cost=cost))
