"""After a refusal: learn what it says of the model's limits, and plan again from what the client sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.fit.effective import without_effective
from proxy.fit.learn import apply_learned, learn
from proxy.fit.provider_count import without_count
from proxy.fit.unknown_costs import after_refusal
from proxy.model.conversation import Costs
from proxy.model.limits import NOTHING_LEARNED, Suspicion
from proxy.model.outcome import Refusal
from proxy.model.plan import Draft, Facts, Ladder
from proxy.request.bugs import report_bug
from proxy.request.compaction_requests import CompactionRequests
from proxy.request.facts import Knowledge
from proxy.request.left_to_agents import Agents
from proxy.request.planning import PlanBuilder
from proxy.request.stages import Descent, Planned, Record, Scanned
from proxy.request.work import HEAVY_BYTES, Pool
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.echoes import echoes


@dataclass(frozen=True, slots=True)
class Healer:
    """Plans refused requests again, but for those that are left to `agents`."""

    knowledge: Knowledge
    plans: PlanBuilder
    pool: Pool
    requests: CompactionRequests
    agents: Agents = field(default_factory=Agents)

    async def measured(self, planned: Planned, record: Record) -> Planned:
        """A refused request with a plan, from which it can be healed: one that was sent uncut is counted first. The
        same stage if it was not understood, or if our own code fails. Never raises."""
        understood = planned.fitted
        if understood is None:
            return planned
        (scanned, _), received, knowledge = understood, planned.received, self.knowledge
        scanned = replace(scanned, tenant=tenant_of(received.headers))
        if planned.descent is not None:
            return replace(planned, scanned=scanned)
        try:  # in the meantime another request may have learned what this refusal would teach
            known = knowledge.learned(scanned.model, scanned.tenant, scanned.digests)
            known = knowledge.learned_for(known, scanned.model, len(scanned.plain), scanned.controls.window)
            scanned = replace(scanned, learned=known.where_requested(scanned.scan.window))
            scanned = await self.requests.found(received, scanned)
            descent = await self.plans.count(received, scanned, scanned.ladder or understood[1], record)
        except Exception as error:
            report_bug(record, error)
            return replace(planned, scanned=scanned)
        return replace(planned, scanned=scanned, descent=descent, uncut=True)

    async def heal(self, planned: Planned, refusal: Refusal, record: Record) -> Planned | None:
        """The stage with a smaller payload, for a refused request that was `measured`. None if the refusal taught
        nothing, or if nothing smaller is left to send. Never raises."""
        understood, sent = planned.fitted, planned.descent
        if understood is None or sent is None:
            return None
        try:
            if self.agents.leaves(planned.received, understood[0], sent.prompt):
                return None
            return await self._heal(planned, *understood, sent, refusal, record)
        except Exception as error:
            report_bug(record, error)
            return None

    async def _heal(
        self, planned: Planned, scanned: Scanned, ladder: Ladder, sent: Descent, refusal: Refusal, record: Record
    ) -> Planned | None:
        received, prompt, draft = planned.received, sent.prompt, sent.plan.draft
        said = b"\n".join([value for _, value in received.headers])  # what an error may quote besides the body
        heavy = len(scanned.plain) > HEAVY_BYTES
        echoed = await self.pool.run(heavy, echoes, refusal.quotes, scanned.plain, said)
        moved = draft.model != prompt.model
        waits = prompt.managed or sent.plan.trusting  # steps that acted only once it is refused
        if prompt.opaque:
            less, draft = after_refusal(sent.facts, draft, refusal)
            sent = replace(sent, facts=replace(sent.facts, assuming=True) if moved else less)
        knowledge = self.knowledge.of(draft.model, received.api.name) if moved else self.knowledge
        if scanned.probing and len(record.refusals) <= 1:
            knowledge.cache.probe_refused(draft.model, scanned.tenant)
        proves = not echoed and not prompt.stored.continues
        facts, scanned, found = self._learn(knowledge, scanned, sent, draft, ladder, refusal, proves=proves)
        if facts is None and (planned.uncut or waits):  # no step has acted yet: the facts that are known call for one
            facts = sent.facts
        if facts is None:
            return None
        prompt = replace(prompt, managed=False)
        again = await self.plans.rebuild(received, scanned, prompt, without_count(facts), ladder, record)
        if not again.plan.changed or not again.plan.possible:
            return None
        rendered = await self.plans.rendered(received, scanned, again)
        suspicion = found if again.plan.draft.model == draft.model else None
        return replace(rendered, counted=planned.counted, result="fitted", unmoved=planned.unmoved, suspicion=suspicion)

    def _learn(
        self,
        knowledge: Knowledge,
        scanned: Scanned,
        descent: Descent,
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
        effective, moved = descent.facts.window.effective, sent.model != descent.prompt.model
        facts = without_effective(descent.facts)  # a refusal says nothing of what somebody wishes
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
            wiser = learn(facts, sent, refusal, gently=descent.prompt.form.compaction)
        if wiser is None:
            return None, scanned, None
        found = None
        if proves:
            opaque = descent.prompt.costs is Costs.UNPROVABLE
            knowledge.prove(sent, refusal, wiser.learned, scanned.tenant, opaque=opaque)
            found = knowledge.suspicion(sent, refusal, wiser.learned, opaque=opaque)
            if found is not None:
                knowledge.cache.record_unproven(sent.model, scanned.tenant, found.size)
        window = knowledge.under_caps(wiser.window, ladder, scanned.controls.window)
        if not moved:
            candidates = descent.facts.candidates
            return replace(wiser, window=replace(window, effective=effective), candidates=candidates), scanned, found
        candidates = tuple(
            replace(candidate, window=replace(window, effective=candidate.window.effective))
            if candidate.model == sent.model
            else candidate
            for candidate in descent.facts.candidates
        )
        return replace(descent.facts, candidates=candidates), scanned, found
