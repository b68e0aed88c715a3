"""What whole conversations cost, remembered by their bytes: one that only grew costs what is new; it plans nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from proxy.fit.blocks import runs
from proxy.serve.knowledge import Knowledge
from proxy.tokens.meter import unit_of
from proxy.tokens.terms import SEED
from proxy.types import Glance, Margin, Message, Prompt, Quality, Total
from proxy.wire.endpoints import chat

MOST = 100_000  # conversations' ends that are remembered: some 20 MB
LOOK_BACK = 64  # messages that one turn may add; a conversation that grew by more is counted message by message


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
    """Two bounded memories of two generations: frames, and tokens of messages, by the digest of all bytes so far."""

    knowledge: Knowledge
    _frames: dict[int, Frame] = field(default_factory=dict)
    _old_frames: dict[int, Frame] = field(default_factory=dict)
    _tokens: dict[int, int] = field(default_factory=dict)
    _old_tokens: dict[int, int] = field(default_factory=dict)

    def marks(self, glance: Glance) -> Sequence[int]:
        """A digest for each message, of all that its count and the counts before it depend on; none where some part's
        cost is not in the bytes."""
        if glance.marks is None:
            return ()
        return glance.marks(xxh3_64_intdigest(glance.head, SEED ^ self.knowledge.counted_as(glance.model)))

    def known(self, marks: Sequence[int]) -> Total | None:
        """The total of a request all of whose bytes were counted before; takes a microsecond."""
        if not marks:
            return None
        frame = self._frames.get(marks[0]) or self._old_frames.get(marks[0])
        tokens = self._tokens_at(marks[-1])
        if frame is None or tokens is None:
            return None
        return frame.total(tokens, len(marks))

    def unknown(self, marks: Sequence[int], body: bytes) -> Part:
        """The part of a conversation that was not counted yet. Raises `NotUnderstood`."""
        for place in range(len(marks) - 2, max(-1, len(marks) - LOOK_BACK), -1):
            before = self._tokens_at(marks[place])
            if before is not None:
                rest = chat.parse(body, start=place + 1, plain=True)
                first = next(message for message in rest.messages if message.index > place)
                if first.answers is None:  # a result belongs to the block before it, whose cost changes with it
                    return Part(rest, place + 1, before)
        return Part(chat.parse(body, plain=bool(marks)))

    def count(self, marks: Sequence[int], part: Part) -> Total:
        """Counts what is new and remembers the whole. May take long where much is new: then it is for a thread."""
        meter = self.knowledge.meter(part.prompt, part.prompt.model)
        new = part.new
        tokens = part.before + sum(sum(meter.costs(run)) for run in runs(new))
        frame = Frame(sum(meter.fixed.values()), meter.margin, meter.quality, unit_of(meter))
        if marks:
            self._remember(marks, frame, tokens)
        return frame.total(tokens, part.start + len(new))

    def _tokens_at(self, mark: int) -> int | None:
        found = self._tokens.get(mark)
        return self._old_tokens.get(mark) if found is None else found

    def _remember(self, marks: Sequence[int], frame: Frame, tokens: int) -> None:
        if len(self._tokens) >= MOST // 2:
            self._old_tokens, self._tokens = self._tokens, {}
        if len(self._frames) >= MOST // 2:
            self._old_frames, self._frames = self._frames, {}
        self._tokens[marks[-1]] = tokens
        self._frames[marks[0]] = frame
