"""Received -> Planned: decides what is sent for a request, or which error the client gets instead.

Three ways lead to a payload. Where the body's bytes alone prove that the request fits, or where its count shows that it
fits and no step of the ladder is due, the client's own bytes are sent. Else the ladder is descended. A server that
would drop what is too long and say nothing is told to refuse it, where no step changed the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from proxy.config.polyfills import is_polyfilled
from proxy.config.rules import Rules
from proxy.errors import ClientError, bad_header, not_understood
from proxy.fit.compactions import PROVIDERS
from proxy.fit.lore import Entry
from proxy.model.bounded import Bounded
from proxy.model.limits import NOTHING_LEARNED, Window
from proxy.model.plan import Ladder, Mode
from proxy.model.terms import OnFull
from proxy.request.bugs import report_bug
from proxy.request.compaction_requests import CompactionRequests
from proxy.request.context_edits import ContextEditor
from proxy.request.descents import Descents, check_too_long, refused
from proxy.request.facts import MOST_MODELS, Knowledge
from proxy.request.fits import SERVED, SMALLEST_LOADED, is_below, is_tiny, load_of, proves
from proxy.request.later import Later
from proxy.request.left_to_agents import Agents
from proxy.request.planning import PlanBuilder
from proxy.request.refusal_detection import NEAR_LOAD
from proxy.request.scanning import BodyScanner
from proxy.request.stages import Counted, Planned, Received, Record, Scanned
from proxy.request.totals import TotalCounter, digests_of
from proxy.request.work import HEAVY_BYTES, Background
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.scan import NotUnderstood

RECALL = "recall"  # the step that quotes lorebooks


class ByModel(NamedTuple):
    """The rules for requests of a model without control headers. `special`: its requests may ask for a window by a
    header, or have images inside their texts."""

    ladder: Ladder
    lore: tuple[Entry, ...]
    special: bool


@dataclass(slots=True)
class Planner:
    """Prepares requests. `default` names the ladder where neither the client nor the rules name one. `agents`: what is
    left to agents."""

    rules: Rules
    knowledge: Knowledge
    scanner: BodyScanner
    totals: TotalCounter
    plans: PlanBuilder
    background: Background
    default: str
    agents: Agents = field(default_factory=Agents)
    requests: CompactionRequests = field(init=False)
    later: Later = field(init=False)
    descents: Descents = field(init=False)
    editor: ContextEditor = field(init=False)
    _by_model: Bounded[str | tuple[int, str], ByModel] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def __post_init__(self) -> None:
        self.requests = CompactionRequests(self.rules, self.plans.pool)
        self.later = Later(self.background, self.totals, self.plans)
        self.descents = Descents(self.knowledge, self.plans)
        lacking = is_polyfilled(self.rules.polyfills, self.knowledge.keys.host)
        self.editor = ContextEditor(self.knowledge, self.plans.pool, lacking)

    def at_once(self, received: Received, scanned: Scanned | None = None) -> Planned | Scanned | None:
        """What is sent for a short request that asks for nothing special and whose bytes prove that it fits, as most:
        what `prepare` would return, without waiting for anything. Else its scan if there is one, or None: `prepare` has
        to look at it. It may be `scanned` already. Raises nothing."""
        controls = received.controls
        if controls.asks or received.mode is Mode.OFF:
            return scanned
        try:
            scanned = scanned or self.scanner.scan_now(received)
            if scanned is None or scanned.scan.seen.keyed or scanned.scan.compacts or scanned.scan.most is None:
                return scanned
            plain, scan, api = scanned.plain, scanned.scan, received.api
            known = self._rules_for(scan.model, controls)
            ladder, knowledge = known.ladder, self.knowledge
            if known.special or api.without_truncation is not None or received.path in api.compact_paths:
                return scanned
            if self.editor.lacking and self.editor.edits_of(received, plain) is not None:
                return scanned
            tenant = knowledge.tenant(received.headers, scan.model, ladder.models)
            learned = knowledge.remembered(scan.model, tenant, len(plain)) if tenant else NOTHING_LEARNED
            if learned is None:
                return scanned
            window = received.terms.on(knowledge.window_now(scan.model, ladder, controls.window, learned))
            if not proves(scan, ladder, window):
                return scanned
            ready = Scanned(plain, scan, controls, ladder, known.lore, tenant, learned)
            return Planned(received, received.body, ready, Counted(window, self.totals.known(api, ready), True))
        except Exception:  # `prepare` meets it again, and tells it
            return None

    async def prepare(self, received: Received, record: Record, scanned: Scanned | None = None) -> Planned:
        """What is to be sent for a request, which may be `scanned` already; or the error that the client gets. Raises
        nothing.

        A request that is not understood, or that our own code fails on, is sent as it came, unless the mode is strict.
        The proxy's own key in messages is removed wherever the messages can be parsed.
        """
        if received.mode is Mode.OFF:
            return Planned(received, received.body)
        try:
            if scanned is None:
                scanned = self.scanner.scan_now(received)
            if scanned is None or scanned.scan.seen.keyed:
                scanned = await self.scanner.whole(received, scanned)
            if scanned.controls.asks:
                scanned = replace(scanned, ladder=self.ladder_for(scanned.model, scanned.controls))
            scanned = await self._with_rules(received, scanned)
            scanned = await self.editor.edited(received, scanned, record)
            return await self._plan(received, scanned, record)
        except NotUnderstood as error:
            unsent = Planned(received, scanned=scanned, result="not_understood", unplanned=str(error))
        except ClientError as error:
            return Planned(received, scanned=scanned, error=error)
        except Exception as error:
            report_bug(record, error)
            unsent = Planned(received, scanned=scanned)
        if received.mode is Mode.STRICT:
            return replace(unsent, error=not_understood(unsent.unplanned or "the proxy itself failed"))
        return unsent.as_sent(await self._unplanned(received, scanned, record))

    async def _unplanned(self, received: Received, scanned: Scanned | None, record: Record) -> bytes:
        """The payload of a request that could not be planned."""
        if scanned is not None:
            return scanned.unchanged(received)
        try:
            return await self.scanner.unscanned_without_key(received)
        except NotUnderstood:
            return received.body
        except Exception as error:
            report_bug(record, error)
            return received.body

    async def _with_rules(self, received: Received, scanned: Scanned) -> Scanned:
        """The scanned body with its ladder, lorebook entries and tenant, with what was learned of its model and with
        the window that it asks for. Raises `ClientError` for a lorebook that does not exist."""
        plain, scan, controls = scanned.plain, scanned.scan, scanned.controls
        if scanned.ladder is None:
            known = self._rules_for(scan.model, controls)
            ladder, lore = known.ladder, known.lore
        else:
            ladder, lore = scanned.ladder, self.lore_for(scan.model, controls, scanned.ladder)
        compaction = ""
        if self.requests.is_providers(received, scanned):
            ladder, lore, compaction = self.requests.ladder(ladder, controls.ladder), (), PROVIDERS
        tenant = self.knowledge.tenant(received.headers, scan.model, ladder.models)
        found = self.knowledge.remembered(scan.model, tenant, len(plain)) if tenant else NOTHING_LEARNED
        learned = found or NOTHING_LEARNED
        left_out = scanned.left_out
        ready = Scanned(plain, scan, controls, ladder, lore, tenant, learned, left_out=left_out, compaction=compaction)
        if found is None:
            ready = await self._with_learned(received, ready, ladder)
        return await self.with_requested(received, ready)

    async def _with_learned(self, received: Received, scanned: Scanned, ladder: Ladder) -> Scanned:
        """The scanned body with what refusals proved for its tenant, here and in other replicas."""
        knowledge, model = self.knowledge, scanned.scan.model
        if knowledge.shared:
            await knowledge.refresh(model, ladder, scanned.tenant, received.api.name, received.headers)
        size, cap, digests = len(scanned.plain), scanned.controls.window, scanned.digests
        learned = knowledge.learned_for(knowledge.learned(model, scanned.tenant), model, size, cap)
        if knowledge.cache.has_conversations(model, scanned.tenant):
            digests = await self.plans.pool.run(size > HEAVY_BYTES, digests_of, knowledge, scanned.scan, learned)
            learned = knowledge.learned_for(knowledge.learned(model, scanned.tenant, digests), model, size, cap)
        return replace(scanned, learned=learned, digests=digests)

    def _rules_for(self, model: str, controls: Controls) -> ByModel:
        """What holds for requests of a model whose clients ask for nothing; kept, as rules do not change."""
        key = model if controls.rule is None else (controls.rule.number, model)
        found = self._by_model.get(key)
        if found is None:
            ladder, inline = self.ladder_for(model, controls), self.knowledge.families.find(model).inline
            special = inline or self.knowledge.windows.has_requests(model)
            found = self._by_model.put(key, ByModel(ladder, self.lore_for(model, NOTHING_ASKED, ladder), special))
        return found

    def ladder_for(self, model: str, controls: Controls) -> Ladder:
        """The ladder that the client or its rule names, or that the rules give its model; it moves to no model that the
        rule does not allow. Raises `ClientError` for a name that does not exist."""
        ladder, rule = self.rules.ladder_for(model, controls.ladder, self.default), controls.rule
        return ladder if rule is None or rule.models is None else ladder.with_models(rule.allows)

    def lore_for(self, model: str, controls: Controls, ladder: Ladder) -> tuple[Entry, ...]:
        """The entries of the lorebooks that the client named, or that the rules give its model. Raises `ClientError`
        for a name that does not exist, and where no step would use them."""
        named = controls.lorebooks
        if named and not any(ladder_step.step == RECALL for ladder_step in ladder.steps):
            raise bad_header("x-plimsoll-lorebook", f"needs a ladder with the step {RECALL}, such as rag")
        return self.rules.lorebook_entries(model, named)

    async def with_requested(self, received: Received, scanned: Scanned) -> Scanned:
        """The request with the window that it asks for in its body, where its API has such a field, or in a header."""
        if received.api.without_truncation is not None:
            return await self._with_loaded(received, scanned)
        tokens = self.knowledge.windows.requested(scanned.scan.model, received.headers)
        if tokens is None:
            return scanned
        scan, learned = replace(scanned.scan, window=tokens), scanned.learned.where_requested(tokens)
        return replace(scanned, scan=scan, learned=learned)

    async def _with_loaded(self, received: Received, scanned: Scanned) -> Scanned:
        """The request with the window that it makes its server load; else that server is asked for what it has loaded,
        unless the request fits any window."""
        window = scanned.scan.window
        if window is None:
            if not is_tiny(scanned.scan):
                await self.knowledge.read_loaded(received.headers)
            return scanned
        if not received.dry_run:
            self.knowledge.request_window(scanned.scan.model)
        learned, controls = scanned.learned.where_requested(window), scanned.controls
        cap = window if controls.window is None else min(window, controls.window)
        return replace(scanned, learned=learned, controls=replace(controls, window=cap))

    async def _plan(self, received: Received, scanned: Scanned, record: Record) -> Planned:
        """The payload of a request that is understood, by the first of the three ways that leads to one. Raises
        `NotUnderstood`."""
        scan, ladder, counted = scanned.scan, scanned.ladder, None
        assert ladder is not None
        if (window := self._window_to_prove(received, scanned, ladder)) is not None:
            if proves(scan, ladder, window):
                counted = Counted(window, self.totals.known(received.api, scanned), proven=True)
                return Planned(received, scanned.unchanged(received), scanned, counted)
            counted = Counted(window)
        if scan.marks is not None:
            began = time.perf_counter()
            counted = await self.totals.count(received, scanned, ladder)
            record.phase("count", began)
        if counted is not None and counted.total is not None and is_below(counted.total, scan, ladder, counted.window):
            planned = Planned(received, scanned.unchanged(received), scanned, counted)
            load = load_of(counted, scan, ladder)
        else:
            scanned = await self.requests.found(received, scanned)
            ladder = scanned.ladder or ladder
            planned, load = await self._descended(received, scanned, ladder, record)
            planned = replace(planned, counted=None if counted is None else Counted(counted.window))
        if load >= ladder.least_ahead:
            self.later.prefetch(received, scanned, ladder, record)
        silent = received.api.without_truncation
        return planned if silent is None or not received.may_change else await self.told_to_refuse(planned, silent)

    async def _descended(
        self, received: Received, scanned: Scanned, ladder: Ladder, record: Record
    ) -> tuple[Planned, float]:
        """What is sent by the ladder; what is past its window and left to the client's agent, as it came. Also the load
        of what the client sent."""
        if received.terms.on_full is OnFull.FIT or not received.may_change:
            return await self.descents.descend(received, scanned, ladder, record)
        whole = await self.plans.count(received, scanned, ladder, record)
        if not self.agents.leaves(received, scanned, whole.prompt):
            return await self.descents.descend(received, scanned, ladder, record)
        check_too_long(scanned, whole.plan)
        if not whole.plan.before.possible and not whole.plan.trusting and self._cuts_silently(received, scanned):
            return refused(received, scanned, whole), 0.0
        return await self.plans.unchanged(received, scanned, whole), 0.0  # no summary is asked for ahead

    def _cuts_silently(self, received: Received, scanned: Scanned) -> bool:
        """Whether the upstream would cut a request that is too long and say nothing, so that no refusal would come; not
        where it is time to test that."""
        knowledge, model = self.knowledge, scanned.model
        silent = knowledge.cuts_silently(model, received.headers)
        return silent and not knowledge.claim_probe(model, tenant_of(received.headers), scanned.digests)

    async def told_to_refuse(self, planned: Planned, written: Callable[[bytes], bytes]) -> Planned:
        """A request that no step changed, where it is near the window, with a payload that has its server refuse what
        is too long (which is healed) and drop nothing."""
        scanned, counted, plan = planned.scanned, planned.counted, planned.plan
        if scanned is None or planned.proven or planned.error is not None or (plan is not None and plan.changed):
            return planned
        if plan is not None:
            window, prompt = plan.draft.window, plan.draft.prompt + plan.draft.margin
        else:
            assert counted is not None and counted.total is not None
            window, prompt = counted.window, counted.total.prompt + counted.total.margin.of(counted.total.prompt)
        if prompt < NEAR_LOAD * (window.tokens if window.source in SERVED else min(window.tokens, SMALLEST_LOADED)):
            return planned
        before = scanned.plain
        payload = await self.plans.pool.run(len(before) > HEAVY_BYTES, written, before)
        return planned if payload is before else replace(planned, payload=payload, refusing=True)

    def _window_to_prove(self, received: Received, scanned: Scanned, ladder: Ladder) -> Window | None:
        """The window that the body's bytes are compared with; None if they prove nothing."""
        if scanned.scan.most is None or self.knowledge.families.find(scanned.scan.model).inline:
            return None  # an image inside a text may cost more than its bytes
        window = self.knowledge.window_now(scanned.scan.model, ladder, scanned.controls.window, scanned.learned)
        silent = received.api.without_truncation is not None
        if silent and window.source not in SERVED and not is_tiny(scanned.scan):
            return None  # the server may have loaded a smaller one
        return received.terms.on(window)
