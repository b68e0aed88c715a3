"""A circuit breaker with exponential backoff, for one direction (reads or writes) of a backend. It performs no I/O."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

INITIAL_PAUSE_S = 0.5  # a restart takes about as long; a backend that is gone costs at most a request per second
MAX_PAUSE_S = 30.0  # the longest that a backend which has recovered stays unused
JITTER = 0.2  # replicas that saw the same failure must not all return at once


class Breaker:
    """Opened by `record_failure`; closed by `close` (a probe succeeded) or `record_success` (a request succeeded).

    Only `record_success` resets the backoff: a backend that answers probes but fails requests keeps its long pauses.
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
        """Seconds until the backend may be tried again; 0 if it may be tried now."""
        return 0.0 if self.closed else max(0.0, self._until - self._clock())

    def record_failure(self) -> None:
        """Opens the breaker and doubles the pause. Failures during a pause are ignored: their requests began before."""
        if self.remaining:
            return
        self._pause = min(2 * self._pause, MAX_PAUSE_S) if self._pause else INITIAL_PAUSE_S
        self._until = self._clock() + self._pause * self._draw(1 - JITTER, 1 + JITTER)
        self.closed = False

    def close(self) -> None:
        """Closes the breaker and keeps the backoff: the next failure causes a longer pause than the last one."""
        self.closed = True

    def record_success(self) -> None:
        """Closes the breaker and resets the backoff."""
        self.closed = True
        self._pause = 0.0
