"""Decides what is sent for a body: itself where it fits, less where it does not, an error where nothing helps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from proxy.config.rules import Rules
from proxy.errors import ClientError, bad_header, does_not_fit, not_understood
from proxy.fit.learn import REFUSED, SUPPOSED, apply_learned, learn
from proxy.fit.lore import Entry
from proxy.model.bounded import Bounded
from proxy.model.limits import NOTHING_LEARNED, Quality, Window
from proxy.model.outcome import Outcome, Refusal
from proxy.model.plan import Draft, Facts, Ladder, Mode, Plan
from proxy.model.scan import Glance, Total
from proxy.model.structs import replace
from proxy.observe import log
from proxy.request.context import Visit
from proxy.request.facts import MOST_MODELS, STATED, UPSTREAM, Knowledge
from proxy.request.measure import INLINE_BYTES, Measuring
from proxy.tokens.meter import is_noise, learned_ratio
from proxy.upstreams.extra_calls import Spent
from proxy.upstreams.internal_client import tenant_of
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED
from proxy.wire.echoes import echoes
from proxy.wire.report import least_reply, takers
from proxy.wire.scan import NotUnderstood

FAILED = ClientError(500, "The proxy itself failed.", kind="server_error", code="proxy_error")
MOST_BEHIND, BYTES_BEHIND = 64, 32 << 20  # requests that are worked on while nobody waits for it, and their bodies
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
    behind: dict[asyncio.Task[None], int] = field(default_factory=dict)  # what nobody waits for, and its bytes
    by_rules: Bounded[str, tuple[Ladder, tuple[Entry, ...]]] = field(default_factory=lambda: Bounded(MOST_MODELS))

    def __post_init__(self) -> None:
        self.aside = self.measuring.behind()

    async def prepare(self, visit: Visit, headers: Headers) -> bytes:
        """The bytes to send for `visit.body`. Raises `ClientError` for what must not be sent. Our own bugs, and what
        we cannot understand, send the original bytes, unless the mode is strict. The key of our own in its messages
        is taken out wherever messages can be read."""
        visit.sender = headers
        payload = await self._prepared(visit, headers)
        if payload is not visit.body or visit.mode is Mode.OFF:
            return payload
        if visit.glance is None:
            return await self._unkeyed(visit, headers)
        return visit.plain if visit.glance.seen.keyed else payload

    async def _unkeyed(self, visit: Visit, headers: Headers) -> bytes:
        """What was not understood, without the key of our own where its messages can be read."""
        try:
            return await self.measuring.unkeyed(visit.body, headers, visit.room)
        except NotUnderstood:
            return visit.body
        except Exception as error:
            self.caught(visit, error)
            return visit.body

    async def _prepared(self, visit: Visit, headers: Headers) -> bytes:
        if visit.mode is Mode.OFF:
            return visit.body
        try:
            glance = self.measuring.look_now(visit, headers)
            if glance is None or glance.seen.keyed:
                glance = await self.measuring.look_closer(visit, headers)
            ladder = self._chosen(visit)
            visit.caller = self.knowledge.caller(headers, glance.model)
            if self.knowledge.cache.shared:
                await self.knowledge.refresh(glance.model, ladder, visit.caller)
            if visit.caller:
                visit.learned = self.knowledge.learned(glance.model, visit.caller)
            visit.sure = self._proves(glance, ladder, visit)
            if visit.sure:
                self.measuring.known(visit, glance, ladder)
                return visit.body
            if glance.marks is None or not await self._rests(visit, glance, ladder, headers):
                return await self._fitted(visit, ladder, headers)
            if _load(visit, glance, ladder) >= ladder.least_ahead:
                self._look_ahead(visit, ladder, headers)
            return visit.body
        except NotUnderstood as error:
            visit.result = "not_understood"
            if visit.mode is Mode.STRICT:
                raise not_understood(str(error)) from None
        except ClientError:
            raise
        except Exception as error:
            self.caught(visit, error)
            if visit.mode is Mode.STRICT:
                raise not_understood("the proxy itself failed") from None
        visit.forget()
        return visit.body

    def _chosen(self, visit: Visit) -> Ladder:
        """The visit's ladder and lore, left in it. What the rules say of a model is remembered: they do not change."""
        if visit.controls is not NOTHING_ASKED:
            visit.ladder = self.ladder_for(visit)
            visit.lore = self.lore_for(visit, visit.ladder)
            return visit.ladder
        chosen = self.by_rules.get(visit.model)
        if chosen is None:
            ladder = self.ladder_for(visit)
            chosen = self.by_rules.put(visit.model, (ladder, self.lore_for(visit, ladder)))
        visit.ladder, visit.lore = chosen
        return visit.ladder

    def ladder_for(self, visit: Visit) -> Ladder:
        """The ladder that the client named, or that the rules give its model. Raises `ClientError` for a name that
        does not exist."""
        return self.rules.ladder_for(visit.model, visit.controls.ladder, self.default)

    def lore_for(self, visit: Visit, ladder: Ladder) -> tuple[Entry, ...]:
        """The entries of the lorebooks that the client named, or that the rules give its model. Raises `ClientError`
        for a name that does not exist, and where no step would use them."""
        wanted = visit.controls.lorebooks
        if wanted and not any(rung.step == RECALL for rung in ladder.rungs):
            raise bad_header("x-plimsoll-lorebook", f"needs a ladder with the step {RECALL}, such as rag")
        return self.rules.lore_for(visit.model, wanted)

    def caught(self, visit: Visit, error: Exception) -> None:
        """Our own bug is logged and counted, and is not the user's outage. Its text may hold content: only its kind
        and place are told."""
        visit.result = "bug"
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{place.tb_lineno}" if place else ""
        log.event("a bug of ours was caught", kind=type(error).__name__, at=where)

    def _proves(self, glance: Glance, ladder: Ladder, visit: Visit) -> bool:
        """Whether the body's bytes alone prove that it fits and that no step's turn has come (section 6)."""
        if glance.most is None:
            return False
        cap = visit.controls.window
        window = visit.window = self.knowledge.window_now(glance.model, ladder, cap, visit.learned)
        reserve = glance.reserve or ladder.default_reserve
        most = glance.most + PROOF_MARGIN
        if window.guessed or most + reserve > window.tokens * min(1.0, ladder.least_at):
            return False  # of a guess the upstream's own list may know better
        return window.max_input is None or most <= window.max_input

    async def _rests(self, visit: Visit, glance: Glance, ladder: Ladder, headers: Headers) -> bool:
        """Whether its count shows that it fits and that no step's turn has come: then nothing need be planned."""
        total = await self.measuring.total(visit, glance, ladder, headers)
        window = visit.window
        if window is not None and _within(total, glance, ladder, window):
            return True
        visit.total = None
        return False

    async def _fitted(self, visit: Visit, ladder: Ladder, headers: Headers) -> bytes:
        """The exact way: every message counted, the ladder walked, what changed written anew."""
        made = await self.measuring.measure(visit, headers, ladder)
        if made.before.load >= ladder.least_ahead:
            self._look_ahead(visit, ladder, headers)
        if not visit.acts:
            return visit.body
        if (made.changed or not made.possible) and await self._doubted(visit, made, headers):
            made = await self.measuring.measure(visit, headers, ladder)
        if not made.possible:
            return self._unfit(visit, ladder, made)
        if not made.changed:
            return visit.body
        visit.result = "fitted"
        return await self.measuring.render(visit, made)

    async def _doubted(self, visit: Visit, made: Plan, headers: Headers) -> bool:
        """Whether a request that would be cut, or cannot be cut far enough, is planned anew: as if nothing had been
        learned, where its turn has come to try that or no plan fits it; or with a newer list of the upstream's."""
        knowledge, before = self.knowledge, made.before
        learned, of_learning = visit.learned, before.window.source in (REFUSED, SUPPOSED)
        limited = [] if visit.facts is None else self._limited(visit.facts, visit.caller)
        if of_learning or learned.scale != 1.0 or learned.max_input is not None:  # which holds beside a window's cap
            limited.append(before.model)
        if limited:
            due = made.possible and [model for model in limited if knowledge.cache.probes(model, visit.caller)]
            if made.possible and not due:
                return False
            visit.probing = True
            visit.learned = replace(learned, window=None, max_input=None, scale=1.0, supposed=False)
            return True
        return before.window.source == UPSTREAM and await knowledge.listed_anew(before.model, headers)

    def _limited(self, facts: Facts, caller: bytes) -> list[str]:
        """The models that a request may be moved to of which limits were learned."""
        names = [rival.model for rival in facts.rivals]
        return [name for name in names if (known := self.knowledge.learned(name, caller)).bounds or known.scale != 1.0]

    def _look_ahead(self, visit: Visit, ladder: Ladder, headers: Headers) -> None:
        """Makes ready what steps will want at later turns. Nobody waits for it."""
        if visit.acts and self._has_time(len(visit.plain)):
            room = None if visit.room is None else visit.room.another()
            if room is not None and not room.now(len(visit.plain)):
                return
            visit.spent = visit.spent or Spent()
            looking = Visit(visit.endpoint, visit.mode, visit.controls, plain=visit.plain, room=room)
            looking.model, looking.spent = visit.model, visit.spent
            looking.caller, looking.learned = visit.caller, visit.learned
            soon = replace(ladder, rungs=tuple(rung.ahead for rung in ladder.rungs if rung.ahead is not None))
            self._behind(self._seen_ahead(looking, soon, headers), len(visit.plain))

    def _has_time(self, size: int) -> bool:
        """Whether so many bytes may be worked on that nobody waits for."""
        return len(self.behind) < MOST_BEHIND and sum(self.behind.values()) + size <= BYTES_BEHIND

    def _behind(self, work: Coroutine[Any, Any, None], size: int) -> asyncio.Task[None]:
        """Begins what nobody waits for."""
        task = asyncio.create_task(work)
        self.behind[task] = size
        task.add_done_callback(self.behind.pop)
        return task

    async def _seen_ahead(self, looking: Visit, soon: Ladder, headers: Headers) -> None:
        try:
            await self.aside.measure(looking, headers, soon)
        except Exception as error:
            self.caught(looking, error)
        finally:
            looking.let_go()

    async def close(self) -> None:
        """Gives up what nobody waits for."""
        for task in self.behind:
            task.cancel()
        if self.behind:
            await asyncio.wait(self.behind)
        await self.measuring.summaries.close()
        await self.measuring.embeddings.close()
        self.aside.close()
        self.measuring.close()

    def _unfit(self, visit: Visit, ladder: Ladder, made: Plan) -> bytes:
        """The original bytes where the ladder forwards what does not fit, and where only a guess or the upstream's list
        says so: the upstream itself shall tell. Else raises the 400 with the figures."""
        draft = made.draft
        stated = draft.window.source in STATED or draft.window.tokens == self.knowledge.limit
        if ladder.on_unfit == "forward" or not stated:
            visit.result = "unfit" if stated else ""
            visit.plan = Plan(made.before, made.before, trusting=not stated)
            return visit.body
        visit.result = "unfit"
        raise does_not_fit(draft.prompt, least_reply(draft), draft.margin, draft.window.tokens, takers(draft))

    def count_later(self, visit: Visit, headers: Headers) -> None:
        """Has what was proven to fit counted while the upstream works. A long one is left uncounted where much waits
        for that already: nobody waits for it, and its body would."""
        assert visit.glance is not None
        if visit.glance.new <= INLINE_BYTES:
            visit.counting = asyncio.create_task(self.count(visit, headers))
        elif self._has_time(len(visit.plain)):
            visit.counting = self._behind(self.count(visit, headers), len(visit.plain))
        else:
            visit.uncounted = True

    async def count(self, visit: Visit, headers: Headers) -> None:
        """Counts what was proven to fit."""
        assert visit.ladder is not None and visit.glance is not None
        try:
            await self.aside.total(visit, visit.glance, visit.ladder, headers)
        except NotUnderstood:
            visit.result = "not_understood"
            visit.forget()
        except Exception as error:
            self.caught(visit, error)
            visit.forget()

    def learn_ratio(self, visit: Visit, outcome: Outcome) -> None:
        """Lets the upstream's own count of what was sent correct ours for its model, and its answer take back limits
        that it disproves."""
        if visit.caller and outcome.status == 200:
            self._answered(visit, outcome)
        if outcome.status == 200:
            self.knowledge.read(outcome.model_sent, visit.sender, outcome)
        if outcome.usage is None or outcome.status != 200 or outcome.prompt_sent is None or outcome.truncated:
            return
        model, cache = outcome.model_sent, self.knowledge.cache
        family = self.knowledge.families.find(model)
        ratio = learned_ratio(model, family, visit.unit, outcome.prompt_sent, outcome.usage)
        if ratio is not None and (cache.corrected(model) or not is_noise(family, ratio)):
            cache.observe(model, visit.caller or tenant_of(visit.sender), ratio)

    def _answered(self, visit: Visit, outcome: Outcome) -> None:
        """Lets an answer take back what it disproves. One without usage counts where the request tried a limit and was
        answered with content: who refuses what is too long has not cut it."""
        sent, probed = outcome.prompt_sent, visit.probing and not outcome.refusals
        if outcome.usage is not None:
            used = outcome.usage.prompt
            whole = sent is not None and used >= sent * (1 - WHOLE[Quality(outcome.quality)])
            agrees = whole and not outcome.truncated
        else:
            if not probed or sent is None or visit.tap is None or not visit.tap.content_seen or visit.tap.error:
                return
            used, agrees = sent, True
        reply = outcome.reply_sent or 0
        self.knowledge.cache.answered(outcome.model_sent, visit.caller, used, reply, agrees=agrees, probed=probed)

    async def healed(self, visit: Visit, refusal: Refusal, headers: Headers) -> bytes | None:
        """The bytes of a smaller request after a refusal, planned anew from what the client sent; None where nothing
        was learned, or where nothing smaller is left to send."""
        ladder = visit.ladder
        if ladder is None:
            return None
        try:
            sent = visit.plan
            visit.caller = tenant_of(headers)
            if sent is None:  # in the meantime another request may have learned what this refusal would teach
                visit.learned = self.knowledge.learned(visit.model, visit.caller)
            counted = sent or await self.measuring.count(visit, headers, ladder)
            quoted = await self.measuring.beside(visit, echoes, refusal.quotes, visit.plain, _spoken(headers))
            facts = self._taught(visit, ladder, counted.draft, refusal, proves=not quoted)
            if facts is None and sent is None:
                facts = visit.facts
            if facts is None:
                return None
            again = await self.measuring.plan(visit, facts, ladder, headers)
            if not again.changed or not again.possible:
                return None
            visit.facts, visit.plan, visit.result = facts, again, "fitted"
            return await self.measuring.render(visit, again)
        except Exception as error:
            self.caught(visit, error)
            return None

    def _taught(self, visit: Visit, ladder: Ladder, sent: Draft, refusal: Refusal, *, proves: bool) -> Facts | None:
        """The facts after a refusal of `sent`; None where it taught nothing. What it `proves` is kept for the caller's
        next request too. Where `sent` had been moved to another model it speaks of that one."""
        assert visit.prompt is not None and visit.facts is not None
        knowledge, moved = self.knowledge, sent.model != visit.prompt.model
        kept = knowledge.learned(sent.model, visit.caller)
        facts = visit.facts
        if moved:
            facts = Facts(sent.window, sent.meter, learned=NOTHING_LEARNED if visit.probing else kept)
        if visit.probing and kept != NOTHING_LEARNED and refusal.limit is None and refusal.prompt is None:
            visit.probing = False  # what it tried still holds, and says more than this refusal
            wiser: Facts | None = apply_learned(facts, kept)
        else:
            wiser = learn(facts, sent, refusal)
        if wiser is None:
            return None
        if proves:
            knowledge.prove(sent, refusal, wiser.learned, visit.caller, opaque=visit.prompt.opaque)
        window = knowledge.under_caps(wiser.window, ladder, visit.controls.window)
        if not moved:
            return replace(wiser, window=window)
        rivals = tuple(replace(r, window=window) if r.model == sent.model else r for r in visit.facts.rivals)
        return replace(visit.facts, rivals=rivals)


def _spoken(headers: Headers) -> bytes:
    """What a client says beside its body, as far as an error may quote it."""
    return b"\n".join([value for _, value in headers])


def _load(visit: Visit, glance: Glance, ladder: Ladder) -> float:
    """How full the window of a counted request would be; of a guessed one that says nothing."""
    if visit.total is None or visit.window is None or visit.window.guessed:
        return 0.0
    reserve = ladder.default_reserve if glance.reserve is None else glance.reserve
    return (visit.total.prompt + reserve) / visit.window.tokens


def _within(total: Total, glance: Glance, ladder: Ladder, window: Window) -> bool:
    """Whether a counted request fits its window and its load is under every `at`; a guess that a refusal is to correct
    holds everything."""
    if window.guessed and ladder.unknown == "learn":
        return True
    reply = window.floor(ladder.floor) if glance.reserve is None else glance.reserve
    reserve = ladder.default_reserve if glance.reserve is None else glance.reserve
    if total.prompt + reserve >= ladder.least_at * window.tokens:
        return False
    return window.excess(total.prompt, reply, total.margin) <= 0
