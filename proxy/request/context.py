"""One request, from its arrival to its `Outcome`: the stages that it passes, and the record of its attempts and times.

Theory of operation
-------------------

A request passes five stages. Each is a frozen value, made from the stages before it:

    Received   as the client sent it: headers, control headers, body
        |      read_body
    Scanned    the plain body, what a scan of its bytes found, and what follows from its model and its sender: the
        |      ladder, lorebook entries, learned limits
    Counted    the window, and the prompt's tokens where they are known
        |      the bytes prove that it fits, or its count does, or the ladder is descended
    Planned    the payload, and where the ladder was descended the plan that it follows from
        |      upstream
    Answered   the status that the client got, and the usage that the upstream reported

`Counted` may come after `Planned`: where the body's bytes alone prove that it fits (`proven`), the request is sent at
once and counted while the upstream works. A refusal leads back from the upstream to another `Planned`, made from the
same `Received`: nothing is planned from a payload. Where a stage fails, or the body is not understood, the request
keeps the stages that it passed and its payload is what the client sent.

`RequestContext` has the latest value of each stage; `prepare`, `heal` and the gateway set them, and nothing else does.
What is no decision is in its `Record`: attempts, times, costs. `release` drops all content as soon as the answer
begins, and keeps its `Figures`; the `Outcome` is made of figures, answer and record.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from proxy.config.upstreams import DEFAULT
from proxy.fit.lore import Entry
from proxy.http.memory_budget import Room
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Window
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Draft, Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.observe.recent import Shown
from proxy.request.sent_prefixes import Prefixes
from proxy.request.shown import Keeping
from proxy.request.tracing import RequestTrace
from proxy.tokens.meter import unit_of
from proxy.tokens.usage import truncated
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.headers import request_id
from proxy.wire.report import count, header_value, notices, plan_headers, total_headers
from proxy.wire.tap import Tap

OBSERVED = (b"x-plimsoll-mode", b"observe")
REFUSING = "the request is near the window: the server is told to refuse it rather than to shorten it without a word"
UNKNOWN_STORED = "what the upstream has stored is not known here, and is not counted"


class Received(msgspec.Struct, frozen=True, gc=False):
    """A request as it arrived. `dry_run`: nothing is sent for it, and no extra call is made (`/inspect`)."""

    api: Api
    mode: Mode
    path: str = ""
    headers: Headers = ()
    controls: Controls = NOTHING_ASKED
    body: bytes = b""
    dry_run: bool = False

    @property
    def may_change(self) -> bool:
        """Whether what is sent may differ from what the client sent."""
        return self.mode is Mode.FIT or self.mode is Mode.STRICT


class Scanned(msgspec.Struct, frozen=True, gc=False):
    """A body whose bytes were scanned, and what follows from its model and its sender.

    `plain` is the body without its content-encoding, without the proxy's own key in messages, and without unpaired
    surrogates. `controls` includes the pins of that key. `ladder` is None if none may be used: the request was not
    understood. `tenant` is a digest of all headers that upstreams tell their tenants apart by (`tenant_of`), empty if
    nothing depends on it. `learned` are the limits that refusals proved for this tenant; `probing`: the request is
    planned without them, to test whether they still hold.
    """

    plain: bytes
    scan: Scan
    controls: Controls = NOTHING_ASKED
    ladder: Ladder | None = None
    lore: tuple[Entry, ...] = ()
    tenant: bytes = b""
    learned: LearnedLimits = NOTHING_LEARNED
    probing: bool = False

    @property
    def model(self) -> str:
        """The model that the client named."""
        return self.scan.model


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The window that a request is compared with, and the cost of its prompt.

    `proven`: the body's bytes alone prove that it fits; then `total` is None until the background count ends.
    `skipped`: too much background work was under way to count it at all.
    """

    window: Window
    total: Total | None = None
    proven: bool = False
    skipped: bool = False


class Planned(msgspec.Struct, frozen=True, gc=False):
    """The bytes to send. Where the ladder was descended: the prompt, the facts and the plan that they follow from.

    `missing` are the kinds of `Want` that a dry run could not fulfil. `prefixes`: those of what the client sent and of
    a payload that a plan changed. `refusing`: no step changed it, but the server is told to refuse what is too long,
    where it would have dropped something and said nothing.
    `pieces`: the payloads that are sent instead of one.
    """

    payload: bytes = b""
    prompt: Prompt | None = None
    facts: Facts | None = None
    plan: Plan | None = None
    missing: tuple[str, ...] = ()
    prefixes: tuple[Prefixes, Prefixes | None] | None = None
    refusing: bool = False
    pieces: tuple[bytes, ...] = ()


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The answer that the client got: its HTTP status, and whether it was healed after a refusal.

    `usage` was read from an answer of one piece; `tap` reads it from an answer that is relayed.
    """

    status: int
    usage: Usage | None = None
    tap: Tap | None = None
    healed: bool = False

    @property
    def reported(self) -> Usage | None:
        """The usage that the upstream reported."""
        return self.usage if self.tap is None else self.tap.usage


class Record(msgspec.Struct):
    """Attempts, times and costs of a request while it is under way. Times of `time.perf_counter`, in seconds.

    `result` is the outcome's label so far. `counting` is the count that runs while the upstream works. `cost` is what
    extra calls cost, None before the first one. `trace`: if the request is sampled. `upstream` is where the latest
    attempt went, if there are several. `phases`: parts of our own time by name, and of counts in the background.
    `held` is the body for a recording, None if there was no room for it.
    """

    result: str = ""
    attempts: int = 0
    refusals: tuple[str, ...] = ()
    request_id: bytes = b""
    counting: asyncio.Task[None] | None = None
    cost: CallCost | None = None
    trace: RequestTrace | None = None
    phases: dict[str, float] | None = None
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    upstream: str = ""
    held: bytes | None = b""
    _sent_at: float = 0.0
    _waiting_since: float = 0.0

    def attempt(self) -> None:
        """The request is about to be sent to the upstream."""
        self.attempts += 1
        self._sent_at = self._waiting_since = time.perf_counter()

    def phase(self, name: str, began: float, waited: float = 0.0) -> None:
        """Adds the time since `began` to a phase, without what it `waited` for others."""
        if self.phases is None:
            self.phases = {}
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began - waited

    def first_byte(self) -> None:
        """The first bytes of the answer's body go to the client."""
        self.first_byte_seconds = time.perf_counter() - self._sent_at

    def stop_waiting(self) -> None:
        """The upstream has finished with this attempt, or the proxy with the upstream."""
        if self._waiting_since:
            self.upstream_seconds += time.perf_counter() - self._waiting_since
            self._waiting_since = 0.0
        if self.trace is not None:
            self.trace.stop()


class Figures(msgspec.Struct, frozen=True, gc=False):
    """What remains of a request when its content is released.

    `outcome` has what follows from its stages, without what its answer and its record add. `tenant` and `probing` are
    those of `Scanned`, `prefixes` those of `Planned`. `unit` is the number of the model's tokens that one token of its
    encoding counts as; None if its count teaches nothing. `appends_to`: the id of the stored conversation that the
    reply becomes a part of.
    """

    outcome: Outcome
    tenant: bytes = b""
    probing: bool = False
    unit: float | None = None
    appends_to: str = ""
    prefixes: tuple[Prefixes, Prefixes | None] | None = None
    shown: Shown | None = None


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

    def close(self) -> None:
        """Returns the share of the memory budget, and takes the figures if they are not taken yet."""
        if self.figures is None:
            self.figures = figures_of(self)
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
        if scanned is None:  # it was not understood
            return []
        if plan is not None:
            window: Window | None = plan.before.window
        else:
            window = None if self.counted is None else self.counted.window
        messages = scanned.scan.seen.count if plan is None else count(plan.before)
        missing = () if self.planned is None else self.planned.missing
        return [
            *notices(scanned.controls, window, messages),
            *([UNKNOWN_STORED] if self._is_uncounted() else []),
            *([REFUSING] if self._is_refusing else []),
            *(f"{kind} that is not known yet would be asked for" for kind in missing),
        ]

    def _has_notices(self, scanned: Scanned | None) -> bool:
        """Whether there may be notices; most requests ask for nothing."""
        if scanned is None:
            return False
        return scanned.controls is not NOTHING_ASKED or self._is_uncounted() or self._is_refusing

    @property
    def _is_refusing(self) -> bool:
        return self.planned is not None and self.planned.refusing

    def _is_uncounted(self) -> bool:
        """Whether it goes on from something stored whose length is not known here."""
        prompt = None if self.planned is None else self.planned.prompt
        return prompt is not None and bool(prompt.continues) and not prompt.stored

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
        figures, answered, record = self.figures or figures_of(self), self.answered, self.record
        cost = record.cost or NO_COST
        return replace(
            figures.outcome,
            result=record.result or "passed",
            status=0 if answered is None else answered.status,
            refusals=record.refusals,
            healed=answered is not None and answered.healed,
            usage=None if answered is None else answered.reported,
            own_seconds=record.own_seconds,
            upstream_seconds=record.upstream_seconds,
            first_byte_seconds=record.first_byte_seconds,
            attempts=record.attempts,
            request_id=request_id(record.request_id) if record.request_id else "",
            extra_calls=cost.calls,
            extra_tokens=cost.tokens,
            extra_seconds=cost.seconds,
            trace=None if record.trace is None else record.trace.result(),
            phases=() if record.phases is None else tuple(record.phases.items()),
            upstream=record.upstream,
        )


NO_COST = CallCost()


def figures_of(context: RequestContext) -> Figures:
    """The figures of a request, by the last stage that it reached. Of a request that never went upstream nothing was
    sent, cut or granted."""
    received, scanned, counted = context.received, context.scanned, context.counted
    if scanned is None:
        return Figures(Outcome(received.api.name, "", 0, received.mode, path=received.path))
    scan, ladder = scanned.scan, scanned.ladder
    sent = context.record.attempts > 0
    if (plan := context.plan) is not None:
        return _of_plan(context, scanned, plan, sent)
    if ladder is None or counted is None or counted.total is None:
        outcome = Outcome(
            received.api.name,
            "",
            0,
            received.mode,
            "" if ladder is None else ladder.name,
            scan.model,
            scan.model,
            uncounted=counted is not None and counted.skipped,
            stream=scan.stream,
            path=received.path,
        )
        return Figures(outcome, scanned.tenant, scanned.probing, shown=_kept(context, scanned))
    total, window, reply = counted.total, counted.window, scan.reserve
    reserve = ladder.default_reserve if reply is None else reply
    most = total.longest or total.prompt
    floor = window.floor(ladder.floor)
    load = window.load_without_limit(most, reserve, floor) if reply is None else window.load(most, reserve)
    outcome = Outcome(
        received.api.name,
        "",
        0,
        received.mode,
        ladder.name,
        scan.model,
        scan.model,
        window.tokens,
        window.source,
        total.quality,
        total.prompt,
        total.prompt if sent else None,
        window.counted(reserve),
        reply,
        reply if sent else None,
        load,
        load if sent else None,
        total.messages,
        total.messages if sent else 0,
        stream=scan.stream,
        path=received.path,
    )
    return Figures(outcome, scanned.tenant, scanned.probing, total.unit, shown=_kept(context, scanned))


def _kept(context: RequestContext, scanned: Scanned) -> Shown | None:
    """What the page shows of a request that was not planned."""
    keeping = context.keeping
    if keeping is None or not keeping.texts:  # as always but where a setting wants texts
        return None
    return keeping.of_body(scanned.plain, context.received.api)


def _of_plan(context: RequestContext, scanned: Scanned, plan: Plan, was_sent: bool) -> Figures:
    received, before = context.received, plan.before
    sent: Draft = plan.draft if received.may_change else before
    shown = sent if was_sent else before
    outcome = Outcome(
        endpoint=received.api.name,
        result="",
        status=0,
        mode=received.mode,
        ladder=scanned.ladder.name if scanned.ladder else "",
        model=scanned.model,
        model_sent=shown.model,
        window=shown.window.tokens,
        window_source=shown.window.source,
        quality=before.meter.quality,
        prompt=before.billed,
        prompt_sent=sent.billed if was_sent else None,
        reserve=shown.window.counted(shown.reserve),
        reply_asked=before.reply,
        reply_sent=sent.reply if was_sent else None,
        load_before=before.load,
        load_after=sent.load if was_sent else None,
        messages_in=count(before),
        messages_sent=count(sent) if was_sent else 0,
        notes=plan.notes if was_sent and received.may_change else (),
        uncounted=context.counted is not None and context.counted.skipped,
        stream=scanned.scan.stream,
        path=received.path,
        planned=plan.notes if was_sent and not received.may_change else (),
        planned_result=_planned_result(plan) if was_sent and not received.may_change else "",
        too_long=before.too_long and received.may_change,
    )
    prompt = None if context.planned is None else context.planned.prompt
    appends_to = prompt.continues if prompt is not None and prompt.appends else ""
    prefixes = None if context.planned is None else context.planned.prefixes
    kept = None if context.keeping is None else context.keeping.of_plan(plan)
    return Figures(outcome, scanned.tenant, scanned.probing, unit_of(sent.meter), appends_to, prefixes, kept)


def _planned_result(plan: Plan) -> str:
    """The result that a request would have had in mode `fit`."""
    return "unfit" if not plan.possible else "fitted" if plan.changed else "passed"
