"""Descends the ladder for a request that may not fit; plans again where learned limits may not hold any more."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.errors import does_not_fit, inputs_do_not_fit
from proxy.fit.learn import REFUSED, SUPPOSED
from proxy.model.plan import Facts, Ladder, Plan
from proxy.request.compaction_requests import SEND
from proxy.request.facts import STATED, UPSTREAM, Knowledge
from proxy.request.planning import PlanBuilder
from proxy.request.stages import Descent, Planned, Received, Record, Scanned
from proxy.request.unmoved import NOTHING, why_unmoved
from proxy.wire.report import least_reply, takers, too_long_inputs
from proxy.wire.scan import NotUnderstood


@dataclass(frozen=True, slots=True)
class Descents:
    """Plans requests by their ladders."""

    knowledge: Knowledge
    plans: PlanBuilder

    async def descend(
        self, received: Received, scanned: Scanned, ladder: Ladder, record: Record
    ) -> tuple[Planned, float]:
        """Counts every message, descends the ladder, and renders what changed. Returns the load of what the client
        sent, too. Raises `NotUnderstood`."""
        descent = await self._build(received, scanned, ladder, record)
        load = descent.plan.before.load
        if received.may_change and (descent.plan.changed or not descent.plan.possible):
            again = await self._without_doubtful_limits(received, scanned, descent)
            if again is not None:
                scanned, descent = again, await self._build(received, again, ladder, record)
        return await self._rendered(received, scanned, ladder, descent, record), load

    async def _rendered(
        self, received: Received, scanned: Scanned, ladder: Ladder, descent: Descent, record: Record
    ) -> Planned:
        """What is sent by a plan, or the error that the client gets."""
        plan = descent.plan
        if received.may_change and not plan.possible and not (plan.changed and ladder.on_unfit == SEND):
            return self._unfit(received, scanned, ladder, descent)
        if not received.may_change or not plan.changed:
            return await self.plans.unchanged(received, scanned, descent)
        unmoved = NOTHING
        if ladder.models:
            unmoved = why_unmoved(
                plan, descent.facts.candidates, ladder, self.knowledge, received.api.name, received.headers
            )
        began = time.perf_counter()
        rendered = await self.plans.rendered(received, scanned, descent)
        record.phase("render", began)
        return replace(rendered, result="fitted", unmoved=unmoved)

    async def _build(self, received: Received, scanned: Scanned, ladder: Ladder, record: Record) -> Descent:
        """The plan; its time is a phase, without waits for others."""
        began, own = time.perf_counter(), record.own_seconds
        descent = await self.plans.build(received, scanned, ladder, record)
        record.phase("plan", began, own - record.own_seconds)
        check_too_long(scanned, descent.plan)
        return descent

    async def _without_doubtful_limits(self, received: Received, scanned: Scanned, descent: Descent) -> Scanned | None:
        """A request that would be cut, or cannot be cut far enough, is planned again where its limits may not hold:
        without learned limits, if it is time to test them or if nothing fits them; or with a newer list of models.
        Returns the request as it is to be planned again, or None."""
        knowledge, plan, learned = self.knowledge, descent.plan, scanned.learned
        before = plan.before
        limited = self._limited_candidates(received, descent.facts, scanned.tenant)
        is_learned = before.window.source in (REFUSED, SUPPOSED)
        if is_learned or learned.scale != 1.0 or learned.max_input is not None:  # which holds beside a window's cap
            limited[before.model] = knowledge
        if not limited:
            newer = before.window.source == UPSTREAM and await knowledge.listed_anew(before.model, received.headers)
            return scanned if newer else None
        if plan.possible:
            own, digests = before.model, scanned.digests
            due = [
                model
                for model, one in limited.items()
                if one.claim_probe(model, scanned.tenant, digests if model == own else ())
            ]
            if not due:
                return None
        unlearned = replace(learned.without_figures(), scale=1.0)
        return replace(scanned, learned=unlearned, probing=True)

    def _limited_candidates(self, received: Received, facts: Facts, tenant: bytes) -> dict[str, Knowledge]:
        """The models that a request may be moved to and that have learned limits, with the knowledge of them."""
        found: dict[str, Knowledge] = {}
        for candidate in facts.candidates:
            one = self.knowledge.of(candidate.model, received.api.name)
            if (known := one.learned(candidate.model, tenant)).bounds or known.scale != 1.0:
                found[candidate.model] = one
        return found

    def _unfit(self, received: Received, scanned: Scanned, ladder: Ladder, descent: Descent) -> Planned:
        """The original bytes if the ladder forwards what does not fit, or if only a guess or the upstream's list says
        that it does not: the upstream decides. Else the 400 with the figures."""
        plan, draft = descent.plan, descent.plan.draft
        stated = draft.window.source in STATED or draft.window.tokens == self.knowledge.limit
        if ladder.on_unfit in ("forward", SEND) or not stated:
            sent = replace(descent, plan=Plan(plan.before, plan.before, trusting=not stated))
            payload, result = scanned.unchanged(received), "unfit" if stated else ""
            return Planned(received, payload, scanned, descent=sent, result=result)
        return refused(received, scanned, descent)


def refused(received: Received, scanned: Scanned, descent: Descent) -> Planned:
    """The 400 with the figures of a plan that does not fit."""
    plan, draft = descent.plan, descent.plan.draft
    if descent.prompt.form.embeds:
        error = inputs_do_not_fit(too_long_inputs(draft), draft.window.max_input or draft.window.tokens)
    else:
        reply, asked = least_reply(draft), plan.before.prompt
        error = does_not_fit(draft.prompt, reply, draft.margin, draft.window.tokens, takers(draft), asked)
    return Planned(received, b"", scanned, descent=descent, result="unfit", error=error)


def check_too_long(scanned: Scanned, plan: Plan) -> None:
    """Raises `NotUnderstood` for a request that was not read whole, and of which nothing shows that it does not fit:
    what was read of it may fit alone."""
    if scanned.left_out and (plan.trusting or plan.before.excess <= 0):
        raise NotUnderstood("there are more messages or values in it than we plan with")
