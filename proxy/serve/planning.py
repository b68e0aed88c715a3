"""Turns a body into what is to be sent: looks, proves or measures, plans, renders; it sends nothing itself."""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from proxy.config.rules import Rules
from proxy.errors import ClientError, does_not_fit, not_understood
from proxy.fit.blocks import runs
from proxy.fit.plan import learn, plan
from proxy.serve import log
from proxy.serve.knowledge import Headers, Knowledge
from proxy.serve.visit import Visit
from proxy.tokens.meter import learned_ratio
from proxy.types import Draft, Facts, Glance, Ladder, Mode, Outcome, Plan, Prompt, Refusal
from proxy.wire.endpoints import chat
from proxy.wire.report import takers

INLINE_BYTES = 8_192  # what is new and shorter than this is counted at once: a thread costs more than the count
SHARED_BYTES = 2_048  # only counts of longer messages are worth a question to Redis: counting less costs less
PROOF_MARGIN = 1_900  # tokens that providers were seen to add on their own, whatever the body says (Cohere's most)
ENCODINGS = {b"": None, b"identity": None, b"gzip": 31, b"x-gzip": 31, b"deflate": 47}  # zlib's window bits


@dataclass(slots=True)
class Planner:
    """Plans with what is known; what is new and long is counted in a thread of its own, off the event loop."""

    rules: Rules
    knowledge: Knowledge
    max_body: int
    default: str
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="count"))

    async def prepare(self, visit: Visit, headers: Headers) -> bytes:
        """The bytes to send for `visit.body`. Raises `ClientError` for what must not be sent. Our own bugs, and what
        we cannot understand, send the original bytes, unless the mode is strict."""
        if visit.mode is Mode.OFF:
            return visit.body
        try:
            plain = unpacked(visit.body, headers, self.max_body)
            glance = chat.glance(plain)
            visit.model, visit.stream = glance.model, glance.stream
            visit.ladder = self.ladder(visit, glance.model)
            if not visit.controls.pins and self.proven(glance, visit):
                return visit.body
            visit.packed = plain is not visit.body
            return await self.planned(visit, plain, headers)
        except chat.NotUnderstood as error:
            visit.result = "not_understood"
            if visit.mode is Mode.STRICT:
                raise not_understood(str(error)) from None
        except ClientError:
            raise
        except Exception as error:
            self.caught(visit, error)
            if visit.mode is Mode.STRICT:
                raise not_understood("the proxy itself failed") from None
        visit.plan = visit.prompt = visit.facts = None
        return visit.body

    def caught(self, visit: Visit, error: Exception) -> None:
        """Our own bug is logged and counted, and is not the user's outage. Its text may hold content: only its kind
        and place are told."""
        visit.result = "bug"
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{place.tb_lineno}" if place else ""
        log.event("a bug of ours; the original bytes go upstream", kind=type(error).__name__, at=where)

    def ladder(self, visit: Visit, model: str) -> Ladder:
        """The ladder that the client named, or that the rules give this model. Raises `ClientError` for a name that
        does not exist."""
        return self.rules.ladder_for(model, visit.controls.ladder, self.default)

    def proven(self, glance: Glance, visit: Visit) -> bool:
        """Whether the body's bytes alone prove that it fits and that no step's turn has come (section 6)."""
        ladder = visit.ladder
        if ladder is None or glance.most is None:
            return False
        window = self.knowledge.window_now(glance.model, visit.controls.window)
        if window.guessed:
            return False  # the upstream may be asked for its window first
        reserve = glance.reserve or glance.n * ladder.default_reserve
        most = glance.most + PROOF_MARGIN
        if most + reserve > window.tokens * min(1.0, ladder.least_at):
            return False
        return window.max_input is None or most <= window.max_input

    async def planned(self, visit: Visit, plain: bytes, headers: Headers) -> bytes:
        """The exact way: every message counted, the ladder walked."""
        await self.measure(visit, plain, headers)
        assert visit.plan is not None and visit.prompt is not None
        if not visit.acts or not visit.plan.changed:
            if visit.acts and not visit.plan.fits:
                self.reject(visit)
            return visit.body
        if not visit.plan.fits:
            self.reject(visit)
            return visit.body
        visit.result = "fitted"
        return chat.render(visit.prompt, visit.plan)

    def reject(self, visit: Visit) -> None:
        """Raises the 400 that names the figures, unless the ladder forwards what does not fit."""
        assert visit.plan is not None and visit.ladder is not None
        draft = visit.plan.draft
        visit.result = "unfit"
        if visit.ladder.on_unfit == "forward":
            visit.plan = Plan(visit.plan.before, visit.plan.before)
            return
        raise does_not_fit(draft.prompt, draft.least_reply, draft.margin, draft.window.tokens, takers(draft))

    async def measure(self, visit: Visit, plain: bytes, headers: Headers) -> None:
        """Parses, gathers facts and plans; leaves prompt, facts and plan in the visit."""
        assert visit.ladder is not None
        visit.prompt = chat.parse(plain, visit.controls.pins)
        visit.facts = await self.knowledge.facts(visit.prompt, visit.ladder, visit.controls.window, headers)
        visit.plan = await self.counted(visit.prompt, visit.ladder, visit.facts)

    async def counted(self, prompt: Prompt, ladder: Ladder, facts: Facts) -> Plan:
        """The plan; counts that are new are fetched from Redis or made in a thread, and kept for others."""
        new = [pair for run in runs(prompt.messages) if (pair := facts.meter.pending(run)) is not None]
        unknown = sum(len(material) for _, material in new)
        shared = [pair for pair in new if len(pair[1]) >= SHARED_BYTES]
        if shared:
            await self.knowledge.cache.fetch_counts(shared)
        if unknown <= INLINE_BYTES and len(prompt.messages) < 2_000:
            made = plan(prompt, ladder, facts)
        else:
            made = await asyncio.get_running_loop().run_in_executor(self.threads, plan, prompt, ladder, facts)
        if shared:
            self.knowledge.cache.store_counts(shared)
        return made

    async def count_only(self, visit: Visit, headers: Headers) -> None:
        """Counts what was proven to fit, while the upstream works."""
        try:
            plain = unpacked(visit.body, headers, self.max_body)
            assert visit.ladder is not None
            visit.prompt = chat.parse(plain)
            visit.facts = await self.knowledge.facts(visit.prompt, visit.ladder, visit.controls.window, headers)
            visit.plan = await self.counted(visit.prompt, replace(visit.ladder, rungs=()), visit.facts)
        except chat.NotUnderstood:
            visit.result = "not_understood"
        except Exception as error:
            self.caught(visit, error)

    def learn_ratio(self, visit: Visit, outcome: Outcome) -> None:
        """Lets the upstream's own count of what was sent correct ours for its model."""
        if outcome.usage is None or visit.plan is None or visit.prompt is None or visit.prompt.opaque:
            return
        sent = visit.plan.draft if visit.acts else visit.plan.before
        ratio = learned_ratio(sent.meter, sent.prompt, outcome.usage.prompt)
        if outcome.status == 200 and ratio is not None:
            self.knowledge.cache.observe(sent.model, ratio)

    async def healed(self, visit: Visit, refusal: Refusal, headers: Headers) -> bytes | None:
        """The bytes of a smaller request after a refusal, planned anew from what the client sent; None where nothing
        was learned, or where nothing smaller is left to send."""
        try:
            if visit.plan is None or visit.facts is None:
                await self.measure(visit, unpacked(visit.body, headers, self.max_body), headers)
            assert visit.plan and visit.facts and visit.prompt and visit.ladder
            facts = await self.taught(visit, visit.facts, visit.plan.draft, refusal, headers)
            if facts is None:
                return None
            again = await self.counted(visit.prompt, visit.ladder, facts)
            if not again.changed or not again.fits:
                return None
            visit.facts, visit.plan = facts, again
            return chat.render(visit.prompt, again)
        except ClientError:
            return None
        except Exception as error:
            self.caught(visit, error)
            return None

    async def taught(self, visit: Visit, facts: Facts, sent: Draft, refusal: Refusal, headers: Headers) -> Facts | None:
        """The facts after a refusal of `sent`, kept for the next request too; None where it taught nothing."""
        assert visit.prompt and visit.ladder
        if sent.model == visit.prompt.model:
            wiser = learn(facts, sent, refusal)
            return None if wiser is None else self.knowledge.taught(wiser, visit.prompt, visit.controls.window)
        other = Facts(sent.window, sent.meter, learned=self.knowledge.cache.learned_now(sent.model))
        wiser = learn(other, sent, refusal)
        if wiser is None:
            return None
        self.knowledge.taught(wiser, replace(visit.prompt, model=sent.model), visit.controls.window)
        return await self.knowledge.facts(visit.prompt, visit.ladder, visit.controls.window, headers)


def unpacked(body: bytes, headers: Headers, limit: int) -> bytes:
    """The body without its content-encoding. Raises `NotUnderstood` for an encoding that we do not know, a broken
    body, or one that would unpack to more than `limit` bytes."""
    encoding = next((v.strip().lower() for k, v in headers if k == b"content-encoding"), b"")
    if encoding not in ENCODINGS:
        raise chat.NotUnderstood("its content-encoding is not one that we know")
    bits = ENCODINGS[encoding]
    if bits is None:
        return body
    machine = zlib.decompressobj(bits)
    try:
        plain = machine.decompress(body, limit)
    except zlib.error:
        raise chat.NotUnderstood("its content-encoding is broken") from None
    if machine.unconsumed_tail or not machine.eof:
        raise chat.NotUnderstood("it unpacks to more than we take, or ends early")
    return plain
