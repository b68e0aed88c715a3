"""The last requests of this process, for the page: references to outcomes that exist anyway.

Theory of operation. A request adds one reference and is numbered; everything else is computed when somebody looks.
Requests that are remarkable (changed, refused, failed) are kept apart too, so that ordinary ones do not displace them.
What became of their messages is packed and bounded in bytes. Texts are kept only where a setting wants them: they are
bounded in bytes, and gone after minutes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from proxy.model.bounded import Bounded
from proxy.model.outcome import Outcome
from proxy.model.plan import Note

KEPT = 500  # of all requests, and of the remarkable ones
# Of ordinary requests no more than these are kept: nobody reads more, and memory that is used again 500 requests later
# is in no cache of the processor: that cost 2 us a request.
MOST_A_SECOND = 200
BURST_S = KEPT / MOST_A_SECOND  # so many at once, if there were few before
MAX_BREAKDOWNS, MAX_BREAKDOWN_BYTES = 2 * KEPT, 8 << 20
MAX_TEXT_BYTES = 32 << 20
TEXT_SECONDS = 15 * 60.0
MAX_NAME = 120  # characters of a model's name that are kept: clients choose it
ORDINARY = "passed"


class TextSource(Protocol):
    """Texts of a request."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory."""


class Shown(NamedTuple):
    """What is kept of a request besides its outcome: what became of its messages, packed, its texts, and a name for the
    conversation that it belongs to; empty if that is not known."""

    breakdown: bytes = b""
    texts: TextSource | None = None
    conversation: str = ""


class Kept(NamedTuple):
    """A request: its number, the end of its answer in seconds since 1970, its outcome, and its conversation's name."""

    number: int
    at: float
    outcome: Outcome
    conversation: str = ""


_Raw = tuple[int, float, Outcome, str]  # a `Kept`: to make one takes as long as all else that a request adds


class Recent:
    """The last requests. `worker` is the number of this process. Times are in seconds since 1970; the age of texts is
    measured by a clock that does not jump."""

    def __init__(self, clock: Callable[[], float] = time.time, age_clock: Callable[[], float] = time.monotonic) -> None:
        self.worker = 0
        self.count = 0
        self._clock, self._age_clock = clock, age_clock
        self._full_at = 0.0  # by the age clock: how far ordinary requests have used up what they may
        self.begin()
        self._latest: deque[_Raw] = deque(maxlen=KEPT)
        self._remarkable: deque[_Raw] = deque(maxlen=KEPT)
        self._breakdowns: Bounded[int, bytes] = Bounded(MAX_BREAKDOWNS, MAX_BREAKDOWN_BYTES)
        self._texts: dict[int, tuple[float, TextSource]] = {}  # oldest first
        self._text_bytes = 0

    def begin(self) -> None:
        """Names this process anew: after a fork, and where it replaces another one."""
        self._started = int(self._clock() * 1000)

    @property
    def name(self) -> str:
        """The name of this process: its number, and when it started."""
        return f"{self.worker}-{self._started:x}"

    def add(self, outcome: Outcome, shown: Shown | None = None) -> None:
        """Adds a finished request. Of too many ordinary ones a part is counted only."""
        self.count = number = self.count + 1
        is_ordinary = outcome.result == ORDINARY and not outcome.planned
        if is_ordinary:
            now = self._age_clock()
            if self._full_at - now > BURST_S:
                return
            self._full_at = max(self._full_at, now) + 1 / MOST_A_SECOND
        if len(outcome.model) > MAX_NAME:  # that of another model is the operator's
            outcome = _shortened(outcome)
        raw = (number, self._clock(), outcome, "" if shown is None else shown.conversation)
        self._latest.append(raw)
        if not is_ordinary:
            self._remarkable.append(raw)
        if shown is not None:
            self._keep(number, shown)

    def _keep(self, number: int, shown: Shown) -> None:
        if shown.breakdown:
            self._breakdowns.put(number, shown.breakdown, len(shown.breakdown) + 100)
        if shown.texts is not None:
            self._texts[number] = (self._age_clock(), shown.texts)
            self._text_bytes += shown.texts.weight
            self.expire()

    def expire(self) -> None:
        """Drops texts that are too old, and the oldest ones of too many."""
        oldest = self._age_clock() - TEXT_SECONDS
        while self._texts:
            number, (at, source) = next(iter(self._texts.items()))
            if at >= oldest and self._text_bytes <= MAX_TEXT_BYTES and len(self._texts) <= KEPT:
                return
            del self._texts[number]
            self._text_bytes -= source.weight

    def since(self, number: int = 0) -> Iterator[Kept]:
        """The requests after a number, newest first."""
        later = self.remarkable(number)
        other = next(later, None)
        for kept in (Kept(*raw) for raw in reversed(self._latest)):
            if kept.number <= number:
                return
            while other is not None and other.number >= kept.number:
                other = next(later, None)
            yield kept
        while other is not None:
            yield other
            other = next(later, None)

    def remarkable(self, number: int = 0) -> Iterator[Kept]:
        """Those of them that are remarkable, newest first."""
        for raw in reversed(self._remarkable):
            if raw[0] <= number:
                return
            yield Kept(*raw)

    def find(self, number: int) -> Kept | None:
        """A request by its number; None if it is no longer kept."""
        return next((kept for kept in self.since(number - 1) if kept.number == number), None)

    def has_breakdown(self, number: int) -> bool:
        """Whether it is known what became of a request's messages."""
        return number in self._breakdowns

    def breakdown(self, number: int) -> bytes:
        """What became of a request's messages, packed; empty if that is not known."""
        return self._breakdowns.get(number) or b""

    def texts(self, number: int) -> TextSource | None:
        """A request's texts; None if they are not kept."""
        self.expire()
        found = self._texts.get(number)
        return None if found is None else found[1]


def _shortened(outcome: Outcome) -> Outcome:
    """An outcome whose names of models are bounded."""
    notes, planned = tuple(map(_bounded, outcome.notes)), tuple(map(_bounded, outcome.planned))
    model, model_sent = outcome.model[:MAX_NAME], outcome.model_sent[:MAX_NAME]
    return replace(outcome, model=model, model_sent=model_sent, notes=notes, planned=planned)


def _bounded(note: Note) -> Note:
    return replace(note, model_before=note.model_before[:MAX_NAME], model_after=note.model_after[:MAX_NAME])
