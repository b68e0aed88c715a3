"""Scanned -> Counted: the tokens of whole prompts, cached by the digests of their messages; it plans nothing.

Of a conversation that only grew since it was counted, the new messages are counted. `proxy.request.prefix_cache` says
how its prefix is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from proxy.cache.cache import Cache
from proxy.fit.blocks import runs
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.conversation import Message, Prompt
from proxy.model.limits import NOTHING_LEARNED, CountUnit, LearnedLimits, Margin, Quality
from proxy.model.plan import Ladder
from proxy.model.ports import Meter
from proxy.model.scan import PrefixDigest, Scan, Total
from proxy.request.facts import Knowledge
from proxy.request.prefix_cache import PrefixCache
from proxy.request.sent_prefixes import Prefixes
from proxy.request.stages import Counted, Received, Scanned
from proxy.request.work import HEAVY_BYTES, INLINE_BYTES, Pool
from proxy.tokens.counting_key import SEED
from proxy.tokens.meter import unit_of

MAX_ENTRIES = 100_000  # of each cache
SHARED_BYTES = 2_048  # counts of shorter messages are not shared through Redis: counting costs less than asking
Pair = tuple[bytes, bytes]  # the key of a count, and the bytes that the count depends on


@dataclass(frozen=True, slots=True)
class Frame:
    """The tokens of a request besides its messages, and how far its count may be trusted."""

    fixed: int
    margin: Margin
    quality: Quality
    unit: CountUnit | None

    def total(self, tokens: int, messages: int, marks: PrefixDigest | None) -> Total:
        """The total of a prompt whose messages cost `tokens`."""
        digests = () if marks is None else marks.latest
        return Total(self.fixed + tokens, self.margin, self.quality, messages, self.unit, self.fixed, digests)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a conversation that is to be counted: messages from `start` on. Those before cost `before` tokens."""

    prompt: Prompt
    start: int = 0
    before: int = 0

    @property
    def new(self) -> list[Message]:
        """The messages to be counted."""
        return [message for message in self.prompt.messages if message.index >= self.start]


@dataclass(slots=True)
class Totals:
    """Two bounded caches: frames by the digest of the head, and tokens by the digest of all messages so far."""

    knowledge: Knowledge
    _frames: Bounded[int, Frame] = field(default_factory=lambda: Bounded(MAX_ENTRIES))
    _tokens: Bounded[int, int] = field(default_factory=lambda: Bounded(MAX_ENTRIES))

    def marks(self, scan: Scan, learned: LearnedLimits = NOTHING_LEARNED) -> PrefixDigest | None:
        """Digests of the messages, seeded with everything else that their counts depend on. None if the cost of some
        part does not follow from the bytes."""
        return marks_of(self.knowledge, scan, learned)

    def prefixes(self, total: Total) -> Prefixes | None:
        """The prefixes of a prompt that was counted; the tokens of the last two at most. None without digests."""
        digests = total.digests
        if not digests:
            return None
        before = self._tokens.get(digests[-2]) if len(digests) > 1 else None
        return Prefixes(digests, [total.prompt] if before is None else [total.fixed + before, total.prompt])

    def known(self, marks: PrefixDigest | None) -> Total | None:
        """The total of a request that was counted before; takes a microsecond."""
        if marks is None:
            return None
        frame = self._frames.get(marks.first)
        tokens = self._tokens.get(marks.latest[-1])
        if frame is None or tokens is None:
            return None
        return frame.total(tokens, marks.count, marks)

    def unknown(self, api: Api, marks: PrefixDigest | None, body: bytes, scan: Scan) -> Part:
        """The part of a conversation that is not cached. Raises `NotUnderstood`."""
        if marks is None:
            return Part(api.request.parse(body))
        for back in range(2, len(marks.latest) + 1):
            before = self._tokens.get(marks.latest[-back])
            if before is not None:
                start = marks.count - back + 1
                rest = _from(api, start, body, scan)
                first = next(message for message in rest.messages if message.index >= start)
                if not first.answers:  # a result belongs to the block before it, whose cost changes with it
                    return Part(rest, start, before)
        return Part(api.request.parse(body, plain=True))

    def count(self, marks: PrefixDigest | None, part: Part, learned: LearnedLimits = NOTHING_LEARNED) -> Total:
        """Counts the new messages and caches the total. Takes long if they are long: then the caller uses a thread."""
        meter = self.knowledge.meter(part.prompt, part.prompt.model, learned)
        new, newest = part.new, 0
        tokens = part.before
        for run in runs(new):
            newest = sum(meter.costs(run))
            tokens += newest
        frame = Frame(sum(meter.fixed.values()), meter.margin, meter.quality, unit_of(meter))
        if marks is not None:
            self._tokens.put(marks.latest[-1], tokens)
            self._frames.put(marks.first, frame)
            if len(new) > 1 and not new[-1].answers and len(marks.latest) > 1:
                self._tokens.put(marks.latest[-2], tokens - newest)  # the client may send another last message
        total = frame.total(tokens, part.start + len(new), marks)
        if part.prompt.opaque:  # then nothing of it is cached
            return replace(total, media=meter.media(new))
        if part.prompt.form.apart:
            return replace(total, longest=max(sum(meter.costs(run)) for run in runs(new)))
        return total


def marks_of(knowledge: Knowledge, scan: Scan, learned: LearnedLimits = NOTHING_LEARNED) -> PrefixDigest | None:
    """See `Totals.marks`."""
    if scan.marks is None:
        return None
    return scan.marks(xxh3_64_intdigest(scan.head, SEED ^ knowledge.counted_as(scan.model, learned)))


def digests_of(knowledge: Knowledge, scan: Scan, learned: LearnedLimits) -> Sequence[int]:
    """The digests of a request's last prefixes, shortest first; none if its counts do not follow from its bytes."""
    marks = marks_of(knowledge, scan, learned)
    return () if marks is None else marks.latest


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Counts of long messages, shared with other replicas through Redis."""

    cache: Cache

    async def fetch(self, new: Sequence[Pair], tenant: bytes) -> list[Pair]:
        """Reads the counts of those pairs that are worth it, for a tenant's request, and returns these."""
        shared = [pair for pair in new if len(pair[1]) >= SHARED_BYTES]
        await self.cache.fetch_counts(shared, tenant)
        return shared

    def store(self, shared: Sequence[Pair]) -> None:
        """Writes the counts that were made."""
        self.cache.store_counts(shared)


@dataclass(slots=True)
class TotalCounter:
    """Counts prompts without a plan, short ones inline and long ones in a thread of `pool`."""

    knowledge: Knowledge
    counts: SharedCounts
    totals: Totals
    prefixes: PrefixCache
    pool: Pool

    async def count(self, received: Received, scanned: Scanned, ladder: Ladder) -> Counted:
        """The total of a prompt, and its window. Raises `NotUnderstood`."""
        api, scan, learned, cap = received.api, scanned.scan, scanned.learned, scanned.controls.window
        heavy = scan.new > HEAVY_BYTES
        marks = await self.pool.run(heavy, self.totals.marks, scan, learned)
        total = self.totals.known(marks)
        await self.knowledge.ready(scan.model, ladder, cap, received.headers, learned, api.name)
        if total is None:
            part = await self.pool.run(heavy, self.totals.unknown, api, marks, scanned.plain, scan)
            total = await self._count(marks, part, scanned)
        if marks is not None:
            await self.pool.run(heavy, self.prefixes.keep, api, scanned.plain, scan, marks)
        return Counted(received.terms.on(self.knowledge.window_now(scan.model, ladder, cap, learned)), total)

    def known(self, api: Api, scanned: Scanned) -> Total | None:
        """The total of a short prompt that was counted before; None if it must be counted."""
        scan = scanned.scan
        if scan.new > HEAVY_BYTES:
            return None
        marks = self.totals.marks(scan, scanned.learned)
        total = self.totals.known(marks)
        if total is not None and marks is not None:
            self.prefixes.keep(api, scanned.plain, scan, marks)
        return total

    async def _count(self, marks: PrefixDigest | None, part: Part, scanned: Scanned) -> Total:
        size, learned = scanned.scan.new, scanned.learned
        if size <= INLINE_BYTES:
            return self.totals.count(marks, part, learned)
        meter = self.knowledge.meter(part.prompt, part.prompt.model, learned)
        new = await self.pool.run(size > HEAVY_BYTES, _pending_in, part, meter)
        shared = await self.counts.fetch(new, scanned.tenant)
        long = size > HEAVY_BYTES or sum(len(material) for _, material in new) > INLINE_BYTES
        total = await self.pool.run(long, self.totals.count, marks, part, learned)
        self.counts.store(shared)
        return total


def pending(messages: Sequence[Message], meter: Meter) -> list[Pair]:
    """The keys of the counts that are not cached, with the bytes that they depend on: first the head of the request
    (tools and all), then each run of messages."""
    parts = ((), *runs(messages))
    return [pair for part in parts if (pair := meter.pending(part)) is not None]


def _pending_in(part: Part, meter: Meter) -> list[Pair]:
    return pending(part.new, meter)


def _from(api: Api, start: int, body: bytes, scan: Scan) -> Prompt:
    """The messages from `start` on, and the first instructions; parsed from the new bytes alone where possible."""
    known = scan.known
    if known is not None and known.seen.count == start:
        return api.request.parse(scan.text, plain=True, known=known)
    return api.request.parse(body, start=start, plain=True)
