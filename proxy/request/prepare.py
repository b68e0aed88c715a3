"""Received -> Planned: decides what is sent for a request, or raises the error that the client gets instead.

Three ways lead to a payload. Where the body's bytes alone prove that the request fits, or where its count shows that it
fits and no step of the ladder is due, the client's own bytes are sent. Else the ladder is descended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.config.rules import Rules
from proxy.config.windows import RULES
from proxy.errors import ClientError, bad_header, does_not_fit, inputs_do_not_fit, not_understood
from proxy.fit.learn import REFUSED, SUPPOSED
from proxy.fit.lore import Entry
from proxy.http.memory_budget import Room
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.limits import NO_MARGIN, NOTHING_LEARNED, Window
from proxy.model.plan import Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.request.bugs import report_bug
from proxy.request.context import RequestContext
from proxy.request.facts import LOADED, MOST_MODELS, REQUESTED, STATED, UPSTREAM, Knowledge
from proxy.request.planning import PlanBuilder
from proxy.request.refusal_detection import NEAR_LOAD
from proxy.request.scanning import BodyScanner
from proxy.request.stages import Counted, Planned, Received, Record, Scanned
from proxy.request.totals import TotalCounter, digests_of
from proxy.request.unmoved import why_unmoved
from proxy.request.work import HEAVY_BYTES, INLINE_BYTES, Background
from proxy.upstreams.extra_calls import CallCost
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.report import least_reply, takers, too_long_inputs
from proxy.wire.scan import NotUnderstood

RECALL = "recall"  # the step that quotes lorebooks
# Steps that must not act on a request whose conversation the provider is to compact: they write texts of our own, or
# move it to a model that did not encrypt it.
NOT_WHEN_COMPACTING = frozenset({"summarise_history", RECALL, "switch_model"})
SEND = "send"  # `Ladder.on_unfit` of such a request: what is left goes out even if it is too long by our count
# Sources of a window that say what the server has loaded, or that the operator answers for. A model's own window does
# not: Ollama loads 4,096 tokens of 131,072 on most machines, older versions 2,048.
SERVED = frozenset({LOADED, REQUESTED, RULES, REFUSED})
SMALLEST_LOADED = 2_048
PROOF_MARGIN = 1_900  # tokens that providers were seen to add on their own, whatever the body says (Cohere's most)


@dataclass(slots=True)
class Planner:
    """Prepares requests. `default` names the ladder where neither the client nor the rules name one."""

    rules: Rules
    knowledge: Knowledge
    scanner: BodyScanner
    totals: TotalCounter
    plans: PlanBuilder
    background: Background
    default: str
    background_totals: TotalCounter = field(init=False)
    background_plans: PlanBuilder = field(init=False)
    _by_model: Bounded[str, tuple[Ladder, tuple[Entry, ...]]] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def __post_init__(self) -> None:
        self.background_totals = replace(self.totals, pool=self.background.pool)
        self.background_plans = replace(self.plans, pool=self.background.pool)

    async def prepare(self, context: RequestContext) -> None:
        """Takes a received request through its stages to `Planned`. Raises `ClientError` for what must not be sent.

        A request that is not understood, or that our own code fails on, is sent as it came, unless the mode is strict.
        The proxy's own key in messages is removed wherever the messages can be parsed.
        """
        received = context.received
        if received.mode is Mode.OFF:
            context.planned = Planned(received.body)
            return
        try:
            context.planned = await self._plan(context)
            if received.api.without_truncation is not None and received.may_change:
                await self.tell_to_refuse(context, received.api.without_truncation)
            return
        except NotUnderstood as error:
            context.record.result, context.record.unplanned = "not_understood", str(error)
            if received.mode is Mode.STRICT:
                raise not_understood(str(error)) from None
        except ClientError:
            raise
        except Exception as error:
            report_bug(context.record, error)
            if received.mode is Mode.STRICT:
                raise not_understood("the proxy itself failed") from None
        context.forget()
        context.planned = Planned(await self._unplanned(context))

    async def _unplanned(self, context: RequestContext) -> bytes:
        """The payload of a request that could not be planned."""
        received, scanned = context.received, context.scanned
        if scanned is not None:
            return _unchanged(received, scanned)
        try:
            return await self.scanner.unscanned_without_key(received, context.room)
        except NotUnderstood:
            return received.body
        except Exception as error:
            report_bug(context.record, error)
            return received.body

    async def _plan(self, context: RequestContext) -> Planned:
        received = context.received
        scanned = context.scanned
        if scanned is None:
            scanned = context.scanned = self.scanner.scan_now(received)
        if scanned is None or scanned.scan.seen.keyed:
            scanned = await self.scan(context)
        scanned, ladder, complete = self._with_rules(context, scanned)
        if not complete:
            scanned = await self._with_learned(received, scanned, ladder)
        scanned = await self.with_requested(received, scanned)
        context.scanned, scan = scanned, scanned.scan
        if (window := self._window_to_prove(received.api, scanned, ladder)) is not None:
            if _proves(scan, ladder, window):
                context.counted = Counted(window, self.totals.known(received.api, scanned), proven=True)
                return Planned(_unchanged(received, scanned))
            context.counted = Counted(window)
        if scan.marks is None or not await self._fits_uncut(context, scanned, ladder):
            return await self._descend(context, scanned, ladder)
        if _load(context.counted, scan, ladder) >= ladder.least_ahead:
            self._prefetch(context, scanned, ladder)
        return Planned(_unchanged(received, scanned))

    async def scan(self, context: RequestContext) -> Scanned:
        """The scanned body, without the proxy's own key in messages. Raises `NotUnderstood`."""
        received, scanned = context.received, context.scanned
        if scanned is None:
            scanned = context.scanned = await self.scanner.scan(received, context.room)
        if scanned.scan.seen.keyed:
            scanned = context.scanned = await self.scanner.without_key(received.api, scanned)
        return scanned

    def _with_rules(self, context: RequestContext, scanned: Scanned) -> tuple[Scanned, Ladder, bool]:
        """The scanned body with its ladder, lorebook entries and tenant, and whether it has what was learned, too.
        Raises `ClientError` for a control header with a name that does not exist."""
        plain, scan, controls = scanned.plain, scanned.scan, scanned.controls
        if controls is NOTHING_ASKED:
            ladder, lore = self._default_rules(scan.model)
        else:
            ladder = self.ladder_for(scan.model, controls)
            context.scanned = replace(scanned, ladder=ladder)
            lore = self.lore_for(scan.model, controls, ladder)
        if scan.compacts or context.received.path in context.received.api.compact_paths:
            ladder, lore = compacting(ladder), ()
        tenant = self.knowledge.tenant(context.received.headers, scan.model, ladder.models)
        found = self.knowledge.remembered(scan.model, tenant, len(plain)) if tenant else NOTHING_LEARNED
        learned = found or NOTHING_LEARNED
        ready = Scanned(plain, scan, controls, ladder, lore, tenant, learned, left_out=scanned.left_out)
        return ready, ladder, found is not None

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

    def _default_rules(self, model: str) -> tuple[Ladder, tuple[Entry, ...]]:
        """The ladder and the lorebook entries of a request without control headers; cached, as rules do not change."""
        found = self._by_model.get(model)
        if found is None:
            ladder = self.ladder_for(model, NOTHING_ASKED)
            found = self._by_model.put(model, (ladder, self.lore_for(model, NOTHING_ASKED, ladder)))
        return found

    def ladder_for(self, model: str, controls: Controls) -> Ladder:
        """The ladder that the client named, or that the rules give its model. Raises `ClientError` for a name that
        does not exist."""
        return self.rules.ladder_for(model, controls.ladder, self.default)

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
            if not _is_tiny(scanned.scan):
                await self.knowledge.read_loaded(received.headers)
            return scanned
        if not received.dry_run:
            self.knowledge.request_window(scanned.scan.model)
        learned, controls = scanned.learned.where_requested(window), scanned.controls
        cap = window if controls.window is None else min(window, controls.window)
        return replace(scanned, learned=learned, controls=replace(controls, window=cap))

    async def tell_to_refuse(self, context: RequestContext, written: Callable[[bytes], bytes]) -> None:
        """Changes the payload of a request that no step changed, where it is near the window, so that its server
        refuses what is too long (which is healed) and drops nothing."""
        scanned, planned = context.scanned, context.planned
        assert scanned is not None and planned is not None
        if context.proven or (planned.plan is not None and planned.plan.changed):
            return
        counted, plan = context.counted, planned.plan
        if plan is not None:
            window, prompt = plan.draft.window, plan.draft.prompt + plan.draft.margin
        else:
            assert counted is not None and counted.total is not None
            window, prompt = counted.window, counted.total.prompt + counted.total.margin.of(counted.total.prompt)
        if prompt < NEAR_LOAD * (window.tokens if window.source in SERVED else min(window.tokens, SMALLEST_LOADED)):
            return
        before = scanned.plain
        payload = await self.plans.pool.run(len(before) > HEAVY_BYTES, written, before)
        if payload is not before:
            context.planned = replace(planned, payload=payload, refusing=True)

    def _window_to_prove(self, api: Api, scanned: Scanned, ladder: Ladder) -> Window | None:
        """The window that the body's bytes are compared with; None if they prove nothing."""
        if scanned.scan.most is None or self.knowledge.families.find(scanned.scan.model).inline:
            return None  # an image inside a text may cost more than its bytes
        window = self.knowledge.window_now(scanned.scan.model, ladder, scanned.controls.window, scanned.learned)
        if api.without_truncation is not None and window.source not in SERVED and not _is_tiny(scanned.scan):
            return None  # the server may have loaded a smaller one
        return window

    async def _fits_uncut(self, context: RequestContext, scanned: Scanned, ladder: Ladder) -> bool:
        """Whether the count shows that the request fits and that no step is due: then nothing needs to be planned."""
        began = time.perf_counter()
        counted = await self.totals.count(context.received, scanned, ladder)
        context.record.phase("count", began)
        assert counted.total is not None
        fits = _is_below(counted.total, scanned.scan, ladder, counted.window)
        context.counted = counted if fits else Counted(counted.window)
        return fits

    async def _descend(self, context: RequestContext, scanned: Scanned, ladder: Ladder) -> Planned:
        """Counts every message, descends the ladder, and renders what changed."""
        received, record = context.received, context.record
        planned = context.planned = await self._build(received, scanned, ladder, record)
        plan = _plan_of(planned)
        check_too_long(scanned, plan)
        if plan.before.load >= ladder.least_ahead:
            self._prefetch(context, scanned, ladder)
        if not received.may_change:
            return await self.plans.to_send(received.api, scanned, planned, _unchanged(received, scanned))
        if plan.changed or not plan.possible:
            again = await self._without_doubtful_limits(received, scanned, planned)
            if again is not None:
                scanned = context.scanned = again
                planned = context.planned = await self._build(received, scanned, ladder, record)
                plan = _plan_of(planned)
                check_too_long(scanned, plan)
        if not plan.possible and not (plan.changed and ladder.on_unfit == SEND):
            return self._unfit(context, scanned, ladder, planned)
        if not plan.changed:
            return await self.plans.to_send(received.api, scanned, planned, _unchanged(received, scanned))
        if ladder.models and planned.facts is not None:
            about = planned.facts.candidates, ladder, self.knowledge, received.api.name, received.headers
            record.unmoved = why_unmoved(plan, *about)
        record.result = "fitted"
        began = time.perf_counter()
        rendered = await self.plans.rendered(received.api, scanned, planned)
        record.phase("render", began)
        return rendered

    async def _build(self, received: Received, scanned: Scanned, ladder: Ladder, record: Record) -> Planned:
        """The plan; its time is a phase, without waits for others."""
        began, own = time.perf_counter(), record.own_seconds
        planned = await self.plans.build(received, scanned, ladder, record)
        record.phase("plan", began, own - record.own_seconds)
        return planned

    async def _without_doubtful_limits(self, received: Received, scanned: Scanned, planned: Planned) -> Scanned | None:
        """A request that would be cut, or cannot be cut far enough, is planned again where its limits may not hold:
        without learned limits, if it is time to test them or if nothing fits them; or with a newer list of models.
        Returns the request as it is to be planned again, or None."""
        knowledge, plan, learned = self.knowledge, _plan_of(planned), scanned.learned
        before = plan.before
        limited = {} if planned.facts is None else self._limited_candidates(received, planned.facts, scanned.tenant)
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

    def _unfit(self, context: RequestContext, scanned: Scanned, ladder: Ladder, planned: Planned) -> Planned:
        """The original bytes if the ladder forwards what does not fit, or if only a guess or the upstream's list says
        that it does not: the upstream decides. Else raises the 400 with the figures."""
        plan, received = _plan_of(planned), context.received
        draft = plan.draft
        stated = draft.window.source in STATED or draft.window.tokens == self.knowledge.limit
        if ladder.on_unfit in ("forward", SEND) or not stated:
            context.record.result = "unfit" if stated else ""
            sent = Plan(plan.before, plan.before, trusting=not stated)
            return replace(planned, plan=sent, payload=_unchanged(received, scanned))
        context.record.result = "unfit"
        if planned.prompt is not None and planned.prompt.form.embeds:
            raise inputs_do_not_fit(too_long_inputs(draft), draft.window.max_input or draft.window.tokens)
        reply, asked = least_reply(draft), plan.before.prompt
        raise does_not_fit(draft.prompt, reply, draft.margin, draft.window.tokens, takers(draft), asked)

    def _prefetch(self, context: RequestContext, scanned: Scanned, ladder: Ladder) -> None:
        """Starts to fetch, in the background, what steps will want at later turns."""
        received, size = context.received, len(scanned.plain)
        if not received.may_change or not self.background.has_capacity(size):
            return
        room = None if context.room is None else context.room.another()
        if room is not None and not room.try_reserve(size):
            return
        context.record.cost = context.record.cost or CallCost()
        later = replace(scanned, scan=replace(scanned.scan, text=b""), lore=(), probing=False)
        steps = tuple(ladder_step.ahead for ladder_step in ladder.steps if ladder_step.ahead is not None)
        work = self._fetch(received, later, replace(ladder, steps=steps), Record(cost=context.record.cost), room)
        self.background.start(work, size)

    async def _fetch(
        self, received: Received, scanned: Scanned, ladder: Ladder, record: Record, room: Room | None
    ) -> None:
        try:
            await self.background_plans.build(received, scanned, ladder, record)
        except Exception as error:
            report_bug(record, error)
        finally:
            if room is not None:
                room.release()

    def count_later(self, context: RequestContext) -> None:
        """Starts to count a request that is proven to fit, while the upstream works. A long one is not counted if too
        much background work is under way: its body would be kept in memory for nobody."""
        scanned, counted, record = context.scanned, context.counted, context.record
        assert scanned is not None and counted is not None
        if scanned.scan.new <= INLINE_BYTES:
            record.counting = asyncio.create_task(self.count(context))
        elif self.background.has_capacity(len(scanned.plain)):
            record.counting = self.background.start(self.count(context), len(scanned.plain))
        else:
            context.counted = replace(counted, skipped=True)

    async def count(self, context: RequestContext) -> None:
        """Counts a request that is proven to fit."""
        scanned = context.scanned
        assert scanned is not None and scanned.ladder is not None
        began = time.perf_counter()
        try:
            counted = await self.background_totals.count(context.received, scanned, scanned.ladder)
            context.record.phase("count", began)
            context.counted = replace(counted, proven=True)
        except NotUnderstood as error:
            context.record.result, context.record.unplanned = "not_understood", str(error)
            context.forget()
        except Exception as error:
            report_bug(context.record, error)
            context.forget()


def _plan_of(planned: Planned) -> Plan:
    assert planned.plan is not None
    return planned.plan


def check_too_long(scanned: Scanned, plan: Plan) -> None:
    """Raises `NotUnderstood` for a request that was not read whole, and of which nothing shows that it does not fit:
    what was read of it may fit alone."""
    if scanned.left_out and (plan.trusting or plan.before.excess <= 0):
        raise NotUnderstood("there are more messages or values in it than we plan with")


def _unchanged(received: Received, scanned: Scanned) -> bytes:
    """The client's own bytes; without the proxy's own key, if a message has it."""
    return scanned.plain if scanned.scan.seen.keyed else received.body


def _is_tiny(scan: Scan) -> bool:
    """Whether a request fits the smallest window that a server loads."""
    return scan.most is not None and scan.most <= NEAR_LOAD * SMALLEST_LOADED


def _proves(scan: Scan, ladder: Ladder, window: Window) -> bool:
    """Whether the body's bytes alone prove that it fits and that no step is due: a token has at least one byte."""
    if scan.most is None or window.guessed:  # of a guess, the upstream's own list may have a better value
        return False
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    if window.max_inputs is not None and scan.seen.count > window.max_inputs:
        return False
    if window.max_together is not None and len(scan.text) > window.max_together:
        return False
    most = scan.most + PROOF_MARGIN
    return window.load(most, reserve) <= ladder.least_at and window.fits(most, reserve, NO_MARGIN)


def _is_below(total: Total, scan: Scan, ladder: Ladder, window: Window) -> bool:
    """Whether a counted request fits, with a load below the `at` of every step. A guessed window that refusals will
    correct fits everything."""
    if window.guessed and ladder.unknown == "learn":
        return True
    reply = window.floor(ladder.floor) if scan.reserve is None else scan.reserve
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    prompt = total.shown if total.media else total.prompt  # what is not known cuts nothing
    return window.load(prompt, reserve) < ladder.least_at and window.fits(prompt, reply, total.margin)


def _load(counted: Counted | None, scan: Scan, ladder: Ladder) -> float:
    """The load of a counted request; 0 where the window is guessed."""
    if counted is None or counted.total is None or counted.window.guessed:
        return 0.0
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    return counted.window.load(counted.total.prompt, reserve)


def compacting(ladder: Ladder) -> Ladder:
    """The ladder for a request in which the provider is to compact the conversation: it must always get through, for
    without it the conversation ends."""
    steps = tuple(ladder_step for ladder_step in ladder.steps if ladder_step.step not in NOT_WHEN_COMPACTING)
    return replace(ladder, steps=steps, on_unfit=SEND)
