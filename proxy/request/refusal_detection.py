"""Looks at an answer before the client has any of it: whether it says that the request was too long; sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.http.client.answer import Answer
from proxy.model.api import Api
from proxy.model.outcome import Refusal
from proxy.wire.headers import Header, value_of
from proxy.wire.refusals import LOOK, Rules, recognise
from proxy.wire.response_prefix import MAX_REFUSAL, NO_EVENT, ResponsePrefix, is_empty, read_prefix, refusal_in
from proxy.wire.tap import ENCODED, PLAIN, STREAM, uncoded

PATIENCE = 1.0  # seconds that a stream's first bytes wait for its first event, so that a refusal in it can be healed
TELLING = frozenset({400, 413, 422})  # statuses of refusals: asked again, such a request is not answered twice


@dataclass(frozen=True, slots=True)
class RefusalDetector:
    """Knows refusals by the rules."""

    rules: Rules

    async def at(self, api: Api, answer: Answer, near: bool) -> tuple[bytes, Refusal | None]:
        """What had to be read of the answer, and the refusal that it is. Raises UpstreamError.

        `near` says that the request may well be too long: then what comes before a stream's content waits for that.
        """
        if answer.status >= 400:
            body = await answer.read(LOOK)
            plain = uncoded(body, coding_of(answer), LOOK)
            return body, None if plain is None else recognise(self.rules, answer.status, plain)
        kind = (value_of(answer.headers, b"content-type") or b"").lower()
        if answer.status != 200 or coding_of(answer) not in PLAIN:
            return b"", None
        if kind.startswith(STREAM.encode()):
            return await self._stream(api, answer, near)
        return await self._plain(api, answer) if b"json" in kind else (b"", None)

    async def _plain(self, api: Api, answer: Answer) -> tuple[bytes, Refusal | None]:
        """A short answer is read whole. Of one that does not say how long it is nothing but its first bytes: some
        upstreams send blanks to bridge a long wait, which must go on to the client."""
        length = value_of(answer.headers, b"content-length")
        if length is not None and int(length) > MAX_REFUSAL:
            return b"", None
        body = await (answer.next() if length is None else answer.read(MAX_REFUSAL))
        return body, refusal_in(api, self.rules, body)

    async def _stream(self, api: Api, answer: Answer, near: bool) -> tuple[bytes, Refusal | None]:
        """Nothing waits for a second event, unless the request is `near`. Where the upstream sends comments to bridge
        a long wait, they go on to the client in time."""
        seen = await answer.next()
        shown = read_prefix(api, self.rules, seen)
        try:
            if seen and _waits(shown, near):
                async with asyncio.timeout(PATIENCE):
                    while _waits(shown, near) and len(seen) < LOOK and (chunk := await answer.next()):
                        seen += chunk
                        shown = read_prefix(api, self.rules, seen)
        except TimeoutError:
            pass
        return seen, shown.refusal


def came_to_nothing(api: Api, answer: Answer, seen: bytes) -> bool:
    """Whether it is a stream of events that ended without one: some servers fail so where the request is too long."""
    kind = (value_of(answer.headers, b"content-type") or b"").lower()
    streams = answer.whole and answer.status == 200 and kind.startswith(STREAM.encode())
    return streams and coding_of(answer) in PLAIN and is_empty(api, seen)


def _waits(shown: ResponsePrefix, near: bool) -> bool:
    return not shown.settled if near else shown is NO_EVENT


def coding_of(answer: Answer) -> str:
    """The answer's content-encoding."""
    return (value_of(answer.headers, b"content-encoding") or b"").decode("latin-1").strip().lower()


def unreadable(answer: Answer) -> bool:
    """Whether it may be a refusal in an encoding that we do not read (br, zstd)."""
    return answer.status in TELLING and coding_of(answer) not in (*PLAIN, *ENCODED)


def plainly(headers: Iterable[Header]) -> list[Header]:
    """A request's headers, asking for an answer that is not encoded."""
    return [*(h for h in headers if h[0] != b"accept-encoding"), (b"accept-encoding", b"identity")]
