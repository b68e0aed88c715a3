"""What an upstream's own list of models says of models that no table knows: asked seldom, waited for briefly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.config.models_answer import from_models_answer
from proxy.model.bounded import Bounded
from proxy.model.limits import Window
from proxy.upstreams.upstream import CREDENTIALS, Upstream, UpstreamError

WAIT_SECONDS = 2.0  # what a request may wait for the list; an answer that comes later is there for the next one
ANSWER_SECONDS = 15.0  # after which the question is given up
AGAIN_SECONDS = 600.0  # a list that did not name a model may name it later
FAILED_SECONDS = 60.0  # after a failure
REJECTED = frozenset({401, 403})  # of one client's key, which must not speak for others
LIST_BYTES = 8 * 1024 * 1024  # OpenRouter's list of models has about 1 MB
INLINE_BYTES = 64 * 1024  # a longer list is read in a thread
MOST_MODELS = 1_000  # remembered at once: a client that invents names must not fill the memory
NO_LIST = frozenset({404, 405, 501})  # answers of an upstream that has none: as good as a list that names nobody

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class Listing:
    """One upstream's `GET /v1/models`, one question at a time for all models and all requests."""

    upstream: Upstream
    version: int = 0  # another one for another list
    _found: Bounded[str, Window | Literal[False]] = field(default_factory=lambda: Bounded(MOST_MODELS))
    _list: bytes = b""
    _stale_at: float = 0.0
    _asked_at: float = 0.0
    _rejected: Bounded[int, float] = field(default_factory=lambda: Bounded(MOST_MODELS))  # until when, by credentials
    _question: asyncio.Task[None] | None = None

    def now(self, model: str) -> Window | None:
        """What the list said of a model, by what is known without waiting."""
        return self._found.get(model) or None

    async def ask(self, model: str, headers: Headers, older: float | None = None) -> None:
        """Asks for a model that nobody else knows, with a client's own credentials; a list that is there only where it
        is stale, or `older` than so many seconds. Waits `WAIT_SECONDS` at most and raises nothing."""
        credentials = frozenset(header for header in headers if header[0] in CREDENTIALS)
        if self._is_due(older) and time.monotonic() >= (self._rejected.get(hash(credentials)) or 0.0):
            others = self._question
            if others is not None:
                await asyncio.wait({others}, timeout=WAIT_SECONDS)
            if others is None or (others.done() and self._question is None and self._is_due(older)):
                self._question = asyncio.create_task(self._ask(headers, hash(credentials)))
            if self._question is not None and self._question is not others:
                await asyncio.wait({self._question}, timeout=WAIT_SECONDS)
        if self._question is None and model not in self._found:
            await self._look(model)

    def doubt(self) -> None:
        """The upstream could not be reached: it may come back with another list."""
        self._asked_at = -AGAIN_SECONDS

    def _is_due(self, older: float | None) -> bool:
        now = time.monotonic()
        return now >= self._stale_at or (older is not None and now - self._asked_at >= older)

    async def _ask(self, headers: Headers, who: int) -> None:
        before, self._asked_at = self._asked_at, time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, body = await self._fetch(headers)
        except (UpstreamError, TimeoutError):
            status, body = 0, b""
        finally:
            self._question = None
        if status in REJECTED:  # it says something of this key alone
            self._rejected.put(who, time.monotonic() + FAILED_SECONDS)
            self._asked_at = before
            return
        told = status == 200 or status in NO_LIST
        self._stale_at = time.monotonic() + (AGAIN_SECONDS if told else FAILED_SECONDS)
        if told:  # a failure takes nothing back
            self._list = body
        self._found.clear()
        self.version += 1

    async def _fetch(self, headers: Headers) -> tuple[int, bytes]:
        """Status and body; no body but a list's. What the client said of its own body is left out."""
        ours = [h for h in headers if not h[0].startswith((b"content-", b"accept-enc", b"transfer-", b"if-"))]
        answer = await self.upstream.send("GET", b"/v1/models", ours, None)
        try:
            body = await answer.read(LIST_BYTES) if answer.status == 200 else b""
            return answer.status, body
        finally:
            await answer.close()

    async def _look(self, model: str) -> None:
        if len(self._list) <= INLINE_BYTES:
            found = from_models_answer(self._list, model)
        else:
            found = await asyncio.to_thread(from_models_answer, self._list, model)
        self._found.put(model, found or False)

    async def close(self) -> None:
        """Gives up a question that is under way."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.wait({self._question})
