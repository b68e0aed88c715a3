"""A budget of callers.toml: how much callers may use in a period, and what happens from where. It counts nothing.

Theory of operation
-------------------

A budget is an amount of tokens, or of money in billionths of a US dollar: whole numbers, so that sums of many workers
are exact. It has four stages. In stage 0 nothing happens. Stage 1 begins at the share `soft` of it, stages 2 and 3
after each third of the rest. In each the requests of a caller are planned for a smaller window: four times, twice, and
once the smallest one. These windows do not depend on the model, so that all replicas cut alike, whatever each of them
knows of it. A stage lasts until the period ends.

Behind the limit nothing more is sent. `over` says how much of this is done: all; only the end (`refuse`); or nothing,
and the stages are only told (`observe`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import msgspec

STAGES = 3  # beside stage 0
WIDER = (4, 2, 1)  # of the stages: the window, as a multiple of the smallest
NANO = 1_000_000_000  # units of a US dollar


class Over(StrEnum):
    """What a budget does."""

    OBSERVE = "observe"
    FIT = "fit"
    REFUSE = "refuse"


class For(StrEnum):
    """Whose use is added up: that of each caller, of each session of a caller, or of all callers."""

    CALLER = "caller"
    SESSION = "session"
    ALL = "all"


class Unit(StrEnum):
    """What is added up."""

    TOKENS = "tokens"
    USD = "usd"


@lru_cache(maxsize=256)
def _marks(limit: int, soft: float) -> tuple[int, int, int]:
    first, second, third = (round(limit * (soft + (1 - soft) * i / STAGES)) for i in range(STAGES))
    return first, second, third


class Budget(msgspec.Struct, frozen=True):
    """A row `[[budget]]`. `limit`: tokens, or billionths of a dollar. `seconds`: the period; 0: it is not renewed.
    `everything`: what was read from the provider's prompt cache counts, too. `window`: the smallest, in tokens."""

    name: str
    limit: int
    unit: Unit = Unit.TOKENS
    scope: For = For.CALLER
    seconds: int = 86_400
    everything: bool = False
    soft: float = 0.8
    window: int = 16_000
    over: Over = Over.OBSERVE

    @property
    def enforced(self) -> bool:
        """Whether it changes what is sent."""
        return self.over is not Over.OBSERVE

    @property
    def marks(self) -> tuple[int, int, int]:
        """What is used when each stage begins."""
        return _marks(self.limit, self.soft)

    def stage(self, used: int) -> int:
        """The stage after so much use."""
        marks = _marks(self.limit, self.soft)
        return 0 if used < marks[0] else 1 if used < marks[1] else 2 if used < marks[2] else STAGES

    def window_in(self, stage: int) -> int | None:
        """The window of requests in a stage; None: that of their model."""
        return self.window * WIDER[stage - 1] if stage and self.over is Over.FIT else None

    def text(self, amount: int) -> str:
        """An amount of it, for people."""
        return f"{amount:,} tokens" if self.unit is Unit.TOKENS else f"${amount / NANO:,.2f}"
