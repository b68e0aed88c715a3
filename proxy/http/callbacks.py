"""Callbacks that the application passes to the transport: one reports an event, one encodes an error as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable

from proxy.errors import ClientError

Event = Callable[..., None]  # (message, **figures); never raises
ErrorBody = Callable[[str, ClientError], bytes]  # (path, error) -> JSON in the format of the path's API
REPEAT_SECONDS = 10.0  # between two reports of the same event


def ignore(message: str, **figures: object) -> None:
    """An `Event` that reports nothing."""


class RateLimitedEvent:
    """Reports an event at most once in `seconds`. A report has the number of occurrences omitted since the last one
    (`suppressed`)."""

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
        """Records one occurrence, and reports it if the interval has passed."""
        now = self._clock()
        if now < self._after:
            self._omitted += 1
            return
        self._event(self._message, **figures, **({"suppressed": self._omitted} if self._omitted else {}))
        self._after, self._omitted = now + self._seconds, 0
