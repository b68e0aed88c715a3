"""Exports traces in the background. No request waits for it; what a slow collector does not take is dropped, counted.

It opens no connection itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from proxy.model.outcome import Outcome

MAX_QUEUED = 4096  # requests, about 6 MB; further ones are dropped
MAX_BATCH = 512  # requests in one export
BATCH_DELAY_S = 1.0
RETRY_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
FLUSH_S = 3.0  # what an exit waits at most; Kubernetes gives 10 seconds after the drain
# https://opentelemetry.io/docs/specs/otlp/#failures-1; 0: no response. All others are final.
RETRYABLE = frozenset((0, 429, 502, 503, 504))


class TraceExporter:
    """Exports the traces of the outcomes that it is called with.

    `encode` makes the body of an export, in a thread. `post` sends it and returns the status of the response, 0 if
    there was none.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[Outcome]], bytes],
        post: Callable[[bytes], Awaitable[int]],
        event: Callable[..., None],
    ) -> None:
        self._encode, self._post, self._event = encode, post, event
        self._queue: deque[Outcome] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failing = False
        self._results = Counter(exported=0, dropped=0, failed=0)

    def __call__(self, outcome: Outcome) -> None:
        """Queues the trace of an outcome, if it has one, and returns at once."""
        if outcome.trace is None:
            return
        if len(self._queue) >= MAX_QUEUED:
            self._results["dropped"] += 1
            return
        self._queue.append(outcome)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def results(self) -> Mapping[tuple[str], int]:
        """Traced requests since the start, by what became of their spans: exported, dropped because the queue was full,
        or failed at the collector."""
        return {(result,): count for result, count in self._results.items()}

    async def close(self) -> None:
        """Exports what is queued, within `FLUSH_S` and without retries."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=FLUSH_S)
            if self._task is not None:
                self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._queue:
                if len(self._queue) < MAX_BATCH:
                    await self._pause(BATCH_DELAY_S)
                await self._export([self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))])
        finally:
            self._task = None

    async def _pause(self, seconds: float) -> None:
        """Waits; not while the process ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _export(self, batch: Sequence[Outcome]) -> None:
        try:
            status = await self._send(await asyncio.to_thread(self._encode, batch))
            reason: object = status or "no response"
        except Exception as error:  # a bug of ours loses these traces, and nothing else
            status, reason = 0, type(error).__name__
        taken = 200 <= status < 300
        self._results["exported" if taken else "failed"] += len(batch)
        if taken and self._failing:
            self._event("traces are exported again")
        elif not taken and not self._failing:
            self._event("traces are not exported", reason=reason)
        self._failing = not taken

    async def _send(self, body: bytes) -> int:
        status = await self._post(body)
        for seconds in RETRY_PAUSES_S:
            if status not in RETRYABLE or self._closing.is_set():
                break
            await self._pause(seconds)
            status = await self._post(body)
        return status
