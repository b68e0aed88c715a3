"""What whole conversations cost, remembered by their bytes: one that only grew costs what is new; it plans nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from proxy.fit.blocks import runs
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.conversation import Message, Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Margin, Quality
from proxy.model.scan import PrefixDigest, Scan, Total
from proxy.request.facts import Knowledge
from proxy.tokens.counting_key import SEED
from proxy.tokens.meter import unit_of

MOST = 100_000  # conversations' ends that are remembered


@dataclass(frozen=True, slots=True)
class Frame:
    """What a request costs besides its messages, and how far its count may be trusted."""

    fixed: int
    margin: Margin
    quality: Quality
    unit: float | None

    def total(self, tokens: int, messages: int) -> Total:
        """The total of a prompt whose messages cost so much."""
        return Total(self.fixed + tokens, self.margin, self.quality, messages, self.unit)


@dataclass(frozen=True, slots=True)
class Part:
    """What is not known of a conversation: its messages from `start` on; all before them cost `before` tokens."""

    prompt: Prompt
    start: int = 0
    before: int = 0

    @property
    def new(self) -> list[Message]:
        """The messages to be counted."""
        return [message for message in self.prompt.messages if message.index >= self.start]


@dataclass(slots=True)
class Totals:
    """Two bounded memories: frames, and tokens of messages, by the digest of all bytes so far."""

    knowledge: Knowledge
    _frames: Bounded[int, Frame] = field(default_factory=lambda: Bounded(MOST))
    _tokens: Bounded[int, int] = field(default_factory=lambda: Bounded(MOST))

    def marks(self, scan: Scan, learned: LearnedLimits = NOTHING_LEARNED) -> PrefixDigest | None:
        """Digests of the messages and of all else that their counts depend on; none where some part's cost is not in
        the bytes."""
        if scan.marks is None:
            return None
        return scan.marks(xxh3_64_intdigest(scan.head, SEED ^ self.knowledge.counted_as(scan.model, learned)))

    def known(self, marks: PrefixDigest | None) -> Total | None:
        """The total of a request all of whose bytes were counted before; takes a microsecond."""
        if marks is None:
            return None
        frame = self._frames.get(marks.first)
        tokens = self._tokens.get(marks.latest[-1])
        if frame is None or tokens is None:
            return None
        return frame.total(tokens, marks.count)

    def unknown(self, api: Api, marks: PrefixDigest | None, body: bytes, scan: Scan) -> Part:
        """The part of a conversation that was not counted yet. Raises `NotUnderstood`."""
        if marks is None:
            return Part(api.parse(body))
        for back in range(2, len(marks.latest) + 1):
            before = self._tokens.get(marks.latest[-back])
            if before is not None:
                start = marks.count - back + 1
                rest = _from(api, start, body, scan)
                first = next(message for message in rest.messages if message.index >= start)
                if not first.answers:  # a result belongs to the block before it, whose cost changes with it
                    return Part(rest, start, before)
        return Part(api.parse(body, plain=True))

    def count(self, marks: PrefixDigest | None, part: Part, learned: LearnedLimits = NOTHING_LEARNED) -> Total:
        """Counts what is new and remembers the whole. May take long where much is new: then it is for a thread."""
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
                self._tokens.put(marks.latest[-2], tokens - newest)  # the same may be asked something else
        return frame.total(tokens, part.start + len(new))


def _from(api: Api, start: int, body: bytes, scan: Scan) -> Prompt:
    """The messages from `start` on, and the first instructions; read of what is new alone, where that is all."""
    known = scan.known
    if known is not None and known.seen.count == start:
        return api.parse(scan.text, plain=True, known=known)
    return api.parse(body, start=start, plain=True)
