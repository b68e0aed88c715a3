"""What a replay adds up for its charts: requests by their load, and tokens over time; in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

STEP, BINS = 0.1, 16  # of the load: the last bin has all from 1.5 on
HOUR_S = 3_600
MAX_HOURS = 24 * 366  # that are told apart
MOST_BARS = 48
SPANS = (1, 2, 3, 4, 6, 12, 24, 48, 7 * 24, 14 * 24, 28 * 24, 56 * 24, 112 * 24, 224 * 24)  # hours of one bar


def bin_of(load: float) -> int:
    """The bin of a load. What fits to the last token is below 100 %."""
    return min(BINS - 1, max(0, int((load - 1e-9) / STEP)))


@dataclass(slots=True)
class Loads:
    """How many requests have which load: as they were sent, and as they would be."""

    asked: list[int] = field(default_factory=lambda: [0] * BINS)
    sent: list[int] = field(default_factory=lambda: [0] * BINS)

    def add(self, asked: float, sent: float) -> None:
        """Adds a request."""
        self.asked[bin_of(asked)] += 1
        self.sent[bin_of(sent)] += 1


@dataclass(slots=True)
class Span:
    """The requests of one time: tokens of their prompts as they were sent, and as they would be, and what these would
    cost in US dollars, net."""

    requests: int = 0
    prompt: int = 0
    prompt_sent: int = 0
    cut: int = 0
    cost: float = 0.0

    def add(self, other: Span) -> None:
        """Adds the requests of another time."""
        self.requests += other.requests
        self.prompt += other.prompt
        self.prompt_sent += other.prompt_sent
        self.cut += other.cut
        self.cost += other.cost


@dataclass(slots=True)
class OverTime:
    """Requests by the hour in which they were sent."""

    hours: dict[int, Span] = field(default_factory=dict)

    def add(self, at: float | None, span: Span) -> None:
        """Adds requests; those without a time, and those of too many different hours, are in no chart."""
        if at is None:
            return
        hour = int(at // HOUR_S)
        if hour in self.hours or len(self.hours) < MAX_HOURS:
            self.hours.setdefault(hour, Span()).add(span)

    def bars(self) -> tuple[int, list[tuple[int, Span]]]:
        """Seconds of a bar, and the bars with their times since 1970: at most `MOST_BARS` without gaps, unless these
        requests span more than thirty years."""
        if not self.hours:
            return HOUR_S, []
        first, last = min(self.hours), max(self.hours)
        hours = next((hours for hours in SPANS if (last // hours) - (first // hours) < MOST_BARS), SPANS[-1])
        found: dict[int, Span] = {}
        for bar in _all(first // hours, last // hours):
            found[bar] = Span()
        for hour, span in self.hours.items():
            found.setdefault(hour // hours, Span()).add(span)
        return hours * HOUR_S, [(bar * hours * HOUR_S, found[bar]) for bar in sorted(found)]


def _all(first: int, last: int) -> Iterable[int]:
    return range(first, last + 1) if last - first < MOST_BARS else ()
