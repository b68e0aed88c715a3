"""Reads the beginning of an answer, before the client gets any of it, to detect a refusal for length; sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.config.model_names import MAX_LENGTH
from proxy.http.client.answer import Answer
from proxy.model.api import Api
from proxy.model.bounded import Bounded
from proxy.model.outcome import Refusal
from proxy.request.stages import Planned
from proxy.upstreams.internal_client import tenant_of
from proxy.wire.coding import IDENTITY, KNOWN, beginning, coding_of
from proxy.wire.headers import Header, value_of
from proxy.wire.refusals import LOOK, Rules, recognise, recognise_event
from proxy.wire.response_prefix import (
    MAX_REFUSAL,
    NO_EVENT,
    ResponsePrefix,
    end_of_events,
    is_empty,
    read_prefix,
    refusal_in,
)
from proxy.wire.tap import STREAM, STREAMS, Tap

FIRST_EVENT_S = 1.0  # how long a stream's first bytes wait for its first event, so that a refusal in it can be healed
MAX_HELD = 1 << 20  # bytes of a stream that wait longer: its first events may repeat the instructions and the tools
MOST_REFUSED = 4_096  # models and callers that are remembered: clients choose the names
NEAR_LOAD = 0.8  # of the window: our count may be wrong by less
STREAMS_OF_EVENTS = tuple(kind.encode() for kind in STREAMS)
# Bytes of a request from which the events before a stream's first content wait, if its API refuses after them and the
# model has not accepted as much from its caller: about 16,000 tokens.
LEAST_UNTRIED = 65_536
REFUSAL_STATUSES = frozenset({400, 413, 422})  # of an answer that did no work: the request may be sent again


@dataclass(frozen=True, slots=True)
class RefusalDetector:
    """Detects refusals by the rows of rules/refusals.toml. It remembers the sizes of requests that a model refused a
    caller, and those that it accepted: its window may be smaller than what is known of it, so that no stream of a size
    that it refused, or has not been tried with, is let through unread."""

    rules: Rules
    _refused: Bounded[tuple[bytes, str], int] = field(default_factory=lambda: Bounded(MOST_REFUSED))
    _accepted: Bounded[tuple[bytes, str], int] = field(default_factory=lambda: Bounded(MOST_REFUSED))

    def remember(self, headers: Sequence[Header], model: str) -> None:
        """A model refused a request with these headers for its length."""
        if len(model) <= MAX_LENGTH:
            self._refused.put((tenant_of(headers), model), _size_of(headers))

    def has_refused(self, headers: Sequence[Header], model: str) -> bool:
        """Whether the newest request that the model refused the same caller was at most twice as long."""
        if not self._refused.filled:
            return False
        refused = self._refused.get((tenant_of(headers), model))
        return refused is not None and 2 * _size_of(headers) >= refused

    def is_untried(self, planned: Planned, size: int) -> bool:
        """Whether a stream may be refused after its first events, and its request of `size` bytes is longer than any
        that the model accepted from the same caller. Short ones are not."""
        if size < LEAST_UNTRIED or planned.received.api.hold_s <= FIRST_EVENT_S:
            return False
        scanned = planned.scanned
        return scanned is not None and scanned.scan.stream and size > self._most_accepted(planned, scanned.model)

    def accept(self, planned: Planned, size: int) -> None:
        """The model began to answer a request of `size` bytes."""
        model = "" if planned.scanned is None else planned.scanned.model
        if len(model) <= MAX_LENGTH and size > self._most_accepted(planned, model):
            self._accepted.put((tenant_of(planned.received.headers), model), size)

    def _most_accepted(self, planned: Planned, model: str) -> int:
        return self._accepted.get((tenant_of(planned.received.headers), model)) or 0

    def in_relayed(self, tap: Tap) -> Refusal | None:
        """The refusal that a stream turned out to be after its first events had gone to the client; or None."""
        return None if tap.error is None else recognise_event(self.rules, tap.error)

    async def within(self, planned: Planned, answer: Answer) -> tuple[bytes, Refusal | None]:
        """`at` for the answer to a request, of which as much may wait as its length demands; remembers what it shows.
        Raises UpstreamError."""
        scanned, size, headers = planned.scanned, len(planned.payload), planned.received.headers
        model = "" if scanned is None else scanned.model
        untried = self.is_untried(planned, size)
        doubtful = untried or self.has_refused(headers, model)
        seconds = hold_seconds(planned, doubtful)
        near = (doubtful or not planned.proven) and seconds > 0
        seen, refusal = await self.at(planned.received.api, answer, near, seconds)
        if refusal is not None:
            self.remember(headers, model)
        elif untried and near and answer.status == 200:
            self.accept(planned, size)
        return seen, refusal

    async def at(
        self, api: Api, answer: Answer, near: bool, seconds: float | None = None
    ) -> tuple[bytes, Refusal | None]:
        """The bytes that were read of the answer, and the refusal, or None. Raises UpstreamError.

        `near`: the request may be too long. Then the events before a stream's first content wait for it, at most so
        many `seconds` (None: `FIRST_EVENT_S`).
        """
        if answer.status >= 400:
            body = await answer.read(LOOK)
            plain = beginning(body, coding_of(answer.headers), LOOK)
            return body, None if plain is None else recognise(self.rules, answer.status, plain)
        kind = (value_of(answer.headers, b"content-type") or b"").lower()
        if answer.status != 200 or coding_of(answer.headers) not in IDENTITY:
            return b"", None
        if kind.startswith(STREAMS_OF_EVENTS):
            return await self._stream(api, answer, near, FIRST_EVENT_S if seconds is None else seconds)
        return await self._plain(api, answer) if b"json" in kind else (b"", None)

    async def _plain(self, api: Api, answer: Answer) -> tuple[bytes, Refusal | None]:
        """Reads a short answer whole. Of an answer without a content-length it reads the first bytes only: some
        upstreams send blanks as keep-alives, which must reach the client."""
        length = value_of(answer.headers, b"content-length")
        if length is not None and int(length) > MAX_REFUSAL:
            return b"", None
        body = await (answer.next() if length is None else answer.read(MAX_REFUSAL))
        return body, refusal_in(api, self.rules, body)

    async def _stream(self, api: Api, answer: Answer, near: bool, seconds: float) -> tuple[bytes, Refusal | None]:
        """Waits for the first event; for later ones only if the request is `near`. Comments that an upstream sends as
        keep-alives reach the client in time."""
        lines = not (value_of(answer.headers, b"content-type") or b"").lower().startswith(STREAM.encode())
        seen = await answer.next()
        shown, start = read_prefix(api, self.rules, seen, lines), end_of_events(seen, 0)
        most = LOOK if seconds <= FIRST_EVENT_S else MAX_HELD
        try:
            if seen and _waits(shown, near):
                async with asyncio.timeout(seconds):
                    while _waits(shown, near) and len(seen) < most and (chunk := await answer.next()):
                        seen += chunk
                        found = read_prefix(api, self.rules, seen[start:], lines)  # what came before is read once
                        shown, start = shown if found is NO_EVENT else found, end_of_events(seen, start)
        except TimeoutError:
            pass
        return seen, shown.refusal


def _size_of(headers: Sequence[Header]) -> int:
    """The bytes of a request's body, as its client said; 0 if it did not."""
    length = value_of(headers, b"content-length") or b""
    return int(length) if length.isdigit() else 0


def came_to_nothing(api: Api, answer: Answer, seen: bytes) -> bool:
    """Whether the answer is an event stream without an event: some servers fail so if the request is too long."""
    kind = (value_of(answer.headers, b"content-type") or b"").lower()
    streams = answer.whole and answer.status == 200 and kind.startswith(STREAM.encode())
    return streams and coding_of(answer.headers) in IDENTITY and is_empty(api, seen)


def hold_seconds(planned: Planned, doubtful: bool = False) -> float:
    """How long the first events of a stream may wait for content: long where the request is near its window or
    `doubtful` (its model refused one like it, or has not accepted one as long), and not at all for one that runs in the
    background, whose client only wants its id."""
    scanned, counted, plan = planned.scanned, planned.counted, planned.plan
    if scanned is None or scanned.scan.background:
        return 0.0
    if doubtful:
        near = True
    elif plan is not None:
        near = plan.trusting or plan.draft.load >= NEAR_LOAD
    else:
        total = None if counted is None else counted.total
        near = total is None or counted is None or total.prompt >= NEAR_LOAD * counted.window.tokens
    return planned.received.api.hold_s if near else FIRST_EVENT_S


def _waits(shown: ResponsePrefix, near: bool) -> bool:
    return not shown.settled if near else shown is NO_EVENT


def unreadable(answer: Answer) -> bool:
    """Whether the answer may be a refusal in a content-encoding that the proxy does not decode (br, zstd)."""
    return answer.status in REFUSAL_STATUSES and coding_of(answer.headers) not in KNOWN


def plainly(headers: Iterable[Header]) -> list[Header]:
    """The headers of a request, with `accept-encoding: identity`."""
    return [*(h for h in headers if h[0] != b"accept-encoding"), (b"accept-encoding", b"identity")]
