"""The upstream's own list of models (`GET /v1/models`): a cached source of windows for models that no table contains.

It is fetched rarely and by one request at a time, and no client waits long for it. It does not decide which source of a
window takes precedence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.config.models_response import owner_from_models, window_from_models
from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.model.limits import Window
from proxy.upstreams.upstream import Sender
from proxy.wire.headers import CREDENTIALS

REQUEST_WAIT_S = 2.0  # how long a client's request waits for the list; a later response serves the next request
FETCH_TIMEOUT_S = 15.0
MAX_AGE_S = 600.0  # a list that does not contain a model may contain it later
RETRY_S = 60.0  # pause after a failure
MAX_LIST_BYTES = 8 * 1024 * 1024  # OpenRouter's list of models has about 1 MB
INLINE_BYTES = 64 * 1024  # a longer list is parsed in a thread
MAX_MODELS = 1_000  # remembered results: clients choose the names, and must not fill the memory
REJECTED_STATUSES = frozenset({401, 403})  # they concern one client's key, not the upstream's list
NO_LIST_STATUSES = frozenset({404, 405, 501})  # the upstream has no list: equivalent to an empty one

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class ModelsListing:
    """One upstream's list of models. `version` changes with each new list, so that callers can cache what they read."""

    upstream: Sender
    version: int = 0
    _windows: Bounded[str, Window | Literal[False]] = field(default_factory=lambda: Bounded(MAX_MODELS))
    _owners: Bounded[str, str] = field(default_factory=lambda: Bounded(MAX_MODELS))
    _body: bytes = b""
    _expires_at: float = 0.0
    _fetched_at: float = 0.0
    # Until when credentials that the upstream rejected are not used again, by their hash.
    _rejected_until: Bounded[int, float] = field(default_factory=lambda: Bounded(MAX_MODELS))
    _fetch_task: asyncio.Task[None] | None = None

    def window(self, model: str) -> Window | None:
        """The window that the list gives for a model; None if `load` has not found one. No I/O."""
        return self._windows.get(model) or None

    def owner(self, model: str) -> str:
        """Who a short list says owns a model (`vllm`); empty if it does not, or is not read yet. No I/O."""
        if not 0 < len(self._body) <= INLINE_BYTES:  # the list of a provider with very many models
            return ""
        found = self._owners.get(model)
        return self._owners.put(model, owner_from_models(self._body, model)) if found is None else found

    async def load(self, model: str, headers: Headers, max_age: float | None = None) -> None:
        """Makes `window(model)` available. Fetches the list with the client's credentials if it is expired, or older
        than `max_age` seconds. Waits at most `REQUEST_WAIT_S`. Never raises."""
        credentials = hash(frozenset(header for header in headers if header[0] in CREDENTIALS))
        if self._is_due(max_age) and time.monotonic() >= (self._rejected_until.get(credentials) or 0.0):
            running = self._fetch_task
            if running is not None:
                await asyncio.wait({running}, timeout=REQUEST_WAIT_S)
            if running is None or (running.done() and self._fetch_task is None and self._is_due(max_age)):
                self._fetch_task = asyncio.create_task(self._fetch(headers, credentials))
            if self._fetch_task is not None and self._fetch_task is not running:
                await asyncio.wait({self._fetch_task}, timeout=REQUEST_WAIT_S)
        if self._fetch_task is None and model not in self._windows:
            await self._look_up(model)

    def mark_unreachable(self) -> None:
        """Records that the upstream could not be reached: it may return with another list, so the list's age is no
        longer known."""
        self._fetched_at = -MAX_AGE_S

    def _is_due(self, max_age: float | None) -> bool:
        now = time.monotonic()
        return now >= self._expires_at or (max_age is not None and now - self._fetched_at >= max_age)

    async def _fetch(self, headers: Headers, credentials: int) -> None:
        before, self._fetched_at = self._fetched_at, time.monotonic()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                status, body = await self._get(headers)
        except (UpstreamError, TimeoutError):
            status, body = 0, b""
        finally:
            self._fetch_task = None
        if status in REJECTED_STATUSES:
            self._rejected_until.put(credentials, time.monotonic() + RETRY_S)
            self._fetched_at = before
            return
        succeeded = status == 200 or status in NO_LIST_STATUSES
        self._expires_at = time.monotonic() + (MAX_AGE_S if succeeded else RETRY_S)
        if succeeded:  # after a failure the previous list remains valid
            self._body = body
        self._windows.clear()
        self._owners.clear()
        self.version += 1

    async def _get(self, headers: Headers) -> tuple[int, bytes]:
        """Status and body; the body is empty unless the status is 200. Headers that describe the client's body are
        not forwarded."""
        forwarded = [h for h in headers if not h[0].startswith((b"content-", b"accept-enc", b"transfer-", b"if-"))]
        answer = await self.upstream.send("GET", b"/v1/models", forwarded, None)
        try:
            body = await answer.read(MAX_LIST_BYTES) if answer.status == 200 else b""
            return answer.status, body
        finally:
            await answer.close()

    async def _look_up(self, model: str) -> None:
        if len(self._body) <= INLINE_BYTES:
            window = window_from_models(self._body, model)
        else:
            window = await asyncio.to_thread(window_from_models, self._body, model)
        self._windows.put(model, window or False)

    async def close(self) -> None:
        """Cancels a fetch that is in progress."""
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.wait({self._fetch_task})
