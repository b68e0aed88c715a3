"""One request: the latest value of each of its stages, and what follows from them: headers, notices, its outcome."""

from __future__ import annotations

import msgspec

from proxy.config.upstreams import DEFAULT
from proxy.http.memory_budget import Room
from proxy.model.limits import Window
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Mode, Plan
from proxy.model.scan import Total
from proxy.model.structs import replace
from proxy.request.figures import Figures, figures_of
from proxy.request.shown import Keeping
from proxy.request.stages import Answered, Counted, Planned, Received, Record, Scanned
from proxy.tokens.meter import unit_of
from proxy.tokens.truncation import truncated
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.controls import NOTHING_ASKED
from proxy.wire.headers import request_id
from proxy.wire.report import count, header_value, notices, plan_headers, total_headers

OBSERVED = (b"x-plimsoll-mode", b"observe")
REFUSING = "the request is near the window: the server is told to refuse it rather than to shorten it without a word"
UNKNOWN_STORED = "what the upstream has stored is not known here, and is not counted"
UNPLANNED = "the request was sent as it came, unmeasured: {}"
LEFT_OUT = "{:,} messages in the middle are left out and not counted: there are too many to be parsed"
NO_COST = CallCost()


class RequestContext(msgspec.Struct):
    """The latest value of each stage of one request, and its record. `room`: its body's share of the memory budget.
    `upstream`: the one that it is planned for, if there are several. `keeping`: what is kept of it for the page."""

    received: Received
    scanned: Scanned | None = None
    counted: Counted | None = None
    planned: Planned | None = None
    answered: Answered | None = None
    record: Record = msgspec.field(default_factory=Record)
    room: Room | None = None
    figures: Figures | None = None
    upstream: str = ""
    keeping: Keeping | None = None

    @property
    def proven(self) -> bool:
        """Whether the body's bytes alone prove that it fits."""
        return self.counted is not None and self.counted.proven

    @property
    def plan(self) -> Plan | None:
        """The plan, if the ladder was descended and the content is not released."""
        return None if self.planned is None else self.planned.plan

    @property
    def total(self) -> Total | None:
        """The cost of the prompt, if it was counted without a plan."""
        return None if self.counted is None else self.counted.total

    def forget(self) -> None:
        """After a failure: the request has no ladder, no count and no plan, and is sent as the client sent it."""
        if self.scanned is not None:
            self.scanned = replace(self.scanned, ladder=None)
        if self.counted is not None:
            self.counted = replace(self.counted, total=None)
        if self.planned is not None:
            self.planned = Planned(self.planned.payload)

    def end(self, result: str, status: int) -> None:
        """Sets the result and the status of a request that ended otherwise than by the upstream's answer."""
        self.record.result = result
        self.answered = Answered(status) if self.answered is None else replace(self.answered, status=status)

    def figures_now(self) -> Figures:
        """The figures of the content, which is not released yet."""
        sent = self.record.attempts > 0
        return figures_of(self.received, self.scanned, self.counted, self.planned, sent, self.keeping)

    def close(self) -> None:
        """Returns the share of the memory budget, and takes the figures if they are not taken yet."""
        if self.figures is None:
            self.figures = self.figures_now()
        if self.room is not None:
            self.room.release()

    def release(self, counted: object = None) -> None:
        """Closes the request and drops its content, while its answer is still under way."""
        if self.figures is None:
            self.close()
            self.received = replace(self.received, body=b"")
            self.scanned = self.planned = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The x-plimsoll-* response headers, as far as the figures are known by now."""
        scanned, plan, total = self.scanned, self.plan, self.total
        if plan is not None:
            found = plan_headers(plan, sent=self.received.may_change)
        else:
            found = [] if total is None or scanned is None else total_headers(total, scanned.scan.reserve)
        if self.received.mode is Mode.OBSERVE:
            found.append(OBSERVED)
        if self.record.upstream and self.record.upstream != DEFAULT:
            found.append((b"x-plimsoll-upstream", self.record.upstream.encode()))
        if self._has_notices(scanned) and (notes := self.notices()):
            found.append((b"x-plimsoll-notice", header_value("; ".join(notes))))
        return found

    def notices(self) -> list[str]:
        """What the client asked for that has no effect, and the extra calls that a dry run did not make."""
        scanned, plan = self.scanned, self.plan
        if self.record.unplanned:
            return [UNPLANNED.format(self.record.unplanned)]
        if scanned is None:
            return []
        if plan is not None:
            window: Window | None = plan.before.window
        else:
            window = None if self.counted is None else self.counted.window
        messages = scanned.scan.seen.count if plan is None else count(plan.before)
        missing = () if self.planned is None else self.planned.missing
        return [
            *notices(scanned.controls, window, messages),
            *([LEFT_OUT.format(scanned.left_out)] if scanned.left_out else []),
            *([UNKNOWN_STORED] if self._is_uncounted() else []),
            *([self.record.unmoved[0]] if self.record.unmoved[0] else []),
            *([REFUSING] if self._is_refusing else []),
            *missing,
        ]

    def _has_notices(self, scanned: Scanned | None) -> bool:
        """Whether there may be notices; most requests ask for nothing."""
        if self.record.unplanned:
            return True
        if scanned is None:
            return False
        if scanned.controls is not NOTHING_ASKED or scanned.left_out or self.record.unmoved[0]:
            return True
        return self._is_uncounted() or self._is_refusing

    @property
    def _is_refusing(self) -> bool:
        return self.planned is not None and self.planned.refusing

    def _is_uncounted(self) -> bool:
        """Whether it goes on from something stored whose length is not known here."""
        prompt = None if self.planned is None else self.planned.prompt
        return prompt is not None and bool(prompt.stored.continues) and not prompt.stored.tokens

    def is_truncated(self, usage: Usage) -> bool:
        """Whether the upstream read far fewer tokens than it was sent, by the figures that are known by now."""
        plan, total = self.plan, self.total
        if plan is not None:
            sent = plan.draft if self.received.may_change else plan.before
            return truncated(sent.billed, sent.meter.quality, unit_of(sent.meter), usage)
        if total is None or usage.prompt >= total.prompt:  # as of nearly all
            return False
        return truncated(total.prompt, total.quality, total.unit, usage)

    def outcome(self) -> Outcome:
        """The outcome, from the last stage that was reached. In `observe` mode the notes are what would be done."""
        figures, answered, record = self.figures or self.figures_now(), self.answered, self.record
        outcome = replace(
            figures.outcome,
            result=record.result or "passed",
            status=0 if answered is None else answered.status,
            usage=None if answered is None else answered.reported,
            own_seconds=record.own_seconds,
            upstream_seconds=record.upstream_seconds,
            first_byte_seconds=record.first_byte_seconds,
            attempts=record.attempts,
            request_id=request_id(record.request_id) if record.request_id else "",
        )
        return outcome if record.is_plain else self._with_events(outcome)

    def _with_events(self, outcome: Outcome) -> Outcome:
        """The outcome with what happens to few requests."""
        answered, record = self.answered, self.record
        cost = record.cost or NO_COST
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
            unmoved=record.unmoved[0],
            unmoved_by=record.unmoved[1],
            unplanned=record.unplanned,
        )
