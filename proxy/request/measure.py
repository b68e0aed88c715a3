"""Reads, counts, plans and writes a request's body, and what of that is heavy in a thread; it decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from proxy.fit.blocks import runs
from proxy.fit.lore import LOREBOOKS
from proxy.fit.plan import due, plan
from proxy.http.memory_budget import Room
from proxy.model import oversized_json
from proxy.model.api import Api
from proxy.model.conversation import Message
from proxy.model.lenient_json import Json
from proxy.model.limits import LearnedLimits
from proxy.model.plan import Facts, Ladder, Plan, Want
from proxy.model.ports import Meter
from proxy.model.scan import KnownPrefix, PrefixDigest, Scan, Total
from proxy.model.structs import replace
from proxy.request.context import RequestContext
from proxy.request.decompression import unpacked
from proxy.request.facts import Knowledge
from proxy.request.prefix_cache import PrefixCache
from proxy.request.totals import Part, Totals
from proxy.request.wants import Provider
from proxy.request.work import Pool, request_pool
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import MESSAGE_KEY
from proxy.wire.headers import value_of
from proxy.wire.scan import NotUnderstood, without_lone_surrogates

INLINE_BYTES = 8_192  # what is new and shorter than this is counted at once: a thread costs more than the count
SHARED_BYTES = 2_048  # only counts of longer messages are worth a question to Redis: counting less costs less
HEAVY_BYTES = 1 << 20  # of a body: reading and writing it would hold up other requests for over 5 ms
CROWDED = 1 << 18  # bytes of a body whose values are counted before it is read: each may take 300 bytes then
# Values and messages of one request that is planned, and bytes for each one more: each takes 100 bytes, 2 KB.
VALUES, VALUE_BYTES = 1 << 16, 256
MESSAGES, MESSAGE_BYTES = 1 << 15, 1024
Pair = tuple[bytes, bytes]
T = TypeVar("T")


@dataclass(slots=True)
class Measuring:
    """What is new and long is counted in a thread of its own, off the event loop.

    `max_body` bounds what a packed body may unpack to, in bytes.
    """

    knowledge: Knowledge
    totals: Totals
    providers: Mapping[str, Provider]  # by kind of want
    max_body: int
    prefixes: PrefixCache = field(default_factory=PrefixCache)
    pool: Pool = field(default_factory=request_pool)
    _counting: dict[str, Ladder] = field(default_factory=dict)

    async def look(self, context: RequestContext, headers: Headers) -> Scan:
        """A first look at the body, without its messages. Raises `NotUnderstood`."""
        scan = self.look_now(context, headers)
        return await self.look_closer(context, headers) if scan is None or scan.seen.keyed else scan

    def look_now(self, context: RequestContext, headers: Headers) -> Scan | None:
        """A first look, where that is quick; else `look_closer` must take it. Raises `NotUnderstood`."""
        if value_of(headers, b"content-encoding") is not None:
            return None
        known = self.prefixes.find(context.api, context.body)
        new = len(context.body) - (known.end if known is not None else 0)
        if new > HEAVY_BYTES or (new > CROWDED and oversized_json.signs(context.body) > _most(context.body)):
            return None
        context.plain, scan = _read(context.api, context.body, known)
        context.scan, context.model, context.stream = scan, scan.model, scan.stream
        return scan

    async def look_closer(self, context: RequestContext, headers: Headers) -> Scan:
        """What `look_now` left: to unpack and read a long body, and to take the key of our own out of its messages.
        Raises `NotUnderstood`."""
        if context.scan is not None:
            await self._unkey(context)
            return context.scan
        coding = (value_of(headers, b"content-encoding") or b"").strip().lower()
        plain = await unpacked(context.body, coding, self.max_body, self.pool.run, context.room)
        context.plain, scan = await self.pool.run(len(plain) > CROWDED, _looked, context.api, plain)
        context.scan, context.model, context.stream = scan, scan.model, scan.stream
        if scan.seen.keyed:
            await self._unkey(context)
        return scan

    async def _unkey(self, context: RequestContext) -> None:
        """Takes the key of our own out of the messages, and pins those that it says."""
        heavy = len(context.plain) > HEAVY_BYTES
        context.plain, pins = await self.pool.run(heavy, context.api.without_extension, context.plain)
        context.controls = replace(context.controls, pins=context.controls.pins | pins)

    async def unkeyed(self, api: Api, body: bytes, headers: Headers, room: Room | None = None) -> bytes:
        """A body that is not understood without the key of our own in its messages; itself where they have none.
        Raises `NotUnderstood` where they cannot be read."""
        coding = (value_of(headers, b"content-encoding") or b"").strip().lower()
        plain = await unpacked(body, coding, self.max_body, self.pool.run, room)
        return await self.pool.run(len(plain) > HEAVY_BYTES, _unkeyed, api, body, plain)

    async def total(self, context: RequestContext, scan: Scan, ladder: Ladder, headers: Headers) -> Total:
        """What the request costs, counted without a plan; of a conversation that only grew, what is new is counted.
        Raises `NotUnderstood`."""
        heavy = scan.new > HEAVY_BYTES
        marks = await self.pool.run(heavy, self.totals.marks, scan, context.learned)
        found = self.totals.known(marks)
        await self.knowledge.ready(scan.model, ladder, context.controls.window, headers, context.learned)
        if found is None:
            part = await self.pool.run(heavy, self.totals.unknown, context.api, marks, context.plain, scan)
            found = await self._counted(marks, part, scan.new, context.learned)
        if marks is not None:
            await self.pool.run(heavy, self.prefixes.keep, context.api, context.plain, scan, marks)
        cap = context.controls.window
        context.total, context.window = found, self.knowledge.window_now(scan.model, ladder, cap, context.learned)
        return found

    async def _counted(self, marks: PrefixDigest | None, part: Part, size: int, learned: LearnedLimits) -> Total:
        if size <= INLINE_BYTES:
            return self.totals.count(marks, part, learned)
        meter = self.knowledge.meter(part.prompt, part.prompt.model, learned)
        new = await self.pool.run(size > HEAVY_BYTES, _new_in, part, meter)
        shared = [pair for pair in new if len(pair[1]) >= SHARED_BYTES]
        await self.knowledge.cache.fetch_counts(shared)
        long = size > HEAVY_BYTES or sum(len(material) for _, material in new) > INLINE_BYTES
        found = await self.pool.run(long, self.totals.count, marks, part, learned)
        self.knowledge.cache.store_counts(shared)
        return found

    def known(self, context: RequestContext, scan: Scan, ladder: Ladder) -> bool:
        """Whether the request's total is known without counting; leaves it in the visit."""
        if scan.new > HEAVY_BYTES:
            return False
        marks = self.totals.marks(scan, context.learned)
        context.total = self.totals.known(marks)
        if context.total is None or marks is None:
            return False
        self.prefixes.keep(context.api, context.plain, scan, marks)
        if context.window is None:
            cap = context.controls.window
            context.window = self.knowledge.window_now(scan.model, ladder, cap, context.learned)
        return True

    async def measure(self, context: RequestContext, headers: Headers, ladder: Ladder) -> Plan:
        """Parses, gathers facts and plans; leaves prompt, facts and plan in the visit. Raises `NotUnderstood`."""
        heavy, cap = len(context.plain) > HEAVY_BYTES, context.controls.window
        context.prompt = await self.pool.run(heavy, context.api.parse, context.plain, context.controls.pins)
        caller = b"" if context.probing else context.caller  # then the limits of models that it may be moved to, too
        facts = await self.knowledge.facts(context.prompt, ladder, cap, headers, caller, context.learned)
        context.facts = replace(facts, knowledge={LOREBOOKS: context.lore}) if context.lore else facts
        context.plan = await self.plan(context, context.facts, ladder, headers)
        return context.plan

    async def count(self, context: RequestContext, headers: Headers, ladder: Ladder) -> Plan:
        """The same, but no step has its turn: it only counts."""
        return await self.measure(context, headers, self._without_steps(ladder))

    async def plan(self, context: RequestContext, facts: Facts, ladder: Ladder, headers: Headers) -> Plan:
        """The plan with these facts, and with what its steps want besides: each step is told once, if only that what it
        wants cannot be had."""
        made = await self._planned(context, facts, ladder)
        for _ in ladder.steps:
            if made.want is None:
                break
            told = await self._told(context, made.want, headers)
            facts = replace(facts, knowledge={**facts.knowledge, made.want.key: told})
            made = await self._planned(context, facts, ladder)
        return made

    async def _told(self, context: RequestContext, want: Want, headers: Headers) -> Json:
        """What is wanted; empty where it cannot be had. Where nothing is sent, nobody is asked. The wait is none of our
        own time."""
        if context.spent is None:
            context.spent = CallCost()
        began = time.perf_counter()
        told = await self.providers[want.kind].fulfil(
            want, headers, context.acts and context.asks and not self.knowledge.offline, context.spent
        )
        if not told and not context.asks and want.kind not in context.unasked:
            context.unasked += (want.kind,)
        waited = time.perf_counter() - began
        context.own_seconds -= waited
        context.upstream_seconds += waited
        return told

    async def _planned(self, context: RequestContext, facts: Facts, ladder: Ladder) -> Plan:
        """The plan with these facts alone: at once where that is quick, else in a thread. Long counts that are new are
        fetched from Redis, or made and kept for others."""
        size, prompt = len(context.plain) + sum(len(entry.content) for entry in context.lore), context.prompt
        assert prompt is not None
        if size <= INLINE_BYTES:
            return plan(prompt, ladder, facts)
        new = await self.pool.run(size > HEAVY_BYTES, _new, prompt.messages, facts.meter)
        shared = [pair for pair in new if len(pair[1]) >= SHARED_BYTES]
        await self.knowledge.cache.fetch_counts(shared)
        made = None
        if size <= HEAVY_BYTES and sum(len(material) for _, material in new) <= INLINE_BYTES:
            made = _untouched(plan(prompt, self._without_steps(ladder), facts), ladder)
        if made is None:
            made = await self.pool.run(True, plan, prompt, ladder, facts)
        self.knowledge.cache.store_counts(shared)
        return made

    def _without_steps(self, ladder: Ladder) -> Ladder:
        found = self._counting.get(ladder.name)
        if found is None:
            found = self._counting[ladder.name] = replace(ladder, steps=())
        return found

    async def render(self, context: RequestContext, made: Plan) -> bytes:
        """The JSON of what is to be sent."""
        assert context.prompt is not None
        return await self.pool.run(len(context.plain) > HEAVY_BYTES, context.api.render, context.prompt, made)

    async def unstreamed(self, context: RequestContext) -> bytes:
        """What is sent, asking for an answer in one piece. Raises `NotUnderstood`."""
        plain = context.plain if context.payload is context.body else context.payload
        return await self.pool.run(len(plain) > HEAVY_BYTES, context.api.without_stream, plain)

    async def beside(self, context: RequestContext, work: Callable[..., T], *args: object) -> T:
        """Does something that takes the longer the longer the request is."""
        return await self.pool.run(len(context.plain) > HEAVY_BYTES, work, *args)


def _looked(api: Api, plain: bytes) -> tuple[bytes, Scan]:
    """A first look at a body. Raises `NotUnderstood`, for one with too much in it before it is read."""
    if (why := _too_much(plain)) is not None:
        raise NotUnderstood(why)
    return _read(api, plain)


def _too_much(plain: bytes) -> str | None:
    """What there is too much of in a body to read it; None where that is not so."""
    if len(plain) > CROWDED and oversized_json.values(plain, most := _most(plain)) > most:
        return "there are more values in it than we plan with"
    if len(plain) > oversized_json.OUTSIZE and oversized_json.strange(plain):
        return "there is a very long name, role or key in it"
    return None


def _most(body: bytes) -> int:
    """Values that a body may have."""
    return VALUES + len(body) // VALUE_BYTES


def _read(api: Api, body: bytes, known: KnownPrefix | None = None) -> tuple[bytes, Scan]:
    """The body as it can be read, and a first look at it. Raises `NotUnderstood`."""
    try:
        long = known is None and len(body) > oversized_json.LONGEST
        plain, found = body, _glanced(api, body) if long else api.scan(body, known)
    except NotUnderstood:
        mendable = without_lone_surrogates(body)
        if mendable is None:
            raise
        plain, found = mendable, api.scan(mendable)
    if found.seen.count > MESSAGES + len(body) // MESSAGE_BYTES:
        raise NotUnderstood("there are more messages in it than we plan with")
    return plain, found


def _glanced(api: Api, body: bytes) -> Scan:
    """A first look at a body too long to be decoded at once, without what its bytes could prove, and without marks: no
    window holds it, so it is planned, and never known by its bytes. Raises `NotUnderstood`."""
    if (outline := oversized_json.outline(body)) is None:
        return api.scan(body)
    return replace(api.scan(outline.text), most=None, marks=None, text=body)


def _unkeyed(api: Api, body: bytes, plain: bytes) -> bytes:
    """A body without the key of our own, given unpacked; itself where it has none."""
    if oversized_json.find(plain, MESSAGE_KEY.encode()) < 0 or _too_much(plain):
        return body
    plain = without_lone_surrogates(plain) or plain
    written, _ = api.without_extension(plain)
    return body if written is plain else written


def _new(messages: Sequence[Message], meter: Meter) -> list[Pair]:
    """What was not counted before: keys, and the bytes that the counts depend on. First the head, tools and all."""
    parts = ((), *runs(messages))
    return [pair for part in parts if (pair := meter.pending(part)) is not None]


def _new_in(part: Part, meter: Meter) -> list[Pair]:
    return _new(part.new, meter)


def _untouched(counted: Plan, ladder: Ladder) -> Plan | None:
    """The plan where no step's turn comes; None where one does."""
    first = counted.before
    return (
        counted if counted.trusting or not any(due(ladder_step, first, first) for ladder_step in ladder.steps) else None
    )
