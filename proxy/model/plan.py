"""The values of planning: drafts, steps, facts, notes, ladders and the plan. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from proxy.model.claims import Claims, Repeat
from proxy.model.conventions import NO_CONVENTIONS, Conventions
from proxy.model.conversation import Block, Kind, Message, Prompt
from proxy.model.definitions import NO_DEFINITIONS, Definitions
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
    """What the proxy may do to a request (section 7)."""

    OFF = "off"
    OBSERVE = "observe"
    FIT = "fit"
    STRICT = "strict"


class CandidateModel(msgspec.Struct, frozen=True):
    """A model that `switch_model` may choose: its window, and the meter that counts this request for it."""

    model: str
    window: Window
    meter: Callable[[], Meter]


class Facts(msgspec.Struct, frozen=True):
    """The input of planning besides the draft. A step that lacks knowledge returns a `Want`.

    `knowledge`: answers to earlier wants, by key. `original`: the draft of what the client sent; `plan` sets it.
    `counter`: the upstream counts prompts on request, and may be asked once. `provider_count`: the tokens of what the
    client sent as the upstream counted them (0: it did not), and `provider_meter` a meter of that count. `answered`:
    after a refusal, the largest size that the upstream answered before, in tokens; `refused`: the smallest that it
    refused since (0: none).
    `assuming`: since a refusal, parts of unknown cost count as what they usually cost.
    `claims`: what of the conversation the work needs next, and `conventions`: how agents write; `plan` sets them.
    """

    window: Window
    meter: Meter
    candidates: tuple[CandidateModel, ...] = ()
    knowledge: Mapping[str, Json] = {}
    learned: LearnedLimits = NOTHING_LEARNED
    original: Draft | None = None
    counter: bool = False
    provider_count: int = 0
    provider_meter: Meter | None = None
    answered: int = 0
    refused: int = 0
    assuming: bool = False
    claims: Claims | None = None
    conventions: Conventions = NO_CONVENTIONS


class Want(msgspec.Struct, frozen=True):
    """Knowledge that a step lacks: `kind` says what (a summary), `key` under which name it goes into the facts, and
    `payload` what is needed to get it, in a type of its kind. `parts`: of how many parts it consists, if some of them
    are worth having; `len()` of the knowledge then says how many are known."""

    kind: str
    key: str
    payload: Json = None
    parts: int = 1


class CountRequest(msgspec.Struct, frozen=True):
    """The payload of a want for the upstream's own count of a prompt; `draft` has ours."""

    prompt: Prompt
    draft: Draft


class Drop(msgspec.Struct, frozen=True, gc=False):
    """A message of the client that was removed, and the reason."""

    index: int
    why: str


@dataclass(frozen=True, slots=True)
class Draft:
    """The request as the steps have left it. Immutable: a step returns a new draft. All figures are in tokens.

    `reply`: the reply limit that will be sent (None: the client set none, and none is added). `ladder_floor`: the
    ladder's floor, for a large window. `least`: the smallest reply limit that the request's own options allow. `pins`:
    indices of the messages that the client pinned, which no step changes. `texts`, `apart`, `definitions`: see
    `Prompt`; the meter counts these definitions. `opaque`: there may be media in the messages. `rounding`: what the
    upstream's own count of the prompt has more than the counts of its parts. `prompt`: what the window is compared
    with, which is the longest message where the messages are `apart`. `repeats`: the stubs of ours that refer to later
    results; `plan` resolves them when it is known what is sent.
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
    pins: frozenset[int] = frozenset()
    texts: bool = False
    apart: bool = False
    opaque: bool = False
    rounding: int = 0
    definitions: Definitions = NO_DEFINITIONS
    repeats: tuple[Repeat, ...] = ()

    @property
    def billed(self) -> int:
        """Tokens of all messages and of what is besides them."""
        return self.fixed + sum(b.tokens for b in self.blocks) if self.apart else self.prompt

    @property
    def reserve(self) -> int:
        """Tokens reserved for the reply."""
        return self.default_reserve if self.reply is None else self.reply

    @property
    def floor(self) -> int:
        """The smallest useful reply, in tokens."""
        return max(self.least, self.window.floor(self.ladder_floor))

    @property
    def least_reply(self) -> int:
        """The reply that must fit together with the prompt: the limit that is sent, else the floor."""
        return self.floor if self.reply is None else self.reply

    @property
    def margin(self) -> int:
        """The margin for this prompt, in tokens."""
        return self.window.margin(self.meter.margin).of(self.prompt)

    @property
    def load(self) -> float:
        """The load of the window: prompt and reply as a share of it. A reply without a limit takes the reserve, but no
        more than the prompt leaves, and at least the floor. Over 1 the draft does not fit."""
        if self.reply is None:
            return self.window.load_without_limit(self.prompt, self.default_reserve, self.floor)
        return self.window.load(self.prompt, self.reply)

    @property
    def excess(self) -> int:
        """Tokens by which the draft does not fit; at most 0 if it fits."""
        return self.window.excess(self.prompt, self.least_reply, self.meter.margin)

    @property
    def possible(self) -> bool:
        """Whether the upstream may answer the draft: it fits without margin and floor, or where the window is supposed,
        it is smaller than what was refused."""
        refused = self.window.refused
        if refused is not None and self.prompt + self.window.counted(self.least_reply) < refused:
            return True
        return self.window.excess(self.prompt, min(self.least, self.least_reply), NO_MARGIN) <= 0

    @property
    def too_long(self) -> bool:
        """Whether the upstream would refuse the draft by a window that is known: it does not fit without a cap and
        margin, with all of the reply limit that is sent."""
        window = replace(self.window, tokens=self.window.held)
        return not window.guessed and window.excess(self.prompt, self.reply or self.least, NO_MARGIN) > 0

    @property
    def held(self) -> int:
        """Tokens that a cut leaves free for the reply: the reserve, of which at most half the window counts
        (`clamp_output` lowers the rest), but at least the floor. Where the reply does not count against the window, a
        cut leaves it no more than the default."""
        reserve = min(self.reserve, self.default_reserve) if self.window.separate else self.reserve
        requested = max(reserve, self.window.counted(self.least_reply))
        return min(requested, max(self.floor, int(self.window.tokens * MAX_RESERVE_SHARE)))

    @property
    def room(self) -> int:
        """The largest prompt that fits: the window without `held` and the margin, at most `most_input`."""
        margin = self.window.margin(self.meter.margin)
        room = self.window.tokens - self.held - margin.base
        if (most := self.window.most_input) is not None:
            room = min(room, most)
        return math.floor(room / (1 + margin.share))

    @property
    def fixed(self) -> int:
        """Tokens of the prompt besides its messages."""
        return sum(self.meter.fixed.values()) + self.rounding

    @property
    def messages(self) -> Iterable[Message]:
        """All its messages in order."""
        return (m for block in self.blocks for m in block.messages)

    def with_blocks(self, blocks: Sequence[Block], drops: Iterable[Drop] = ()) -> Draft:
        """The draft with other blocks; its prompt follows from their tokens."""
        prompt = self.fixed + compared([b.tokens for b in blocks], self.apart)
        return replace(self, blocks=tuple(blocks), prompt=prompt, drops=(*self.drops, *drops))

    def with_definitions(self, definitions: Definitions) -> Draft:
        """The draft with other tools; its prompt follows from what they cost."""
        meter = self.meter.with_fields(definitions.fields)
        return replace(self, meter=meter, definitions=definitions).with_blocks(self.blocks)

    def made(self) -> Draft:
        """The draft with every deferred block made. Needed before messages are read or counted exactly."""
        if all(block.later is None for block in self.blocks):
            return self
        return self.with_blocks([block.made() for block in self.blocks])

    def write(self, text: str, why: str) -> Message:
        """A user message of the proxy's own, in the API of the other messages; its tokens are not counted."""
        written = next(iter(self.messages)).format
        return Message(written.write(text), Kind.USER.value, Kind.USER, written, why=why)

    def recount(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages of one block, with their tokens counted again."""
        return tuple(replace(m, tokens=c) for m, c in zip(messages, self.meter.costs(messages), strict=True))


def compared(tokens: Sequence[int], apart: bool) -> int:
    """The tokens of blocks that a window is compared with: of all, or of the longest where they are `apart`."""
    return max(tokens, default=0) if apart else sum(tokens)


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
    """A step of a ladder, with its parameters bound.

    `at`: the load from which the step acts even if the draft fits. `of_original`: compare the load of what the client
    sent instead of the draft's. `models`: the candidates that the step needs in `Facts`. `ahead`: returns, from its own
    `at`, the wants of later turns, so that they can be fetched in the background.
    """

    step: str
    apply: Step
    at: float | None = None
    of_original: bool = False
    models: tuple[str, ...] = ()
    ahead: LadderStep | None = None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps in order, gentlest first, and the settings of the ladder. Reserve and floor are in tokens.
    `conventions`: how agents write, by which claims are found."""

    name: str
    steps: tuple[LadderStep, ...]
    on_unfit: str = "reject"
    unknown: str = "learn"
    default_reserve: int = DEFAULT_RESERVE
    floor: int = FLOOR
    conventions: Conventions = NO_CONVENTIONS
    least_at: float = field(init=False)  # the load below which no step acts on a request that fits
    least_ahead: float = field(init=False)  # the load below which no step has wants of later turns
    models: tuple[str, ...] = field(init=False)  # that its steps may switch to, in order, without duplicates

    def __post_init__(self) -> None:
        object.__setattr__(self, "least_at", _least(self.steps))
        object.__setattr__(self, "models", tuple({name: None for step in self.steps for name in step.models}))
        object.__setattr__(self, "least_ahead", _least([r.ahead for r in self.steps if r.ahead is not None]))

    def with_steps(self, steps: tuple[LadderStep, ...], on_unfit: str = "") -> Ladder:
        """The same ladder with other steps."""
        return replace(self, steps=steps, on_unfit=on_unfit or self.on_unfit)

    def with_models(self, allowed: Callable[[str], bool]) -> Ladder:
        """The same ladder, which moves to no other models than those that are allowed."""
        return self.with_steps(
            tuple([replace(step, models=tuple(filter(allowed, step.models))) for step in self.steps])
        )


def _least(steps: Iterable[LadderStep]) -> float:
    return min((ladder_step.at for ladder_step in steps if ladder_step.at is not None), default=math.inf)


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of planning: the draft to send and the notes of the steps, or the `want` that must be fetched first.

    `trusting`: the window or the cost of a part is unknown, and the upstream decides whether the request fits.
    `pieces`: the blocks of each request that is sent instead of this one, if there are several. `drafts`: what each
    step left, in the order of the notes; a block of them may still be deferred.
    """

    before: Draft
    draft: Draft
    notes: tuple[Note, ...] = ()
    want: Want | None = None
    trusting: bool = False
    pieces: tuple[tuple[Block, ...], ...] = ()
    drafts: tuple[Draft, ...] = field(default=(), compare=False, repr=False)

    def with_draft(self, draft: Draft) -> Plan:
        """The same plan for another draft."""
        return replace(self, draft=draft)

    @property
    def fits(self) -> bool:
        """Whether the draft fits; True if `trusting`."""
        return self.trusting or self.draft.excess <= 0

    @property
    def possible(self) -> bool:
        """Whether the draft may be sent: it fits, or would fit without margin and floor."""
        return self.trusting or self.draft.possible

    @property
    def changed(self) -> bool:
        """Whether anything but the client's own bytes will be sent."""
        return bool(self.notes)
