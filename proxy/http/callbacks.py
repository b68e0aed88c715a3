"""The functions that the transport gets from its user: how to report an event, and how to write an error's JSON."""

from __future__ import annotations

import time
from collections.abc import Callable

from proxy.errors import ClientError

Event = Callable[..., None]  # takes a message, and figures as keywords; never raises
ErrorBody = Callable[[str, ClientError], bytes]  # an error's JSON for a client of this path
REPEAT_SECONDS = 10.0


def ignore(message: str, **figures: object) -> None:
    """Reports nothing."""


class RateLimitedEvent:
    """An event that may happen a thousand times a second: reported at most once in `seconds`, with the number of those
    that were left out since the last report (`untold`)."""

    __slots__ = ("_after", "_clock", "_event", "_message", "_omitted", "_seconds")

    def __init__(
        self,
        event: Event,
        message: str,
        seconds: float = REPEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event, self._message, self._seconds, self._clock = event, message, seconds, clock
        self._after, self._omitted = 0.0, 0

    def __call__(self, **figures: object) -> None:
        """It happened."""
        now = self._clock()
        if now < self._after:
            self._omitted += 1
            return
        self._event(self._message, **figures, **({"untold": self._omitted} if self._omitted else {}))
        self._after, self._omitted = now + self._seconds, 0
