"""Decides what is sent for a body: itself where it fits, less where it does not, an error where nothing helps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from proxy.config.rules import Rules
from proxy.errors import ClientError, bad_header, does_not_fit, not_understood
from proxy.fit.learn import REFUSED, SUPPOSED, apply_learned, learn
from proxy.fit.lore import Entry
from proxy.model.bounded import Bounded
from proxy.model.limits import NO_MARGIN, NOTHING_LEARNED, Quality, Window
from proxy.model.outcome import Outcome, Refusal
from proxy.model.plan import Draft, Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.structs import replace
from proxy.observe import log
from proxy.request.context import RequestContext
from proxy.request.facts import MOST_MODELS, STATED, UPSTREAM, Knowledge
from proxy.request.measure import INLINE_BYTES, Measuring
from proxy.request.work import Background
from proxy.tokens.meter import is_noise, learned_ratio
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED
from proxy.wire.echoes import echoes
from proxy.wire.report import least_reply, takers
from proxy.wire.scan import NotUnderstood

FAILED = ClientError(500, "The proxy itself failed.", code="proxy_error")
RECALL = "recall"  # the step that quotes lorebooks
# By how much of our count an upstream's may be lower and still be of the whole prompt; what cuts silently reports less.
WHOLE = {Quality.EXACT: 0.1, Quality.CALIBRATED: 0.25, Quality.ESTIMATED: 0.5}
PROOF_MARGIN = 1_900  # tokens that providers were seen to add on their own, whatever the body says (Cohere's most)


@dataclass(slots=True)
class Planner:
    """Plans with what is known; `default` names the ladder where neither client nor rules name one."""

    rules: Rules
    knowledge: Knowledge
    measuring: Measuring
    default: str
    aside: Measuring = field(init=False)  # measures what nobody waits for
    background: Background = field(default_factory=Background)
    by_rules: Bounded[str, tuple[Ladder, tuple[Entry, ...]]] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def __post_init__(self) -> None:
        self.aside = replace(self.measuring, pool=self.background.pool)

    async def prepare(self, context: RequestContext, headers: Headers) -> bytes:
        """The bytes to send for `visit.body`. Raises `ClientError` for what must not be sent. Our own bugs, and what
        we cannot understand, send the original bytes, unless the mode is strict. The key of our own in its messages
        is taken out wherever messages can be read."""
        context.sender = headers
        payload = await self._prepared(context, headers)
        if payload is not context.body or context.mode is Mode.OFF:
            return payload
        if context.scan is None:
            return await self._unkeyed(context, headers)
        return context.plain if context.scan.seen.keyed else payload

    async def _unkeyed(self, context: RequestContext, headers: Headers) -> bytes:
        """What was not understood, without the key of our own where its messages can be read."""
        try:
            return await self.measuring.unkeyed(context.api, context.body, headers, context.room)
        except NotUnderstood:
            return context.body
        except Exception as error:
            self.caught(context, error)
            return context.body

    async def _prepared(self, context: RequestContext, headers: Headers) -> bytes:
        if context.mode is Mode.OFF:
            return context.body
        try:
            scan = self.measuring.look_now(context, headers)
            if scan is None or scan.seen.keyed:
                scan = await self.measuring.look_closer(context, headers)
            ladder = self._chosen(context)
            context.caller = self.knowledge.caller(headers, scan.model)
            if self.knowledge.cache.shared:
                await self.knowledge.refresh(scan.model, ladder, context.caller)
            if context.caller:
                context.learned = self.knowledge.learned(scan.model, context.caller)
            context.sure = self._proves(scan, ladder, context)
            if context.sure:
                self.measuring.known(context, scan, ladder)
                return context.body
            if scan.marks is None or not await self._rests(context, scan, ladder, headers):
                return await self._fitted(context, ladder, headers)
            if _load(context, scan, ladder) >= ladder.least_ahead:
                self._look_ahead(context, ladder, headers)
            return context.body
        except NotUnderstood as error:
            context.result = "not_understood"
            if context.mode is Mode.STRICT:
                raise not_understood(str(error)) from None
        except ClientError:
            raise
        except Exception as error:
            self.caught(context, error)
            if context.mode is Mode.STRICT:
                raise not_understood("the proxy itself failed") from None
        context.forget()
        return context.body

    def _chosen(self, context: RequestContext) -> Ladder:
        """The visit's ladder and lore, left in it. What the rules say of a model is remembered: they do not change."""
        if context.controls is not NOTHING_ASKED:
            context.ladder = self.ladder_for(context)
            context.lore = self.lore_for(context, context.ladder)
            return context.ladder
        chosen = self.by_rules.get(context.model)
        if chosen is None:
            ladder = self.ladder_for(context)
            chosen = self.by_rules.put(context.model, (ladder, self.lore_for(context, ladder)))
        context.ladder, context.lore = chosen
        return context.ladder

    def ladder_for(self, context: RequestContext) -> Ladder:
        """The ladder that the client named, or that the rules give its model. Raises `ClientError` for a name that
        does not exist."""
        return self.rules.ladder_for(context.model, context.controls.ladder, self.default)

    def lore_for(self, context: RequestContext, ladder: Ladder) -> tuple[Entry, ...]:
        """The entries of the lorebooks that the client named, or that the rules give its model. Raises `ClientError`
        for a name that does not exist, and where no step would use them."""
        wanted = context.controls.lorebooks
        if wanted and not any(ladder_step.step == RECALL for ladder_step in ladder.steps):
            raise bad_header("x-plimsoll-lorebook", f"needs a ladder with the step {RECALL}, such as rag")
        return self.rules.lorebook_entries(context.model, wanted)

    def caught(self, context: RequestContext, error: Exception) -> None:
        """Our own bug is logged and counted, and is not the user's outage. Its text may hold content: only its kind
        and place are told."""
        context.result = "bug"
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{place.tb_lineno}" if place else ""
        log.event("a bug of ours was caught", kind=type(error).__name__, at=where)

    def _proves(self, scan: Scan, ladder: Ladder, context: RequestContext) -> bool:
        """Whether the body's bytes alone prove that it fits and that no step's turn has come (section 6)."""
        if scan.most is None:
            return False
        cap = context.controls.window
        window = context.window = self.knowledge.window_now(scan.model, ladder, cap, context.learned)
        reserve = scan.reserve or ladder.default_reserve
        most = scan.most + PROOF_MARGIN
        if window.guessed:  # the upstream's own list may have a better value
            return False
        below = most + reserve <= ladder.least_at * window.tokens
        return below and window.fits(most, reserve, NO_MARGIN)

    async def _rests(self, context: RequestContext, scan: Scan, ladder: Ladder, headers: Headers) -> bool:
        """Whether its count shows that it fits and that no step's turn has come: then nothing need be planned."""
        total = await self.measuring.total(context, scan, ladder, headers)
        window = context.window
        if window is not None and _within(total, scan, ladder, window):
            return True
        context.total = None
        return False

    async def _fitted(self, context: RequestContext, ladder: Ladder, headers: Headers) -> bytes:
        """The exact way: every message counted, the ladder walked, what changed written anew."""
        made = await self.measuring.measure(context, headers, ladder)
        if made.before.load >= ladder.least_ahead:
            self._look_ahead(context, ladder, headers)
        if not context.acts:
            return context.body
        if (made.changed or not made.possible) and await self._doubted(context, made, headers):
            made = await self.measuring.measure(context, headers, ladder)
        if not made.possible:
            return self._unfit(context, ladder, made)
        if not made.changed:
            return context.body
        context.result = "fitted"
        return await self.measuring.render(context, made)

    async def _doubted(self, context: RequestContext, made: Plan, headers: Headers) -> bool:
        """Whether a request that would be cut, or cannot be cut far enough, is planned anew: as if nothing had been
        learned, where its turn has come to try that or no plan fits it; or with a newer list of the upstream's."""
        knowledge, before = self.knowledge, made.before
        learned, of_learning = context.learned, before.window.source in (REFUSED, SUPPOSED)
        limited = [] if context.facts is None else self._limited(context.facts, context.caller)
        if of_learning or learned.scale != 1.0 or learned.max_input is not None:  # which holds beside a window's cap
            limited.append(before.model)
        if limited:
            due = made.possible and [model for model in limited if knowledge.cache.claim_probe(model, context.caller)]
            if made.possible and not due:
                return False
            context.probing = True
            context.learned = replace(learned, window=None, max_input=None, scale=1.0, supposed=False)
            return True
        return before.window.source == UPSTREAM and await knowledge.listed_anew(before.model, headers)

    def _limited(self, facts: Facts, caller: bytes) -> list[str]:
        """The models that a request may be moved to of which limits were learned."""
        names = [candidate.model for candidate in facts.candidates]
        return [name for name in names if (known := self.knowledge.learned(name, caller)).bounds or known.scale != 1.0]

    def _look_ahead(self, context: RequestContext, ladder: Ladder, headers: Headers) -> None:
        """Makes ready what steps will want at later turns. Nobody waits for it."""
        if context.acts and self.background.has_capacity(len(context.plain)):
            room = None if context.room is None else context.room.another()
            if room is not None and not room.now(len(context.plain)):
                return
            context.spent = context.spent or CallCost()
            looking = RequestContext(context.api, context.mode, context.controls, plain=context.plain, room=room)
            looking.model, looking.spent = context.model, context.spent
            looking.caller, looking.learned = context.caller, context.learned
            soon = replace(
                ladder, steps=tuple(ladder_step.ahead for ladder_step in ladder.steps if ladder_step.ahead is not None)
            )
            self.background.start(self._seen_ahead(looking, soon, headers), len(context.plain))

    async def _seen_ahead(self, looking: RequestContext, soon: Ladder, headers: Headers) -> None:
        try:
            await self.aside.measure(looking, headers, soon)
        except Exception as error:
            self.caught(looking, error)
        finally:
            looking.let_go()

    async def close(self) -> None:
        """Cancels background work, and closes pools and providers."""
        await self.background.close()
        for provider in self.measuring.providers.values():
            await provider.close()
        self.measuring.pool.close()

    def _unfit(self, context: RequestContext, ladder: Ladder, made: Plan) -> bytes:
        """The original bytes where the ladder forwards what does not fit, and where only a guess or the upstream's list
        says so: the upstream itself shall tell. Else raises the 400 with the figures."""
        draft = made.draft
        stated = draft.window.source in STATED or draft.window.tokens == self.knowledge.limit
        if ladder.on_unfit == "forward" or not stated:
            context.result = "unfit" if stated else ""
            context.plan = Plan(made.before, made.before, trusting=not stated)
            return context.body
        context.result = "unfit"
        raise does_not_fit(draft.prompt, least_reply(draft), draft.margin, draft.window.tokens, takers(draft))

    def count_later(self, context: RequestContext, headers: Headers) -> None:
        """Has what was proven to fit counted while the upstream works. A long one is left uncounted where much waits
        for that already: nobody waits for it, and its body would."""
        assert context.scan is not None
        if context.scan.new <= INLINE_BYTES:
            context.counting = asyncio.create_task(self.count(context, headers))
        elif self.background.has_capacity(len(context.plain)):
            context.counting = self.background.start(self.count(context, headers), len(context.plain))
        else:
            context.uncounted = True

    async def count(self, context: RequestContext, headers: Headers) -> None:
        """Counts what was proven to fit."""
        assert context.ladder is not None and context.scan is not None
        try:
            await self.aside.total(context, context.scan, context.ladder, headers)
        except NotUnderstood:
            context.result = "not_understood"
            context.forget()
        except Exception as error:
            self.caught(context, error)
            context.forget()

    def learn_ratio(self, context: RequestContext, outcome: Outcome) -> None:
        """Lets the upstream's own count of what was sent correct ours for its model, and its answer take back limits
        that it disproves."""
        if context.caller and outcome.status == 200:
            self._answered(context, outcome)
        if outcome.status == 200:
            self.knowledge.read(outcome.model_sent, context.sender, outcome)
        if outcome.usage is None or outcome.status != 200 or outcome.prompt_sent is None or outcome.truncated:
            return
        model, cache = outcome.model_sent, self.knowledge.cache
        family = self.knowledge.families.find(model)
        ratio = learned_ratio(model, family, context.unit, outcome.prompt_sent, outcome.usage)
        if ratio is not None and (cache.has_corrections(model) or not is_noise(family, ratio)):
            cache.record_ratio(model, context.caller or tenant_of(context.sender), ratio)

    def _answered(self, context: RequestContext, outcome: Outcome) -> None:
        """Lets an answer take back what it disproves. One without usage counts where the request tried a limit and was
        answered with content: who refuses what is too long has not cut it."""
        sent, probed = outcome.prompt_sent, context.probing and not outcome.refusals
        if outcome.usage is not None:
            used = outcome.usage.prompt
            whole = sent is not None and used >= sent * (1 - WHOLE[Quality(outcome.quality)])
            agrees = whole and not outcome.truncated
        else:
            if not probed or sent is None or context.tap is None or not context.tap.content_seen or context.tap.error:
                return
            used, agrees = sent, True
        reply = outcome.reply_sent or 0
        self.knowledge.cache.record_answer(
            outcome.model_sent, context.caller, used, reply, agrees=agrees, probed=probed
        )

    async def healed(self, context: RequestContext, refusal: Refusal, headers: Headers) -> bytes | None:
        """The bytes of a smaller request after a refusal, planned anew from what the client sent; None where nothing
        was learned, or where nothing smaller is left to send."""
        ladder = context.ladder
        if ladder is None:
            return None
        try:
            sent = context.plan
            context.caller = tenant_of(headers)
            if sent is None:  # in the meantime another request may have learned what this refusal would teach
                context.learned = self.knowledge.learned(context.model, context.caller)
            counted = sent or await self.measuring.count(context, headers, ladder)
            quoted = await self.measuring.beside(context, echoes, refusal.quotes, context.plain, _spoken(headers))
            facts = self._taught(context, ladder, counted.draft, refusal, proves=not quoted)
            if facts is None and sent is None:
                facts = context.facts
            if facts is None:
                return None
            again = await self.measuring.plan(context, facts, ladder, headers)
            if not again.changed or not again.possible:
                return None
            context.facts, context.plan, context.result = facts, again, "fitted"
            return await self.measuring.render(context, again)
        except Exception as error:
            self.caught(context, error)
            return None

    def _taught(
        self, context: RequestContext, ladder: Ladder, sent: Draft, refusal: Refusal, *, proves: bool
    ) -> Facts | None:
        """The facts after a refusal of `sent`; None where it taught nothing. What it `proves` is kept for the caller's
        next request too. Where `sent` had been moved to another model it speaks of that one."""
        assert context.prompt is not None and context.facts is not None
        knowledge, moved = self.knowledge, sent.model != context.prompt.model
        kept = knowledge.learned(sent.model, context.caller)
        facts = context.facts
        if moved:
            facts = Facts(sent.window, sent.meter, learned=NOTHING_LEARNED if context.probing else kept)
        if context.probing and kept != NOTHING_LEARNED and refusal.limit is None and refusal.prompt is None:
            context.probing = False  # what it tried still holds, and says more than this refusal
            wiser: Facts | None = apply_learned(facts, kept)
        else:
            wiser = learn(facts, sent, refusal)
        if wiser is None:
            return None
        if proves:
            knowledge.prove(sent, refusal, wiser.learned, context.caller, opaque=context.prompt.opaque)
        window = knowledge.under_caps(wiser.window, ladder, context.controls.window)
        if not moved:
            return replace(wiser, window=window)
        candidates = tuple(replace(r, window=window) if r.model == sent.model else r for r in context.facts.candidates)
        return replace(context.facts, candidates=candidates)


def _spoken(headers: Headers) -> bytes:
    """What a client says beside its body, as far as an error may quote it."""
    return b"\n".join([value for _, value in headers])


def _load(context: RequestContext, scan: Scan, ladder: Ladder) -> float:
    """How full the window of a counted request would be; of a guessed one that says nothing."""
    if context.total is None or context.window is None or context.window.guessed:
        return 0.0
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    return (context.total.prompt + reserve) / context.window.tokens


def _within(total: Total, scan: Scan, ladder: Ladder, window: Window) -> bool:
    """Whether a counted request fits its window and its load is under every `at`; a guess that a refusal is to correct
    holds everything."""
    if window.guessed and ladder.unknown == "learn":
        return True
    reply = window.floor(ladder.floor) if scan.reserve is None else scan.reserve
    reserve = ladder.default_reserve if scan.reserve is None else scan.reserve
    below = total.prompt + reserve < ladder.least_at * window.tokens
    return below and window.fits(total.prompt, reply, total.margin)
