"""Answers that tell of the prompt that the client asked with, though a shorter one was sent, and of edits that we made
where the upstream does not know them.

What the upstream reports is raised by what was cut: its own count stays the measure, and a prompt never shrinks between
two turns because of a cut. Nothing else of an answer changes, and no answer to a request that was not cut.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.response import Sink
from proxy.model.terms import USUAL, Reported
from proxy.request.stages import Planned
from proxy.wire.coding import CODED, IDENTITY, coding_of, decompressor_of_answer
from proxy.wire.headers import Header, value_of
from proxy.wire.restated import Change, Restater

MAX_INFLATED = 1 << 20  # decoded bytes of one piece: the client takes it before the next one is made
# What describes the bytes of an answer: it is wrong for others.
OF_THE_BYTES = frozenset(
    (b"content-length", b"content-encoding", b"content-md5", b"content-digest", b"repr-digest", b"digest", b"etag")
)
UNREADABLE = "The upstream's response could not be decoded."


def asked_beyond_sent(planned: Planned) -> int:
    """By how many tokens the prompt that the client asked with is longer than the one that was sent, where its answer
    is to tell of the former; 0 where nothing was cut."""
    received = planned.received
    if received.terms.usage is not Reported.ASKED or not received.may_change or planned.plan is None:
        return 0
    plan = planned.plan
    cut = any(n.tokens_after < n.tokens_before and n.model_before == n.model_after for n in plan.notes)
    return max(0, plan.before.billed - plan.draft.billed) if cut else 0


def change_of(planned: Planned | None) -> Change | None:
    """What is restated in the answer to a request; None for nearly all."""
    if planned is None:
        return None
    if planned.received.terms is USUAL and (planned.scanned is None or planned.scanned.applied is None):
        return None
    more, applied = asked_beyond_sent(planned), None if planned.scanned is None else planned.scanned.applied
    return Change(planned.received.api, more, applied) if more or applied is not None else None


def restated_whole(change: Change, answer: Answer, body: bytes) -> tuple[Answer, bytes]:
    """An answer that was read whole, with its body."""
    restated = change.whole(body)
    length = (b"content-length", b"%d" % len(restated))
    return Answer(_Restated(answer, b"", [*_kept(answer), length], None, None, _unseen)), restated


def restated(change: Change, answer: Answer, seen: bytes, watch: Callable[[bytes], None]) -> Answer | None:
    """An answer of which the bytes in `seen` were read; `watch` is called with what the upstream sent, as it came. None
    if it is no answer with a usage, or cannot be read."""
    kind, coding = (value_of(answer.headers, b"content-type") or b"").decode("latin-1"), coding_of(answer.headers)
    restater = Restater(change, kind)
    if answer.status != 200 or not restater.reads or coding not in (*CODED, *IDENTITY):
        return None
    decoder = _Decoder(coding) if coding in CODED else None
    return Answer(_Restated(answer, seen, _kept(answer), restater, decoder, watch))


def _kept(answer: Answer) -> list[Header]:
    return [header for header in answer.headers if header[0] not in OF_THE_BYTES]


def _unseen(chunk: bytes) -> None:
    """`watch` of an answer that was read before."""


class _Decoder:
    """Decodes a body piece by piece."""

    __slots__ = ("_coding", "_machine", "_start")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._start = b""
        self._machine: zlib._Decompress | None = None

    @property
    def waiting(self) -> bool:
        """Whether it has more to give of what it was fed."""
        return self._machine is not None and bool(self._machine.unconsumed_tail)

    def feed(self, chunk: bytes) -> bytes:
        """The next decoded bytes; without a chunk, more of those before. Raises UpstreamError."""
        if self._machine is None:
            self._start = chunk = self._start + chunk
            if len(chunk) < 2:
                return b""
            self._machine = decompressor_of_answer(self._coding, chunk)
        try:
            return self._machine.decompress(chunk or self._machine.unconsumed_tail, MAX_INFLATED)
        except zlib.error:
            raise UpstreamError(502, "upstream_error", UNREADABLE) from None


class _Restated:
    """An answer as a `Reply` that passes a restater."""

    def __init__(
        self,
        answer: Answer,
        seen: bytes,
        headers: list[Header],
        restater: Restater | None,
        decoder: _Decoder | None,
        watch: Callable[[bytes], None],
    ) -> None:
        self.status, self.headers = answer.status, headers
        self._answer, self._seen, self._restater = answer, seen, restater
        self._decoder, self._watch = decoder, watch

    async def read(self) -> bytes:
        """The next bytes that may pass, b"" at the end. Raises UpstreamError."""
        while self._restater is not None:
            if self._decoder is not None and self._decoder.waiting:
                chunk = self._decoder.feed(b"")
            elif chunk := await self._next():
                chunk = chunk if self._decoder is None else self._decoder.feed(chunk)
            else:
                rest, self._restater = self._restater.end(), None
                return rest
            if chunk and (passing := self._restater.feed(chunk)):
                return passing
        return b""

    async def _next(self) -> bytes:
        chunk, self._seen = self._seen, b""
        chunk = chunk or await self._answer.next()
        if chunk:
            self._watch(chunk)
        return chunk

    async def pipe_to(self, sink: Sink) -> None:
        """Nothing: `read` has it all."""

    def buffered_body(self) -> bytes | None:
        """None: `read` has it all."""
        return None

    async def aclose(self) -> None:
        """Closes the upstream's answer."""
        await self._answer.close()
