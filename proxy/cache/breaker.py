"""Whether a service that failed is to be asked again: not for a while, and twice as long after each further failure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FIRST = 0.5  # seconds: a restart is over by then, and a request a second at most pays for a service that is gone
LONGEST = 30.0  # seconds: what a service that is back must wait at most
SPREAD = 0.2  # replicas that saw the same failure do not all come back at once


class Breaker:
    """Open after a failure; closed again by `close` (a probe was answered) or `succeed` (real work was done).

    Only real work makes the next pause short again: a service that answers probes and fails at work stays slowed.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._pause = 0.0
        self._until = 0.0
        self.closed = True

    @property
    def remaining(self) -> float:
        """Seconds until it may be tried again; 0 where it may be now."""
        return 0.0 if self.closed else max(0.0, self._until - self._clock())

    def fail(self) -> None:
        """Opens it. Failures of what was asked before it opened are no news: they do not lengthen the pause."""
        if self.remaining:
            return
        self._pause = min(2 * self._pause, LONGEST) if self._pause else FIRST
        self._until = self._clock() + self._pause * self._draw(1 - SPREAD, 1 + SPREAD)
        self.closed = False

    def close(self) -> None:
        """It may be asked again; should it fail at once, the pause will be longer than the last."""
        self.closed = True

    def succeed(self) -> None:
        """It does its work."""
        self.closed = True
        self._pause = 0.0
