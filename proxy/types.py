"""The vocabulary: the values that every other module speaks in; it imports nothing of ours and decides nothing.

Units: every count is in tokens of the upstream's own tokenizer unless the name says bytes, characters or seconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

Json = Any
T = TypeVar("T")
DEFAULT_RESERVE = 3000  # seed 000: the reply that a request is thought to want where it sets no limit
STARVING = 0.5  # a reply limit over half the window (some clients ask for all of it) must not starve the prompt
FLOOR = 500  # seed 001: the least reply worth asking for
LONGEST_NAME = 200  # characters of a model's name: longer ones are nobody's, and clients choose them
NAMELESS = "(a name of over 200 characters)"  # what all of those are known by
UNKNOWN_WINDOW = 8192  # seed 000: what a model counts as that nobody knows
# Floor and margin are constants that suit large windows. In a window under this many tokens the floor is at most a
# 16th of it (500 of 8,000) and the margin's constant part at most a 64th, so that what the upstream answers is not cut.
SMALL_WINDOW = 8_000
FLOOR_PART, MARGIN_PART = 16, 64
# Made once: naming the type in every call costs up to four times more.
FIELDS = msgspec.json.Decoder(dict[str, Any])
RAWS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def name_of(model: str) -> str:
    """What a model is known by: its name, or for all names that are too long to be any model's the same."""
    return model if len(model) <= LONGEST_NAME else NAMELESS


def replace(value: T, /, **changes: Any) -> T:
    """A copy of a frozen value with some fields changed, whichever kind it is of. What there are thousands of in a
    request (messages, blocks) are msgspec's structs, which are made ten times faster than dataclasses."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    changed: T = dataclasses.replace(value, **changes)  # type: ignore[type-var]
    return changed


class Mode(StrEnum):
    """What may be done to a request (section 7)."""

    OFF = "off"
    OBSERVE = "observe"
    FIT = "fit"
    STRICT = "strict"


class Quality(StrEnum):
    """How far a count may be trusted."""

    EXACT = "exact"
    CALIBRATED = "calibrated"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Window:
    """What a model can hold: `tokens` in all, and where known its own bounds on prompt and reply.

    `source` says where we know it from; `guessed` that nobody knew it. `can` names what the model is known to be
    able to do (tools, vision, schema, ...); None where nothing is known. `limit_field` is the one field for a reply
    limit that the model takes; None where either will do. `alternates` says whether it takes user and assistant in turn
    only; None where nobody says.
    """

    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    source: str = "default"
    guessed: bool = False
    can: frozenset[str] | None = None
    limit_field: str | None = None
    alternates: bool | None = None

    def floor(self, floor: int) -> int:
        """The least reply worth asking for in this window, where it is `floor` tokens in a large one."""
        return floor if self.tokens >= SMALL_WINDOW else max(1, min(floor, self.tokens // FLOOR_PART))

    def margin(self, margin: Margin) -> Margin:
        """The margin kept in this window, where it is `margin` in a large one."""
        if self.tokens >= SMALL_WINDOW or margin.base <= self.tokens // MARGIN_PART:
            return margin
        return Margin(self.tokens // MARGIN_PART, margin.share)

    def excess(self, prompt: int, reply: int, margin: Margin) -> int:
        """Tokens by which a prompt does not fit beside a reply; at most 0 means that it fits (section 1). Whatever
        compares a request with a window asks here."""
        gap = self.margin(margin)
        over = prompt + reply + gap.of(prompt) - self.tokens
        if self.max_input is None:
            return over
        return max(over, prompt + gap.of(prompt) - gap.base - self.max_input)


@dataclass(frozen=True, slots=True)
class Margin:
    """The gap kept between prompt + reply and the window: `base` tokens and a `share` of the prompt. A small window
    keeps less (`Window.margin`)."""

    base: int = 100
    share: float = 0.0

    def of(self, prompt: int) -> int:
        """The margin in tokens beside a prompt of so many."""
        return self.base + math.ceil(self.share * prompt)


NO_MARGIN = Margin(0)


class Call(msgspec.Struct, frozen=True, gc=False):
    """One tool call of an assistant message: the id that its result must name, and the function's name."""

    id: str
    name: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as it would be sent: `raw` is its JSON object, untouched unless a step wrote it anew.

    `index` is its place in the client's list (-1: a message of our own), `answers` the call id that a tool
    result belongs to, `tokens` its share of the prompt, `why` the reason a step gave for what it did to it.
    """

    raw: bytes
    role: str
    index: int = -1
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    tokens: int = 0
    why: str = ""

    def fields(self) -> dict[str, Json]:
        """The message parsed. Raises `msgspec.MsgspecError` where it is no JSON object."""
        return FIELDS.decode(self.raw)

    def text(self) -> str:
        """All its text: the content, text parts joined."""
        return text_of(self.fields().get("content"))

    def with_content(self, content: Json, why: str) -> Message:
        """The same message with another content; every other key keeps its bytes. Its tokens are not counted anew."""
        parts = RAWS.decode(self.raw)
        parts["content"] = msgspec.Raw(msgspec.json.encode(content))
        return replace(self, raw=msgspec.json.encode(parts), why=why)


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or its text parts joined; an image has none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))


class Block(msgspec.Struct, frozen=True, gc=False):
    """The smallest run of messages that may go without breaking the protocol (section 1).

    `later` makes the block that is to stand in its place, in `most` tokens as a rule: a step decided that, but other
    steps may yet drop it, and few of those that are to be shortened stay.
    """

    messages: tuple[Message, ...]
    pinned: bool = False
    later: Callable[[], Block] | None = None
    most: int = 0

    @property
    def tokens(self) -> int:
        """What the block adds to the prompt; about, where it is not made yet."""
        return sum(m.tokens for m in self.messages) if self.later is None else self.most

    @property
    def has_results(self) -> bool:
        """Whether tool results stand in it."""
        return any(m.answers is not None for m in self.messages)

    def made(self) -> Block:
        """The block as it will be sent."""
        return self if self.later is None else self.later()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a client asked, understood: `head` is every top-level field but the messages, raw, in its order.

    `ask` is the reply limit that the client set, in the field `ask_field`; `reply_floor` the least that this request's
    own options allow (a thinking budget); `needs` what a model must be able to do; `pins` further message indices the
    client pinned; `opaque` that parts are in it whose cost no count can prove. How many answers it asks for does not
    matter: they share the prompt, but each has the window to itself.
    """

    model: str
    messages: tuple[Message, ...]
    head: Mapping[str, bytes] = field(default_factory=dict)
    ask: int | None = None
    ask_field: str = "max_tokens"
    reply_floor: int = 0
    needs: frozenset[str] = frozenset()
    stream: bool = False
    pins: frozenset[int] = frozenset()
    opaque: bool = False


class Marks(msgspec.Struct, frozen=True):
    """Digests of the messages of a conversation, each of it and of all before it, under a `seed`: the first, how many
    there are, the latest ones (a bounded number), and the digest's `state`, to be copied and gone on with."""

    seed: int
    first: int
    count: int
    latest: Sequence[int]
    state: Any


class Seen(msgspec.Struct, frozen=True):
    """What a look at messages one after another found so far.

    `opaque` and `heard` say that some cost is not bounded by bytes, `surplus` is by how much the others may cost more
    than their bytes. `led` says that instructions stand first, `late` that there are some behind other messages alone,
    `parallel` that the latest calls are several, `keyed` that a message bears the key of our own.
    """

    count: int = 0
    opaque: bool = False
    heard: bool = False
    surplus: int = 0
    late: bool = False
    parallel: bool = False
    keyed: bool = False
    led: bool = False


class Stretch(msgspec.Struct, frozen=True):
    """The messages that a body begins with, read before: they stand between the bytes `start` and `end`. `lead` is the
    JSON of the first one where that holds instructions."""

    start: int
    end: int
    lead: bytes
    seen: Seen
    marks: Marks


class Glance(msgspec.Struct, frozen=True):
    """What a first look at a body tells without reading its messages: enough to prove that it fits.

    `most` bounds its prompt tokens from above by its bytes; None where bytes prove nothing (images, `$ref`, ...).
    `head` are the bytes that what the prompt costs besides its messages depends on; `marks` makes digests of its
    messages under a seed; None where a count cannot be kept by bytes (images). `text` is the body without the messages
    that were `known`.
    """

    model: str
    reserve: int | None
    stream: bool
    most: int | None
    head: bytes = b""
    marks: Callable[[int], Marks | None] | None = None
    seen: Seen = Seen()
    known: Stretch | None = None
    text: bytes = b""

    @property
    def new(self) -> int:
        """How many bytes had to be read."""
        return len(self.text)


class Total(msgspec.Struct, frozen=True):
    """What a request costs that was counted but not planned: all that can be said of one that need not be cut.

    `unit` is how many of the model's tokens one of its encoding was taken for; None where the count cannot teach.
    """

    prompt: int
    margin: Margin
    quality: Quality
    messages: int
    unit: float | None = None


class Meter(Protocol):
    """Counts for one request: bound to its model, its tools and whatever else its head adds to the prompt.

    Every method is a pure function of its arguments; what it remembers only makes it faster.
    """

    @property
    def quality(self) -> Quality:
        """How far its counts may be trusted."""

    @property
    def margin(self) -> Margin:
        """The gap that counts of this quality need."""

    @property
    def fixed(self) -> Mapping[str, int]:
        """What the prompt costs besides its messages, by what takes it: base, tools, schema, ..."""

    def text(self, text: str) -> int:
        """Tokens of a bare text."""

    def cut(self, text: str, tokens: int, *, tail: bool = False) -> str:
        """The longest head (or tail) of a text that costs at most so many tokens."""

    def costs(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """What each message of one block adds to the prompt; the sum is exact, shares within the block may not be."""

    def scaled(self, ratio: float) -> Meter:
        """A meter whose counts are this one's times a ratio that an upstream taught us."""

    def pending(self, messages: Sequence[Message]) -> tuple[bytes, bytes] | None:
        """None where this block's cost is remembered; else the key it will be remembered by, and the bytes it
        depends on (for a keyed hash that may leave the process)."""


class Memory(Protocol):
    """Where a meter remembers counts: a bounded map of a short key to the costs of one block's messages."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """What was remembered, or None."""

    def put(self, key: bytes, value: tuple[int, ...]) -> object:
        """Remember it; the oldest may go."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A model that `switch_model` may choose: its window, and the meter that counts this request for it."""

    model: str
    window: Window
    meter: Callable[[], Meter]


@dataclass(frozen=True, slots=True)
class Correction:
    """What answers told of a model's counts: `ratio` is how many of its tokens one of the encoding's proved to be
    worth, `share` the margin that such counts need, as a share of the prompt; None: the family's own."""

    ratio: float
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What an upstream itself taught us about one of its models: its window, its bound on the prompt, and by how
    much its counts differ from ours (`scale`, from refusals, and `correction`, from answers). `supposed` says that no
    figure was named for the window: it was worked out from what was too much; `alternates` that it takes user and
    assistant in turn only."""

    window: int | None = None
    max_input: int | None = None
    scale: float = 1.0
    supposed: bool = False
    alternates: bool = False
    correction: Correction | None = None

    @property
    def bounds(self) -> bool:
        """Whether it says anything of the window."""
        return self.window is not None or self.max_input is not None or self.alternates


NOTHING_LEARNED = Learned()


@dataclass(frozen=True, slots=True)
class Proof:
    """What one refusal proved, and from what: `value` is the limit in tokens, or how much more than we an upstream
    counts (0: taken back), `at` the time in seconds since 1970. `rule` is the row that knew the refusal, `counted` our
    count of the refused prompt, of the given `quality`, `reply` the reply that it asked for (0: none), and `named` the
    upstream's own count of the prompt (0: it named none)."""

    value: float
    at: float
    rule: str = ""
    counted: int = 0
    reply: int = 0
    named: int = 0
    quality: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known when a plan is made. What is not known yet is asked for with a `Want`.

    `original` is the draft of what the client sent, for steps that go back to it; `plan` sets it.
    """

    window: Window
    meter: Meter
    rivals: tuple[Rival, ...] = ()
    knowledge: Mapping[str, Json] = field(default_factory=dict)
    learned: Learned = NOTHING_LEARNED
    original: Draft | None = None


@dataclass(frozen=True, slots=True)
class Want:
    """Knowledge that a step lacks: `kind` says what (a summary), `key` under which name it goes into the facts."""

    kind: str
    key: str
    payload: Mapping[str, Json] = field(default_factory=dict)


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
        return min(wanted, max(self.floor, int(self.window.tokens * STARVING)))

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
class Rung:
    """A step in its place in a ladder. `at` is the load from which it acts though the draft may still fit;
    `of_original` that this load is of what the client sent, not of the draft as it stands; `models` are those that
    it may choose, whose windows and counts it must be given. `ahead` tells, from an `at` of its own on, what the step
    will want at later turns, so that it can be made ready while nobody waits for it."""

    step: str
    apply: Step
    at: float | None = None
    of_original: bool = False
    models: tuple[str, ...] = ()
    ahead: Rung | None = None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ordered steps, gentlest first, and what holds for all of them."""

    name: str
    rungs: tuple[Rung, ...]
    on_unfit: str = "reject"
    unknown: str = "learn"
    default_reserve: int = DEFAULT_RESERVE
    floor: int = FLOOR
    least_at: float = field(init=False)  # the load under which no step acts on a request that fits
    least_ahead: float = field(init=False)  # the load under which no step looks ahead

    def __post_init__(self) -> None:
        object.__setattr__(self, "least_at", _least(self.rungs))
        object.__setattr__(self, "least_ahead", _least([r.ahead for r in self.rungs if r.ahead is not None]))


def _least(rungs: Iterable[Rung]) -> float:
    return min((rung.at for rung in rungs if rung.at is not None), default=math.inf)


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


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage of an error: its words, and those next to it. `figure` says that it is a number that was read."""

    words: tuple[str, ...]
    before: str = ""
    after: str = ""
    figure: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An upstream's answer that the request was too long, with whatever figures it named.

    `bounds` says what `limit` limits: the `window`, only the `input`, or what says nothing of a window: the `body` in
    bytes, or this `request` alone, in tokens; `roles` that no length was refused, but roles that do not alternate.
    `at_least` marks a prompt count that the upstream cut short and so only bounds from below. `rule` is the row of
    rules/refusals.toml that knew it. `quotes` are the words and figures that it was known by: what a client sent itself
    proves nothing.
    """

    rule: str
    limit: int | None = None
    bounds: str = "window"
    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    excess: int | None = None
    at_least: bool = False
    quotes: tuple[Quote, ...] = field(default=(), compare=False, repr=False)


class Usage(msgspec.Struct, frozen=True):
    """What the upstream said it counted."""

    prompt: int
    completion: int = 0
    cached: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """All that is to be told of one request once it is over; holds no content and no key. Times in seconds.

    `notes` is what was done to what was sent, `planned` what would have been done where the mode only observes. `path`
    is without its query and without what may be an id; `attempts` counts requests to the upstream, `request_id` is the
    upstream's or else the client's own. Extra calls are those of our own for this request, as far as they were over.
    """

    endpoint: str
    result: str
    status: int
    mode: str = ""
    ladder: str = ""
    model: str = ""
    model_sent: str = ""
    window: int = 0
    window_source: str = ""
    quality: str = ""
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    reply_asked: int | None = None
    reply_sent: int | None = None
    load_before: float | None = None
    load_after: float | None = None
    messages_in: int = 0
    messages_sent: int = 0
    notes: tuple[Note, ...] = ()
    refusals: tuple[str, ...] = ()
    healed: bool = False
    usage: Usage | None = None
    uncounted: bool = False  # its bytes proved that it fits, and there was no time to count it
    stream: bool = False
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    truncated: bool = False  # by the upstream, which says nothing but that it read far fewer tokens
    bytes_in: int = 0  # that a WebSocket's client sent through its tunnel
    bytes_out: int = 0  # that it was sent
    path: str = ""
    attempts: int = 0
    request_id: str = ""
    planned: tuple[Note, ...] = ()
    extra_calls: int = 0
    extra_tokens: int = 0
    extra_seconds: float = 0.0
