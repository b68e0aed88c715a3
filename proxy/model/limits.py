"""The limits of a model: windows, margins and learned limits, in tokens of the upstream's own tokenizer.

`Window.excess` is the one inequality: every comparison of a request with a window uses it, or `Window.fits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec.structs import replace

DEFAULT_RESERVE = 3000  # seed 000: the reserve for a request without a reply limit
# Some clients set a reply limit as large as the window. It reduces the room by at most this share of the window.
MAX_RESERVE_SHARE = 0.5
# Of a limit over that share, where a run is cut and the cut stays: at a depth of 0.65 the prompt keeps half.
LARGE_RESERVE_SHARE = 0.25
FLOOR = 500  # seed 001: the smallest useful reply
UNKNOWN_WINDOW = 8192  # seed 000: the window of an unknown model
GUESS = "guess"  # the source of the window of a model whose name is unknown, or only like those of known ones
# Floor and margin are constants for large windows. In a window below this many tokens the floor is at most a 16th of it
# (500 of 8,000) and the base of the margin at most a 25th (100 of 2,500): what the upstream would answer is not
# cut.
SMALL_WINDOW = 8_000
FLOOR_PART, MARGIN_PART = 16, 25


class Quality(StrEnum):
    """The accuracy of a count; the margin depends on it."""

    EXACT = "exact"
    CALIBRATED = "calibrated"
    ESTIMATED = "estimated"


class Window(msgspec.Struct, frozen=True, gc=False):
    """The window of a model: `tokens` of prompt and reply together; `max_input`, `max_output`: of each alone, if known.

    `source`: where the figures are from. `guessed`: the model is unknown. `can`: the model's capabilities (tools,
    vision, schema, ...); None if unknown. `limit_field`: the only field that the model accepts for a reply limit; None
    if it accepts either. `alternates`: user and assistant must alternate; None if unknown. `separate`: the reply does
    not count, because the model writes until the window is full. `binds`: the reasoning in a conversation is only valid
    behind the same messages; None if unknown. `requires_reasoning`: a request without the reasoning of earlier turns is
    refused. `uncapped`: the tokens that the model itself holds; None if no cap made
    `tokens` smaller.
    `max_inputs`, `max_together`: of a model of embeddings, the inputs of one request, and the tokens of all of them.
    `refused`: where `tokens` is supposed, the smallest prompt with its reply that was refused; None if unknown.
    `effective`: the longest prompt that the model answers well, as somebody wishes; a plan may do without it
    (`proxy.fit.effective`), and nothing is refused for it. None: as long as the window.
    """

    tokens: int
    max_input: int | None = None
    max_output: int | None = None
    source: str = "default"
    guessed: bool = False
    can: frozenset[str] | None = None
    limit_field: str | None = None
    alternates: bool | None = None
    separate: bool = False
    binds: bool | None = None
    requires_reasoning: bool = False
    uncapped: int | None = None
    max_inputs: int | None = None
    max_together: int | None = None
    refused: int | None = None
    effective: int | None = None

    @property
    def most_input(self) -> int | None:
        """The longest prompt, whatever the reply; None if only the window bounds it."""
        bounds = [bound for bound in (self.max_input, self.effective) if bound is not None]
        return min(bounds, default=None)

    @property
    def held(self) -> int:
        """The tokens that the model itself holds."""
        return self.tokens if self.uncapped is None else self.uncapped

    def floor(self, floor: int) -> int:
        """The smallest useful reply in this window; `floor` is that of a large window."""
        return floor if self.tokens >= SMALL_WINDOW else max(1, min(floor, self.tokens // FLOOR_PART))

    def margin(self, margin: Margin) -> Margin:
        """The margin in this window; `margin` is that of a large window."""
        if self.tokens >= SMALL_WINDOW or margin.base <= self.tokens // MARGIN_PART:
            return margin
        return Margin(self.tokens // MARGIN_PART, margin.share)

    def counted(self, reply: int) -> int:
        """The tokens of a reply limit, or of a reserve, that count against the window."""
        return 0 if self.separate else reply

    def load(self, prompt: int, reserve: int) -> float:
        """The load of the window: `(prompt + reserve) / tokens`, where the reply counts."""
        return (prompt + (0 if self.separate else reserve)) / self.tokens

    def load_without_limit(self, prompt: int, reserve: int, floor: int) -> float:
        """The load where the client set no limit: the reply takes no more of the reserve than the prompt leaves, and at
        least the floor. Over 1 only where that does not fit."""
        return min(self.load(prompt, reserve), max(1.0, self.load(prompt, floor)))

    def excess(self, prompt: int, reply: int, margin: Margin) -> int:
        """Tokens by which prompt, reply and margin exceed the window; the prompt fits if the result is at most 0."""
        own = self.margin(margin)
        over = prompt + (0 if self.separate else reply) + own.of(prompt) - self.tokens
        if self.max_input is None and self.effective is None:
            return over
        return max(over, prompt + own.of(prompt) - own.base - (self.most_input or 0))

    def fits(self, prompt: int, reply: int, margin: Margin) -> bool:
        """Whether `prompt + reply + margin <= tokens`, without the reply where it is `separate`, and the prompt is
        within `max_input`."""
        return self.excess(prompt, reply, margin) <= 0


@dataclass(frozen=True, slots=True)
class Margin:
    """The safety margin between prompt + reply and the window: `base` tokens plus a `share` of the prompt (0 to 1).
    Small windows have a smaller base (`Window.margin`)."""

    base: int = 100
    share: float = 0.0

    def of(self, prompt: int) -> int:
        """The margin for a prompt of `prompt` tokens, in tokens."""
        return self.base + math.ceil(self.share * prompt) if self.share else self.base


NO_MARGIN = Margin(0)


class Shape(StrEnum):
    """The shape of a prompt, for what is learned of its counts: what providers add on their own differs with tools."""

    TEXT = "text"
    TOOLS = "tools"


REACH = 4  # a ratio holds for prompts up to so many times the largest one that taught it
CLOSE_REACH, FAR_SHARE = 3, 0.05  # from so many times it on, the margin is at least this share of the prompt
# Prompts of one size cannot tell an offset from a ratio: the margin of longer ones also covers the family's ratio. In
# steps, because counts are cached for each correction.
REACHES = (1.1, 1.5, 2, 3, REACH)
ANY_SIZE = 1 << 60  # tokens; no prompt has more


class Correction(msgspec.Struct, frozen=True, gc=False):
    """A correction of a model's counts, learned from usage: `offset + ratio * n` tokens, for n of its encoding.

    `ratio`: tokens of the model per token of the encoding; None: that of the model's family. `share`: the margin's
    share of the prompt for such counts; None: the margin of the family. `sure`: enough responses taught it. `taught`:
    the largest prompt that taught it, in tokens of the encoding; 0: it holds for all. `reach`: at most so many times as
    long as that one is the prompt that it is for.
    """

    ratio: float | None
    share: float | None = None
    offset: int = 0
    sure: bool = True
    taught: int = 0
    reach: float = 1.0

    def at(self, size: int) -> Correction:
        """The correction for a prompt of about `size` tokens: beyond `REACH` only the offset is left of it. The same
        object where the size makes no difference."""
        if not self.taught or self.ratio is None:  # exact counts: an offset is one everywhere
            return self
        reach = next((reach for reach in REACHES if size <= reach * self.taught), None)
        if reach is None:
            return Correction(None, None, self.offset, sure=False)
        share = self.share if self.share is None or reach <= CLOSE_REACH else max(self.share, FAR_SHARE)
        return Correction(self.ratio, share, self.offset, self.sure, 0, 1.0 if reach == REACHES[0] else reach)

    @property
    def nearest(self) -> int:
        """The longest prompt, in tokens, for which `at` says the same as for the shortest."""
        return int(REACHES[0] * self.taught) if self.taught and self.ratio is not None else ANY_SIZE

    def doubt(self, family: float) -> float:
        """By how much prompts far beyond those that taught it may cost more, as a share of them: they do if the
        family's ratio is right after all, and what was learned of it was an offset. Nearer than `CLOSE_REACH` the
        errors that were seen decide: a prompt that is always cut would never prove more (with 2 or 1.5 every prompt of
        the test R7 was cut), and where an offset was hidden, the prompt lacks 8 % at most, which one refusal tells."""
        if self.ratio is None or self.reach <= CLOSE_REACH:
            return 0.0
        return max(0.0, 1 - self.ratio / family) * (1 - 1 / self.reach)


class Corrections(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The corrections of a model's counts by the shape of the prompt; None where nothing was learned."""

    text: Correction | None = None
    tools: Correction | None = None

    def of(self, shape: Shape) -> Correction | None:
        """The correction for prompts of a shape."""
        return self.tools if shape is Shape.TOOLS else self.text

    def at(self, size: int) -> Corrections:
        """The corrections for a prompt of about `size` tokens."""
        text = None if self.text is None else self.text.at(size)
        tools = None if self.tools is None else self.tools.at(size)
        return self if text is self.text and tools is self.tools else Corrections(text, tools)

    @property
    def nearest(self) -> int:
        """The longest prompt, in tokens, for which `at` says the same as for the shortest."""
        return min([found.nearest for found in (self.text, self.tools) if found is not None], default=ANY_SIZE)


class CountUnit(msgspec.Struct, frozen=True, gc=False):
    """How a prompt of a shape was counted: `offset + ratio * n` tokens, for n tokens of the model's encoding. `schema`:
    with a response schema."""

    ratio: float
    offset: int = 0
    shape: Shape = Shape.TEXT
    schema: bool = False

    def encoded(self, counted: int) -> int:
        """The tokens of the encoding in a count."""
        return round((counted - self.offset) / self.ratio)


class LearnedLimits(msgspec.Struct, frozen=True):
    """What responses of an upstream taught about one of its models: its window, its bound on the prompt, and the ratio
    of its counts to ours (`scale` from refusals, `correction` from usage).

    `supposed`: the window was inferred from refused prompts, because no refusal named it, and `refused` is the size of
    the smallest of them (0: unknown). `alternates`: user and assistant must alternate. `binds`: reasoning is bound to
    what stands before it. `shared`: the reply counts against the window, for this request. `max_inputs`,
    `max_together`: those of `Window`, for this request. `requested`: the window that this request asks for; nothing
    else bounds it. `media`: what usage showed of images and files whose cost no body shows, in tokens, by the digest of
    their URL or id.
    """

    window: int | None = None
    max_input: int | None = None
    scale: float = 1.0
    supposed: bool = False
    alternates: bool = False
    binds: bool = False
    shared: bool = False
    max_inputs: int | None = None
    max_together: int | None = None
    correction: Corrections | None = None
    requested: int | None = None
    refused: int = 0
    media: Callable[[int], int | None] | None = None

    @property
    def bounds(self) -> bool:
        """Whether it limits requests: by a window, a bound on the prompt, or what may stand where."""
        found = self.window is not None or self.max_input is not None
        return found or self.alternates or self.binds or self.shared

    @property
    def limits(self) -> bool:
        """Whether refusals proved something of it; all else, usage taught."""
        return self.bounds or self.scale != 1.0

    def at(self, size: int) -> LearnedLimits:
        """The same for a prompt of about `size` tokens."""
        before = self.correction
        after = None if before is None else before.at(size)
        return self if after is before else replace(self, correction=after)

    @property
    def nearest(self) -> int:
        """The longest prompt, in tokens, for which `at` says the same as for the shortest."""
        return ANY_SIZE if self.correction is None else self.correction.nearest

    def where_requested(self, window: int | None) -> LearnedLimits:
        """The same for a request that asks for a window of so many tokens, if it does: what was learned of other
        windows does not hold there."""
        if window is None:
            return self
        return replace(self.without_figures(), requested=window)

    def without_figures(self) -> LearnedLimits:
        """The same without the bounds in tokens."""
        return replace(self, window=None, max_input=None, supposed=False, refused=0)


NOTHING_LEARNED = LearnedLimits()


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a refusal without figures would prove if the same request, made smaller, is answered. Tokens by our count.

    `size`: the prompt that was refused, with the reply that must fit. `window`: that of the smaller request's plan.
    `rule`: the row of refusals.toml that matched. `shared`: it would prove something for other conversations, too.
    """

    size: int
    window: int
    rule: str = ""
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Proof:
    """What one refusal proved, and the evidence.

    `value`: the limit in tokens, or the ratio of the upstream's count to ours (0: withdrawn). `at`: seconds since 1970.
    `rule`: the row of refusals.toml that matched. `counted`: our count of the refused prompt, of quality `quality`.
    `reply`: the reply limit that was requested (0: none). `named`: the upstream's own count of the prompt (0: none).
    """

    value: float
    at: float
    rule: str = ""
    counted: int = 0
    reply: int = 0
    named: int = 0
    quality: str = ""
