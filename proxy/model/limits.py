"""What a model can hold: windows, margins, and what was learned of them.

`Window.excess` is the one inequality: every comparison of a request with a window uses it, or `Window.fits`.
Units: tokens of the upstream's own tokenizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

DEFAULT_RESERVE = 3000  # seed 000: the reply that a request is thought to want where it sets no limit
# Some clients set a reply limit as large as the window. Of a larger share than this only this share reduces the prompt.
MAX_RESERVE_SHARE = 0.5
FLOOR = 500  # seed 001: the least reply worth asking for
UNKNOWN_WINDOW = 8192  # seed 000: what a model counts as that nobody knows
# Floor and margin are constants that suit large windows. In a window under this many tokens the floor is at most a
# 16th of it (500 of 8,000) and the margin's constant part at most a 64th, so that what the upstream answers is not cut.
SMALL_WINDOW = 8_000
FLOOR_PART, MARGIN_PART = 16, 64


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
        """Tokens by which a prompt does not fit beside a reply; at most 0 means that it fits (section 1)."""
        gap = self.margin(margin)
        over = prompt + reply + gap.of(prompt) - self.tokens
        if self.max_input is None:
            return over
        return max(over, prompt + gap.of(prompt) - gap.base - self.max_input)

    def fits(self, prompt: int, reply: int, margin: Margin) -> bool:
        """Whether `prompt + reply + margin <= tokens` and the prompt is within `max_input`."""
        return self.excess(prompt, reply, margin) <= 0


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


@dataclass(frozen=True, slots=True)
class Correction:
    """What answers told of a model's counts: `ratio` is how many of its tokens one of the encoding's proved to be
    worth, `share` the margin that such counts need, as a share of the prompt; None: the family's own."""

    ratio: float
    share: float | None = None


@dataclass(frozen=True, slots=True)
class LearnedLimits:
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


NOTHING_LEARNED = LearnedLimits()


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
