"""Scanned -> Planned: parses the body, gathers facts, descends the ladder, fulfils its wants and renders the result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.fit.effective import without_effective
from proxy.fit.lore import LOREBOOKS
from proxy.fit.plan import due, plan
from proxy.fit.provider_count import KIND as COUNT
from proxy.fit.provider_count import with_count
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.lenient_json import Json
from proxy.model.plan import Facts, Ladder, Plan, Want
from proxy.request.compaction_requests import as_asked
from proxy.request.facts import Knowledge
from proxy.request.left_to_agents import is_compaction
from proxy.request.sent_prefixes import LEAST_TOKENS, Prefixes, prefixes_of_draft
from proxy.request.stages import Descent, Planned, Received, Record, Scanned
from proxy.request.totals import SharedCounts, marks_of, pending
from proxy.request.wants import Provider
from proxy.request.wants.counts import ProviderCounts
from proxy.request.work import HEAVY_BYTES, INLINE_BYTES, Pool
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.scan import NotUnderstood


@dataclass(slots=True)
class PlanBuilder:
    """Makes plans, short ones inline and long ones in a thread of `pool`. `providers` by kind of want."""

    knowledge: Knowledge
    counts: SharedCounts
    providers: Mapping[str, Provider]
    pool: Pool
    _without_steps: dict[str, Ladder] = field(default_factory=dict)

    async def build(self, received: Received, scanned: Scanned, ladder: Ladder, record: Record) -> Descent:
        """The plan for a body. Raises `NotUnderstood`."""
        controls = scanned.controls
        heavy = len(scanned.plain) > HEAVY_BYTES
        prompt = await self.pool.run(heavy, received.api.request.parse, scanned.plain, controls.pins)
        prompt = as_asked(prompt, scanned)
        if prompt.stored.continues:
            stored = await self.counts.cache.stored.get(
                scanned.tenant or tenant_of(received.headers), prompt.stored.continues
            )
            prompt = replace(prompt, stored=replace(prompt.stored, tokens=stored))
        tenant = b"" if scanned.probing else scanned.tenant  # also ignores what was learned of the candidates
        facts = await self.knowledge.facts(prompt, ladder, controls.window, received.headers, tenant, scanned.learned)
        if controls.rule is not None and (pin := controls.rule.pin) is not None:
            pins = await self.pool.run(heavy, pin.pinned, prompt, facts.window.tokens)
            prompt = replace(prompt, pins=prompt.pins | pins)
        facts = _on_terms(received, facts, lossy=prompt.form.embeds or is_compaction(received, scanned, prompt))
        if scanned.lore:
            facts = replace(facts, knowledge={LOREBOOKS: scanned.lore})
        counter = self.providers.get(COUNT)
        if ladder.steps and isinstance(counter, ProviderCounts) and counter.counts(prompt):
            facts = replace(facts, counter=True)
        return await self.rebuild(received, scanned, prompt, facts, ladder, record)

    async def count(self, received: Received, scanned: Scanned, ladder: Ladder, record: Record) -> Descent:
        """The plan of a ladder without steps: it counts the prompt and changes nothing. Raises `NotUnderstood`."""
        return await self.build(received, scanned, self._stepless(ladder), record)

    async def rebuild(
        self, received: Received, scanned: Scanned, prompt: Prompt, facts: Facts, ladder: Ladder, record: Record
    ) -> Descent:
        """The plan for a parsed prompt with these facts. Each want is fulfilled at most once: an empty value says that
        it cannot be had."""
        missing: tuple[str, ...] = ()
        known, made = facts, await self._plan(scanned, prompt, facts, ladder)
        for _ in range(2 * len(ladder.steps) + 1):  # each step may want something in each of two plans, first the count
            want = made.want
            if want is None:
                break
            value = await self._fulfil(received, want, record)
            if received.dry_run and (lacking := _lacking(want, value)) and lacking not in missing:
                missing += (lacking,)
            if want.kind == COUNT:
                known = facts = with_count(facts, want.payload, value)
            else:
                known = replace(known, knowledge={**known.knowledge, want.key: value})
            made = await self._plan(scanned, prompt, known, ladder)
        return Descent(prompt, facts, made, missing)

    async def _fulfil(self, received: Received, want: Want, record: Record) -> Json:
        """What a step wants; an empty value if it cannot be had. A request that sends no plan causes no call. The wait
        counts as upstream time."""
        if record.cost is None:
            record.cost = CallCost()
        ask = received.may_change and not received.dry_run and not self.knowledge.offline
        began = time.perf_counter()
        value = await self.providers[want.kind].fulfil(want, received.headers, ask, record.cost)
        waited = time.perf_counter() - began
        record.own_seconds -= waited
        record.upstream_seconds += waited
        return value

    async def _plan(self, scanned: Scanned, prompt: Prompt, facts: Facts, ladder: Ladder) -> Plan:
        """The plan with these facts alone. Long counts that are new are read from Redis, or made and written there."""
        size = len(scanned.plain) + sum(len(entry.content) for entry in scanned.lore)
        if size <= INLINE_BYTES:
            return plan(prompt, ladder, facts)
        new = await self.pool.run(size > HEAVY_BYTES, pending, prompt.messages, facts.meter)
        shared = await self.counts.fetch(new, scanned.tenant)
        made = None
        if size <= HEAVY_BYTES and sum(len(material) for _, material in new) <= INLINE_BYTES:
            made = _if_unchanged(plan(prompt, self._stepless(ladder), facts), ladder, facts.window.effective)
        if made is None:
            made = await self.pool.run(True, plan, prompt, ladder, facts)
        self.counts.store(shared)
        return made

    def _stepless(self, ladder: Ladder) -> Ladder:
        found = self._without_steps.get(ladder.name)
        if found is None:
            found = self._without_steps[ladder.name] = ladder.with_steps(())
        return found

    async def render(self, api: Api, scanned: Scanned, descent: Descent) -> bytes:
        """The payload of a plan that changes the request."""
        return await self.pool.run(len(scanned.plain) > HEAVY_BYTES, api.request.render, descent.prompt, descent.plan)

    async def rendered(self, received: Received, scanned: Scanned, descent: Descent) -> Planned:
        """The stage with the payload of a plan that changes the request."""
        if descent.plan.pieces:
            heavy = len(scanned.plain) > HEAVY_BYTES
            pieces = await self.pool.run(heavy, _pieces, received.api, descent.prompt, descent.plan)
            return Planned(received, pieces[0], scanned, descent=descent, pieces=pieces)
        payload = await self.render(received.api, scanned, descent)
        return await self._with_prefixes(
            Planned(received, payload, scanned, descent=descent), scanned, descent, payload
        )

    async def unchanged(self, received: Received, scanned: Scanned, descent: Descent) -> Planned:
        """The stage of a request that is sent as it came, though its ladder was descended."""
        planned = Planned(received, scanned.unchanged(received), scanned, descent=descent)
        return await self._with_prefixes(planned, scanned, descent, None)

    async def _with_prefixes(
        self, planned: Planned, scanned: Scanned, descent: Descent, changed: bytes | None
    ) -> Planned:
        """The stage with the prefixes of what the client sent and of a payload that is `changed`."""
        if descent.plan.draft.prompt < LEAST_TOKENS:
            return planned
        heavy = len(scanned.plain) > HEAVY_BYTES
        found = await self.pool.run(heavy, self._prefixes, planned.received.api, scanned, descent.plan, changed)
        return replace(planned, prefixes=found)

    def _prefixes(
        self, api: Api, scanned: Scanned, plan: Plan, payload: bytes | None
    ) -> tuple[Prefixes, Prefixes | None] | None:
        """The prefixes of what the client sent and of the payload; None if they do not follow from the bytes."""
        asked = marks_of(self.knowledge, scanned.scan, scanned.learned)
        if asked is None:
            return None
        ours = Prefixes(asked.latest, (plan.before.prompt,))
        if payload is None:
            return ours, None
        try:
            sent = marks_of(self.knowledge, api.request.scan(payload), scanned.learned)
        except NotUnderstood:
            return None
        return None if sent is None else (ours, prefixes_of_draft(sent, plan.draft))

    async def without_stream(self, planned: Planned, scanned: Scanned) -> Planned:
        """The same request for an answer of one piece. Raises `NotUnderstood`."""
        received = planned.received
        plain = scanned.plain if planned.payload is received.body else planned.payload
        payload = await self.pool.run(len(plain) > HEAVY_BYTES, received.api.request.without_stream, plain)
        return replace(planned, payload=payload)


def _on_terms(received: Received, facts: Facts, *, lossy: bool) -> Facts:
    """The facts with the effective window that the request has; none where a cut that nothing requires is no gain
    (`lossy`): for the summary of a conversation, for a vector."""
    terms = received.terms
    if terms.effective is None and facts.window.effective is None:
        return facts
    if lossy:
        return without_effective(facts)
    candidates = tuple(replace(one, window=terms.on(one.window)) for one in facts.candidates)
    return replace(facts, window=terms.on(facts.window), candidates=candidates)


def _lacking(want: Want, value: Json) -> str:
    """What a dry run says about a want that it made no call for: what is not known, or of many parts how many are."""
    if want.parts > 1:
        known = f"{len(value or ())} of {want.parts} {want.kind} are known"
        return known if len(value or ()) == want.parts else f"{known}; the others would be asked for"
    return "" if value else f"{want.kind} that is not known yet would be asked for"


def _pieces(api: Api, prompt: Prompt, plan: Plan) -> tuple[bytes, ...]:
    """The payloads of a plan in pieces."""
    drafts = (plan.draft.with_blocks(blocks) for blocks in plan.pieces)
    return tuple(api.request.render(prompt, plan.with_draft(draft)) for draft in drafts)


def _if_unchanged(counted: Plan, ladder: Ladder, effective: int | None) -> Plan | None:
    """The plan if no step of the ladder is due; else None."""
    first = counted.before
    if effective is not None and first.prompt > effective:
        return None
    if counted.trusting or not any(due(ladder_step, first, first) for ladder_step in ladder.steps):
        return counted
    return None
