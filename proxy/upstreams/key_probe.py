"""Asks an upstream whether it knows a caller's own key, where nothing is known of that caller.

Theory of operation
===================

The question is a GET of a path that a row of key_checks.toml names, with the client's own headers. An answer with 2xx
counts only where the same path refuses an invented key: some lists of models are open to everybody. Nothing else is
learned from it, least of all a refusal. It costs nobody anything, is asked once in a while for each caller, and no
request waits long for it; an answer that comes later serves the caller's next request.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.http.client.answer import UpstreamError
from proxy.model.bounded import Bounded
from proxy.upstreams.extra_calls import ExtraCalls
from proxy.upstreams.internal_client import DROPPED_PREFIXES, caller_of
from proxy.upstreams.key_checks import REFUSING, KeyChecks
from proxy.upstreams.models_listing import Headers
from proxy.upstreams.upstream import Sender
from proxy.wire.headers import CREDENTIALS, QUERY, Header

KIND, OK, FAILED, BUSY = "key", "ok", "failed", "busy"
WAIT_S = 2.0  # how long a request waits
TIMEOUT_S = 10.0  # of a question
AGAIN_S = 300.0  # before the same caller is asked for again
TESTED_S = 3_600.0  # how long it is known that a path refuses invented keys, or that it does not
RETRY_S = 60.0  # after an answer that says neither
MAX_CALLERS = 10_000  # that are remembered: clients invent keys
MOST_AT_ONCE = 16  # for the same reason


@dataclass(slots=True)
class KeyProbe:
    """Asks one upstream. `keys` say whether it checks keys and by which path, `extra_calls` is told who is accepted."""

    upstream: Sender
    keys: KeyChecks
    extra_calls: ExtraCalls
    _next_at: Bounded[bytes, float] = field(default_factory=lambda: Bounded(MAX_CALLERS))
    _running: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    _test: asyncio.Task[None] | None = None
    _is_closed: bool = False  # the path refuses invented keys
    _tested_until: float = 0.0

    async def ask(self, headers: Headers) -> None:
        """Asks for the caller of a request with these headers, unless that was done a short time ago. Waits `WAIT_S`
        at most. Never raises."""
        if not self.keys.probe or not self.keys.checked or not any(name in CREDENTIALS for name, _ in headers):
            return
        caller = caller_of(headers)
        if self.extra_calls.accepted.knows(caller):
            return
        task = self._running.get(caller)
        if task is None:
            if time.monotonic() < (self._next_at.get(caller) or 0.0):
                return
            if len(self._running) >= MOST_AT_ONCE:
                self.extra_calls.record_call(KIND, BUSY)
                return
            self._next_at.put(caller, time.monotonic() + AGAIN_S)
            task = self._running[caller] = asyncio.create_task(self._ask(caller, _asking(headers)))
        await asyncio.wait({task}, timeout=WAIT_S)

    async def _ask(self, caller: bytes, headers: Sequence[Header]) -> None:
        began, result = time.perf_counter(), FAILED
        try:
            if self._test is None and time.monotonic() >= self._tested_until:
                self._test = asyncio.create_task(self._try_invented(headers))
            status = await self._status(headers)
            if self._test is not None:
                await asyncio.shield(self._test)
            if self._is_closed and 200 <= status < 300:
                self.extra_calls.record_response(caller, status)
                result = OK
        finally:
            del self._running[caller]
            self.extra_calls.record_call(KIND, result, seconds=time.perf_counter() - began)

    async def _try_invented(self, headers: Sequence[Header]) -> None:
        """Learns whether the path refuses a key that nobody has."""
        try:
            status = await self._status(_invented(headers))
            says = status in REFUSING or 200 <= status < 300
            self._is_closed = status in REFUSING
            self._tested_until = time.monotonic() + (TESTED_S if says else RETRY_S)
        finally:
            self._test = None

    async def _status(self, headers: Sequence[Header]) -> int:
        """The status of the answer; 0 if there is none."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self.upstream.send("GET", self.keys.probe.encode(), headers, None)
                await answer.close()
                return answer.status
        except (UpstreamError, TimeoutError):
            return 0

    async def close(self) -> None:
        """Cancels what is under way."""
        tasks = [*self._running.values(), *([] if self._test is None else [self._test])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _asking(headers: Headers) -> list[Header]:
    """A client's headers, without those that describe its own request."""
    return [h for h in headers if not h[0].startswith(DROPPED_PREFIXES) and h[0] not in (b"cookie", QUERY)]


def _invented(headers: Sequence[Header]) -> list[Header]:
    """The same headers with keys that nobody has."""
    return [(name, _other_key(value)) if name in CREDENTIALS else (name, value) for name, value in headers]


def _other_key(value: bytes) -> bytes:
    scheme, blank, _ = value.rpartition(b" ")
    return scheme + blank + b"sk-" + os.urandom(24).hex().encode()
