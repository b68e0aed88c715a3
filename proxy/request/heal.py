"""After a refusal: learn what it says of the model's limits, and plan again from what the client sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.fit.learn import apply_learned, learn
from proxy.fit.provider_count import without_count
from proxy.fit.unknown_costs import after_refusal
from proxy.model.conversation import Costs
from proxy.model.limits import NOTHING_LEARNED, Suspicion
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts, Ladder
from proxy.model.structs import replace
from proxy.request.bugs import report_bug
from proxy.request.context import RequestContext
from proxy.request.facts import Knowledge
from proxy.request.planning import PlanBuilder
from proxy.request.stages import Planned, Scanned
from proxy.request.work import HEAVY_BYTES, Pool
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.echoes import echoes
from proxy.wire.headers import Header


@dataclass(frozen=True, slots=True)
class Healer:
    """Plans refused requests again."""

    knowledge: Knowledge
    plans: PlanBuilder
    pool: Pool

    async def heal(self, context: RequestContext, refusal: Refusal) -> bool:
        """Replaces the planned stage by one with a smaller payload. False if the refusal taught nothing, or if nothing
        smaller is left to send. Never raises."""
        scanned, planned = context.scanned, context.planned
        if scanned is None or planned is None or scanned.ladder is None:
            return False
        try:
            return await self._heal(context, scanned, planned, scanned.ladder, refusal)
        except Exception as error:
            report_bug(context.record, error)
            return False

    async def _heal(
        self, context: RequestContext, scanned: Scanned, sent: Planned, ladder: Ladder, refusal: Refusal
    ) -> bool:
        received, record = context.received, context.record
        uncut = sent.plan is None
        scanned = replace(scanned, tenant=tenant_of(received.headers))
        if uncut:  # in the meantime another request may have learned what this refusal would teach
            known = self.knowledge.learned(scanned.model, scanned.tenant, scanned.digests)
            known = self.knowledge.learned_for(known, scanned.model, len(scanned.plain), scanned.controls.window)
            scanned = replace(scanned, learned=known.where_requested(scanned.scan.window))
        context.scanned = scanned
        if uncut:
            sent = replace(await self.plans.count(received, scanned, ladder, record), payload=sent.payload)
            context.planned = sent
        assert sent.plan is not None and sent.prompt is not None
        said = _header_values(received.headers)
        heavy = len(scanned.plain) > HEAVY_BYTES
        echoed = await self.pool.run(heavy, echoes, refusal.quotes, scanned.plain, said)
        prompt, draft = sent.prompt, sent.plan.draft
        moved = draft.model != prompt.model
        waits = prompt.managed or sent.plan.trusting
        if prompt.opaque and sent.facts is not None:
            less, draft = after_refusal(sent.facts, draft, refusal)
            sent = replace(sent, facts=replace(sent.facts, assuming=True) if moved else less)
        knowledge = self.knowledge.of(draft.model, received.api.name) if moved else self.knowledge
        if scanned.probing and len(record.refusals) <= 1:
            knowledge.cache.probe_refused(draft.model, scanned.tenant)
        proves = not echoed and not prompt.stored.continues
        facts, scanned, found = self._learn(knowledge, scanned, sent, draft, ladder, refusal, proves=proves)
        context.scanned, record.suspicion = scanned, None
        if facts is None and (uncut or waits):
            facts = sent.facts
        if facts is None:
            return False
        prompt = replace(prompt, managed=False)
        again = await self.plans.rebuild(received, scanned, prompt, without_count(facts), ladder, record)
        assert again.plan is not None
        if not again.plan.changed or not again.plan.possible:
            return False
        if again.plan.draft.model == draft.model:
            record.suspicion = found
        context.planned, record.result = replace(again, payload=sent.payload), "fitted"
        context.planned = await self.plans.rendered(received.api, scanned, again)
        return True

    def _learn(
        self,
        knowledge: Knowledge,
        scanned: Scanned,
        planned: Planned,
        sent: Draft,
        ladder: Ladder,
        refusal: Refusal,
        *,
        proves: bool,
    ) -> tuple[Facts | None, Scanned, Suspicion | None]:
        """The facts after a refusal of the draft that was sent, None if it taught nothing; the request as it is to be
        planned with them; and what an answer to that would prove. Where `proves`, the tenant's next requests use the
        lesson too. A draft that was moved to another model teaches about that model, in the `knowledge` of its
        upstream."""
        assert planned.prompt is not None and planned.facts is not None
        facts, moved = planned.facts, sent.model != planned.prompt.model
        kept = knowledge.learned(sent.model, scanned.tenant, () if moved else scanned.digests)
        if moved:
            facts = Facts(sent.window, sent.meter, learned=NOTHING_LEARNED if scanned.probing else kept)
        sizes = (
            knowledge.cache.answered(sent.model, scanned.tenant),
            knowledge.cache.unproven(sent.model, scanned.tenant),
        )
        facts = replace(facts, answered=sizes[0], refused=sizes[1])
        wiser: Facts | None
        if scanned.probing and kept.limits and refusal.limit is None and refusal.prompt is None:
            scanned = replace(scanned, probing=False)  # the limits that were tested still hold, and say more
            wiser = apply_learned(facts, kept)
        else:
            wiser = learn(facts, sent, refusal)
        if wiser is None:
            return None, scanned, None
        found = None
        if proves:
            opaque = planned.prompt.costs is Costs.UNPROVABLE
            knowledge.prove(sent, refusal, wiser.learned, scanned.tenant, opaque=opaque)
            found = knowledge.suspicion(sent, refusal, wiser.learned, opaque=opaque)
            if found is not None:
                knowledge.cache.record_unproven(sent.model, scanned.tenant, found.size)
        window = knowledge.under_caps(wiser.window, ladder, scanned.controls.window)
        if not moved:
            return replace(wiser, window=window), scanned, found
        candidates = tuple(
            replace(candidate, window=window) if candidate.model == sent.model else candidate
            for candidate in planned.facts.candidates
        )
        return replace(planned.facts, candidates=candidates), scanned, found


def _header_values(headers: Iterable[Header]) -> bytes:
    """What a client says outside its body and an error may quote."""
    return b"\n".join([value for _, value in headers])
