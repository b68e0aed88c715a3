"""A request on its way down the ladder: drafts, steps, facts, notes, and the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from proxy.model.conversation import Block, Kind, Message
from proxy.model.lenient_json import Json
from proxy.model.limits import (
    DEFAULT_RESERVE,
    FLOOR,
    MAX_RESERVE_SHARE,
    NO_MARGIN,
    NOTHING_LEARNED,
    LearnedLimits,
    Window,
)
from proxy.model.ports import Meter
from proxy.model.structs import replace


class Mode(StrEnum):
    """What may be done to a request (section 7)."""

    OFF = "off"
    OBSERVE = "observe"
    FIT = "fit"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class CandidateModel:
    """A model that `switch_model` may choose: its window, and the meter that counts this request for it."""

    model: str
    window: Window
    meter: Callable[[], Meter]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known when a plan is made. What is not known yet is asked for with a `Want`.

    `original` is the draft of what the client sent, for steps that go back to it; `plan` sets it.
    """

    window: Window
    meter: Meter
    candidates: tuple[CandidateModel, ...] = ()
    knowledge: Mapping[str, Json] = field(default_factory=dict)
    learned: LearnedLimits = NOTHING_LEARNED
    original: Draft | None = None


@dataclass(frozen=True, slots=True)
class Want:
    """Knowledge that a step lacks: `kind` says what (a summary), `key` under which name it goes into the facts, and
    `payload` what is needed to get it, in a type of its kind."""

    kind: str
    key: str
    payload: Json = None


class Drop(msgspec.Struct, frozen=True, gc=False):
    """A message of the client's that is no longer sent, and why."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A request on its way down the ladder. Steps return another one; they never change this one.

    `reply` is the limit that will be sent (None: the client set none, and none is added). `ladder_floor` is the
    ladder's least reply worth asking for, in a large window; `least` the least that the request's own options allow.
    """

    model: str
    window: Window
    meter: Meter
    blocks: tuple[Block, ...]
    prompt: int
    reply: int | None = None
    ladder_floor: int = FLOOR
    least: int = 1
    default_reserve: int = DEFAULT_RESERVE
    needs: frozenset[str] = frozenset()
    drops: tuple[Drop, ...] = ()

    @property
    def reserve(self) -> int:
        """Room kept for the reply."""
        return self.default_reserve if self.reply is None else self.reply

    @property
    def floor(self) -> int:
        """The least reply worth asking for."""
        return max(self.least, self.window.floor(self.ladder_floor))

    @property
    def least_reply(self) -> int:
        """The reply that must fit beside the prompt: what we send, or the floor where the client set none."""
        return self.floor if self.reply is None else self.reply

    @property
    def margin(self) -> int:
        """The gap kept beside this prompt."""
        return self.window.margin(self.meter.margin).of(self.prompt)

    @property
    def load(self) -> float:
        """How full the window would be: `(prompt + reserve) / window`."""
        return (self.prompt + self.reserve) / self.window.tokens

    @property
    def excess(self) -> int:
        """Tokens by which it does not fit; at most 0 means that it fits."""
        return self.window.excess(self.prompt, self.least_reply, self.meter.margin)

    @property
    def possible(self) -> bool:
        """Whether its prompt alone leaves room for a reply: then the upstream may answer it, though neither margin nor
        floor be kept."""
        return self.window.excess(self.prompt, min(self.least, self.least_reply), NO_MARGIN) <= 0

    @property
    def held(self) -> int:
        """What a cut leaves free for the reply: of a reserve over half the window only half counts (the clamp gives
        back the rest of it), but never less than the floor."""
        wanted = max(self.reserve, self.least_reply)
        return min(wanted, max(self.floor, int(self.window.tokens * MAX_RESERVE_SHARE)))

    @property
    def room(self) -> int:
        """What the prompt may take: the largest that fits beside what is held and the margin, and the model's own
        input bound."""
        margin = self.window.margin(self.meter.margin)
        room = self.window.tokens - self.held - margin.base
        if self.window.max_input is not None:
            room = min(room, self.window.max_input)
        return math.floor(room / (1 + margin.share))

    @property
    def fixed(self) -> int:
        """What the prompt costs besides its messages."""
        return sum(self.meter.fixed.values())

    @property
    def messages(self) -> Iterable[Message]:
        """All its messages in order."""
        return (m for block in self.blocks for m in block.messages)

    def with_blocks(self, blocks: Sequence[Block], drops: Iterable[Drop] = ()) -> Draft:
        """The same draft with other blocks, its prompt counted from theirs."""
        prompt = self.fixed + sum(b.tokens for b in blocks)
        return replace(self, blocks=tuple(blocks), prompt=prompt, drops=(*self.drops, *drops))

    def made(self) -> Draft:
        """The same draft with every block as it will be sent. What looks into messages or counts to the token needs
        this; what only weighs blocks does not."""
        if all(block.later is None for block in self.blocks):
            return self
        return self.with_blocks([block.made() for block in self.blocks])

    def write(self, text: str, why: str) -> Message:
        """A user message of our own, in the API of the others. Not counted."""
        written = next(iter(self.messages)).format
        return Message(written.write(text), Kind.USER.value, Kind.USER, written, why=why)

    def recount(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages of one block with their costs counted anew."""
        return tuple(replace(m, tokens=c) for m, c in zip(messages, self.meter.costs(messages), strict=True))


class Note(msgspec.Struct, frozen=True):
    """What one step did: the prompt, the reply limit and the model before and after it."""

    step: str
    tokens_before: int
    tokens_after: int
    reply_before: int | None = None
    reply_after: int | None = None
    model_before: str = ""
    model_after: str = ""


Step = Callable[[Draft, Facts], "Draft | Want"]


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A step in its place in a ladder. `at` is the load from which it acts though the draft may still fit;
    `of_original` that this load is of what the client sent, not of the draft as it stands; `models` are those that
    it may choose, whose windows and counts it must be given. `ahead` tells, from an `at` of its own on, what the step
    will want at later turns, so that it can be made ready while nobody waits for it."""

    step: str
    apply: Step
    at: float | None = None
    of_original: bool = False
    models: tuple[str, ...] = ()
    ahead: LadderStep | None = None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ordered steps, gentlest first, and what holds for all of them."""

    name: str
    steps: tuple[LadderStep, ...]
    on_unfit: str = "reject"
    unknown: str = "learn"
    default_reserve: int = DEFAULT_RESERVE
    floor: int = FLOOR
    least_at: float = field(init=False)  # the load under which no step acts on a request that fits
    least_ahead: float = field(init=False)  # the load under which no step looks ahead

    def __post_init__(self) -> None:
        object.__setattr__(self, "least_at", _least(self.steps))
        object.__setattr__(self, "least_ahead", _least([r.ahead for r in self.steps if r.ahead is not None]))


def _least(steps: Iterable[LadderStep]) -> float:
    return min((ladder_step.at for ladder_step in steps if ladder_step.at is not None), default=math.inf)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be sent, and what was done to come there; or the knowledge that is wanted first."""

    before: Draft
    draft: Draft
    notes: tuple[Note, ...] = ()
    want: Want | None = None
    trusting: bool = False

    @property
    def fits(self) -> bool:
        """Whether what is to be sent fits, or (`trusting`) nobody knows the window and the upstream shall tell."""
        return self.trusting or self.draft.excess <= 0

    @property
    def possible(self) -> bool:
        """Whether it may go out: it fits, or only the floor or the margin say that it does not."""
        return self.trusting or self.draft.possible

    @property
    def changed(self) -> bool:
        """Whether anything but the client's own bytes must be sent."""
        return bool(self.notes)
