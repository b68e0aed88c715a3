"""Sends the pieces of one request, a few at a time, and joins what comes back to one answer.

If one of them fails, the request fails with that piece's answer; the others are cancelled. Those that were sent by then
are billed all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from proxy.errors import overloaded
from proxy.http.client.answer import Answer, UpstreamError
from proxy.http.client.response import Sink
from proxy.http.memory_budget import Room
from proxy.model.api import Api
from proxy.request.refusal_detection import plainly
from proxy.request.work import Pool
from proxy.wire.headers import Header, value_of

AT_ONCE = 4  # pieces of one request that are under way
RETRIED = frozenset({429, 500, 502, 503, 504})  # statuses after which a piece is sent once more
PAUSE_S, MAX_PAUSE_S = 0.5, 5.0  # before that; an upstream may ask for more
OF_ONE_BODY = frozenset((b"content-length", b"content-encoding", b"transfer-encoding", b"etag", b"content-md5"))
IDEMPOTENCY = b"idempotency-key"  # of two requests with the same key, a provider answers the first alone
FAILED = "The upstream's answers to the parts of this request could not be joined."

Post = Callable[[bytes, Sequence[Header]], Awaitable[Answer]]


class _Failed(Exception):
    """A piece was answered with something else than what is to be joined."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Joined:
    """The answer to all pieces, as a `Reply` whose body is here already. `room`: what it takes of the budget."""

    def __init__(self, headers: Sequence[Header], parts: Sequence[bytes], room: Room) -> None:
        length = (b"content-length", b"%d" % sum(map(len, parts)))
        self.status = 200
        self.headers = [*(h for h in headers if h[0] not in OF_ONE_BODY), length]
        self._parts = [part for part in parts if part]
        self._parts.reverse()
        self._room = room

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        if self._parts:
            return self._next()
        self._room.release()
        return b""

    async def pipe_to(self, sink: Sink) -> None:
        """Nothing: `read` has it all."""

    def buffered_body(self) -> bytes | None:
        """None: `read` has it all."""
        return None

    async def aclose(self) -> None:
        """Drops the rest."""
        self._parts.clear()
        self._room.release()

    def _next(self) -> bytes:
        """Some of the parts: each alone would be a write of its own."""
        taken: list[bytes] = []
        size = 0
        while self._parts and size < 1 << 16:
            taken.append(self._parts.pop())
            size += len(taken[-1])
        return b"".join(taken)


@dataclass(frozen=True, slots=True)
class PieceSender:
    """Sends pieces, which have so many inputs each (`counts`), with `post`. `room` is charged for the answers that wait
    for one another. `billed`: the numbers of the pieces that were sent and not refused."""

    api: Api
    post: Post
    counts: Sequence[int]
    pool: Pool
    room: Room
    billed: set[int] = field(default_factory=set)

    async def send(self, payloads: Sequence[bytes], headers: Sequence[Header]) -> Answer:
        """The joined answer, or that of a piece which failed. Raises `UpstreamError` as the first piece that gets no
        answer, and `ClientError` 503 if there is no memory for the answers."""
        try:
            return await self._send(payloads, plainly(headers))
        except BaseException:
            self.room.release()
            raise

    async def _send(self, payloads: Sequence[bytes], headers: Sequence[Header]) -> Answer:
        gate, turn, taken = asyncio.Semaphore(AT_ONCE), asyncio.Lock(), [0]
        first: list[Sequence[Header]] = []

        async def one(number: int, payload: bytes) -> bytes:
            async with gate:
                answer = await self._answer(number, payload, _of_piece(headers, number))
                first.append(answer.headers)
                try:
                    return await self._body(answer, turn, taken)
                finally:
                    await answer.close()

        tasks = [asyncio.create_task(one(number, payload)) for number, payload in enumerate(payloads)]
        given: Answer | None = None
        try:
            bodies = await asyncio.gather(*tasks)
        except _Failed as failed:
            self.room.release()
            given = failed.answer
            return given
        finally:
            await _ended(tasks, given)
        parts = await self.pool.run(True, self.api.joined, bodies, self.counts)
        if parts is None:
            raise UpstreamError(502, "upstream_error", FAILED)
        return Answer(Joined(first[0], parts, self.room))

    async def _posted(self, number: int, payload: bytes, headers: Sequence[Header]) -> Answer:
        """A piece's answer. It is billed from when it is sent, until an error says that it is not."""
        self.billed.add(number)
        try:
            answer = await self.post(payload, headers)
        except UpstreamError:
            self.billed.discard(number)
            raise
        if answer.status != 200:
            self.billed.discard(number)
        return answer

    async def _answer(self, number: int, payload: bytes, headers: Sequence[Header]) -> Answer:
        """A piece's answer with status 200. Raises `_Failed` and `UpstreamError`."""
        pause = PAUSE_S
        try:
            answer = await self._posted(number, payload, headers)
            if answer.status == 200:
                return answer
            if answer.status not in RETRIED:
                raise _Failed(answer)
            pause = _pause(answer)
            await answer.close()
        except UpstreamError:
            pass
        await asyncio.sleep(pause)
        answer = await self._posted(number, payload, headers)
        if answer.status != 200:
            raise _Failed(answer)
        return answer

    async def _body(self, answer: Answer, turn: asyncio.Lock, taken: list[int]) -> bytes:
        parts: list[bytes] = []
        while chunk := await answer.next():
            parts.append(chunk)
            taken[0] += len(chunk)
            async with turn:
                if not await self.room.wait_to_grow(taken[0] // 2):  # it will be here twice, not four times
                    raise overloaded()
        return b"".join(parts)


def _of_piece(headers: Sequence[Header], number: int) -> Sequence[Header]:
    """The headers of a piece. One key for all of them would make the answer to the first that of all others."""
    return [(name, b"%b-%d" % (value, number) if name == IDEMPOTENCY else value) for name, value in headers]


def _pause(answer: Answer) -> float:
    """How long the upstream asks to wait, in seconds, as far as a client may wait for that."""
    asked = value_of(answer.headers, b"retry-after") or b""
    return min(float(asked), MAX_PAUSE_S) if asked.isdigit() else PAUSE_S


async def _ended(tasks: Sequence[asyncio.Task[bytes]], given: Answer | None) -> None:
    """Cancels what is still under way, and closes the answers of pieces that failed, but for the one that is given."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, _Failed) and ended.answer is not given:
            await ended.answer.close()
