"""What remains of a request when its content is released: the figures of its outcome, and what its answer teaches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.fit.claims.reasons import counted as kept_by
from proxy.model.conversation import Message
from proxy.model.limits import CountUnit, Shape, Suspicion
from proxy.model.outcome import SHAPES, Outcome
from proxy.model.plan import Draft, Plan
from proxy.model.ports import Medium
from proxy.model.scan import Total
from proxy.observe.recent import Shown
from proxy.request.sent_prefixes import Prefixes
from proxy.request.shown import Keeping
from proxy.request.stages import Descent, Planned, Received, Scanned
from proxy.tokens.meter import unit_of
from proxy.wire.report import count


class Figures(msgspec.Struct, frozen=True, gc=False):
    """What remains of a request when its content is released.

    `outcome` has what follows from its stages, without what its answer and its record add. `tenant` and `probing` are
    those of `Scanned`, `prefixes` those of `Planned`. `unit` is how the prompt was counted; None if its count teaches
    nothing. `appends_to`: the id of the stored conversation that the reply becomes a part of. `size`: the tokens of the
    prompt that was sent, and of the reply that must fit with it where it counts; 0 if it was not counted. `digests`: of
    the prefixes of what the client sent. `media`: the parts that were sent whose cost the body does not show. `total`:
    what it costs, if it was counted without a plan. `suspicion`: that of `Planned`.
    """

    outcome: Outcome
    tenant: bytes = b""
    probing: bool = False
    unit: CountUnit | None = None
    appends_to: str = ""
    prefixes: tuple[Prefixes, Prefixes | None] | None = None
    shown: Shown | None = None
    size: int = 0
    digests: Sequence[int] = ()
    media: Sequence[Medium] = ()
    total: Total | None = None
    suspicion: Suspicion | None = None


def figures_of(received: Received, planned: Planned | None, sent: bool, keeping: Keeping | None) -> Figures:
    """The figures of a request, by the last stage that it reached. Of a request that never went upstream (`sent`)
    nothing was sent, cut or granted. `keeping`: what the page is to show of it."""
    if planned is None:
        return Figures(Outcome(received.api.name, "", 0, received.mode, path=received.path))
    found = _figures(received, planned, sent, keeping)
    if not (planned.unplanned or planned.suspicion or planned.unmoved[0] or planned.unmoved[1]):  # as mostly
        return found
    unmoved, reasons = planned.unmoved
    outcome = replace(found.outcome, unmoved=unmoved, unmoved_by=reasons, unplanned=planned.unplanned)
    return replace(found, outcome=outcome, suspicion=planned.suspicion)


def _figures(received: Received, planned: Planned, sent: bool, keeping: Keeping | None) -> Figures:
    scanned, counted = planned.scanned, planned.counted
    if scanned is None:
        return Figures(Outcome(received.api.name, planned.result, 0, received.mode, path=received.path))
    scan, ladder = scanned.scan, scanned.ladder
    if planned.descent is not None:
        return _of_plan(scanned, planned, planned.descent, sent, keeping)
    if ladder is None or counted is None or counted.total is None:
        outcome = Outcome(
            received.api.name,
            planned.result,
            0,
            received.mode,
            "" if ladder is None else ladder.name,
            scan.model,
            scan.model,
            uncounted=counted is not None and counted.skipped,
            stream=scan.stream,
            tier=scan.tier,
            path=received.path,
        )
        return Figures(outcome, scanned.tenant, scanned.probing, shown=_kept(keeping, received, scanned))
    total, window, reply = counted.total, counted.window, scan.reserve
    reserve = ladder.default_reserve if reply is None else reply
    most = total.longest or total.prompt
    floor = window.floor(ladder.floor)
    load = window.load_without_limit(most, reserve, floor) if reply is None else window.load(most, reserve)
    outcome = Outcome(
        received.api.name,
        planned.result,
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
        tier=scan.tier,
        path=received.path,
        shape=shape_of(total.unit),
    )
    size = most + window.counted(floor if reply is None else reply)
    shown = _kept(keeping, received, scanned)
    return Figures(
        outcome,
        scanned.tenant,
        scanned.probing,
        total.unit,
        shown=shown,
        size=size,
        digests=total.digests,
        media=total.media,
        total=total,
    )


def shape_of(unit: CountUnit | None, messages: Sequence[Message] = ()) -> str:
    """The shape of a prompt, one of `SHAPES`; empty if its count teaches nothing. `messages`: if they were parsed."""
    if unit is None:
        return ""
    calls = max([len(message.calls) for message in messages]) if messages else 0
    if calls:
        return SHAPES[4] if calls > 1 else SHAPES[3]
    return SHAPES[2] if unit.schema else SHAPES[unit.shape is Shape.TOOLS]


def _kept(keeping: Keeping | None, received: Received, scanned: Scanned) -> Shown | None:
    """What the page shows of a request that was not planned."""
    if keeping is None or not keeping.texts:  # as always but where a setting wants texts
        return None
    return keeping.of_body(scanned.plain, received.api, received.headers)


def _of_plan(scanned: Scanned, planned: Planned, descent: Descent, was_sent: bool, keeping: Keeping | None) -> Figures:
    received, counted, plan, prompt = planned.received, planned.counted, descent.plan, descent.prompt
    before = plan.before
    sent: Draft = plan.draft if received.may_change else before
    shown = sent if was_sent else before
    unit = unit_of(sent.meter)
    outcome = Outcome(
        endpoint=received.api.name,
        result=planned.result,
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
        messages_in=count(before) + scanned.left_out,
        messages_sent=count(sent) if was_sent else 0,
        notes=plan.notes if was_sent and received.may_change else (),
        uncounted=counted is not None and counted.skipped,
        stream=scanned.scan.stream,
        tier=scanned.scan.tier,
        path=received.path,
        planned=plan.notes if was_sent and not received.may_change else (),
        planned_result=_planned_result(plan) if was_sent and not received.may_change else "",
        too_long=before.too_long and received.may_change,
        kept=kept_by(sent.messages, sent.drops) if was_sent and received.may_change and plan.changed else (),
        shape=shape_of(unit, tuple(sent.messages)),
    )
    appends_to = prompt.stored.continues if prompt.stored.appends else ""
    kept = None if keeping is None else keeping.of_plan(plan, received.headers)
    size = sent.prompt + sent.window.counted(sent.least_reply)
    digests = () if planned.prefixes is None else planned.prefixes[0].digests
    of_sent = unit, appends_to, planned.prefixes
    media = sent.meter.media(tuple(sent.messages)) if prompt.opaque else ()
    return Figures(outcome, scanned.tenant, scanned.probing, *of_sent, kept, size, digests, media)


def _planned_result(plan: Plan) -> str:
    """The result that a request would have had in mode `fit`."""
    return "unfit" if not plan.possible else "fitted" if plan.changed else "passed"
