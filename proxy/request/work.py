"""Bounded pools of threads: for work that a request waits for, for background work that may be dropped, for inspecting.

Python's interpreter lock is shared: more threads only take turns, except while an encoding counts. Two threads serve
requests, one serves background work, so background work never delays a request for more than one turn of the lock. What
is inspected has a thread of its own, one body after another, and no other thread works for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from proxy.errors import ClientError

REQUEST_THREADS = 2
BACKGROUND_THREADS = 1
INLINE_BYTES = 8_192  # less text than this is counted inline: handing it to a thread costs more than counting it
HEAVY_BYTES = 1 << 20  # a longer body is parsed and rendered in a thread: it would hold up the event loop for over 5 ms
MAX_TASKS, MAX_TASK_BYTES = 64, 32 << 20  # background tasks at a time, and the bytes of the bodies that they refer to
MAX_WAITING = 16  # bodies that wait to be inspected
T = TypeVar("T")

# The thread of a task that must delay no other: all of its work runs there. None: a task that is served first.
_APART: ContextVar[ThreadPoolExecutor | None] = ContextVar("apart", default=None)


@dataclass(frozen=True, slots=True)
class Pool:
    """Runs work inline, or in a thread where it would hold up the event loop."""

    executor: ThreadPoolExecutor

    async def run(self, heavy: bool, work: Callable[..., T], *args: object) -> T:
        """The result of `work(*args)`; `heavy` work runs in a thread. Raises what the work raises."""
        apart = _APART.get()
        if not heavy and apart is None:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(apart or self.executor, work, *args)

    def close(self) -> None:
        """Cancels the work that has not begun."""
        self.executor.shutdown(wait=False, cancel_futures=True)


def request_pool() -> Pool:
    """The pool for work that requests wait for."""
    return Pool(ThreadPoolExecutor(REQUEST_THREADS, thread_name_prefix="count"))


def background_pool() -> Pool:
    """The pool for work that no request waits for."""
    return Pool(ThreadPoolExecutor(BACKGROUND_THREADS, thread_name_prefix="background"))


@dataclass(slots=True)
class Turns:
    """Work for which nothing else may wait: one task at a time, in order, in a thread of its own."""

    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="inspect"))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: int = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The turn of this task: what it gives to a `Pool` runs in the thread. Raises `ClientError` where too many
        wait."""
        if self._waiting >= MAX_WAITING:
            raise ClientError(503, "Too many bodies wait to be inspected.", code="overloaded", retry=True, after=1)
        self._waiting += 1
        try:
            async with self._turn:
                before = _APART.set(self.executor)
                try:
                    yield
                finally:
                    _APART.reset(before)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Cancels the work that has not begun."""
        self.executor.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True)
class Background:
    """Tasks that no request waits for, bounded by number and by the bytes of the bodies that they keep in memory."""

    pool: Pool = field(default_factory=background_pool)
    tasks: dict[asyncio.Task[Any], int] = field(default_factory=dict)  # with the bytes of the task's body

    def has_capacity(self, size: int) -> bool:
        """Whether a task with a body of `size` bytes may start."""
        return len(self.tasks) < MAX_TASKS and sum(self.tasks.values()) + size <= MAX_TASK_BYTES

    def start(self, work: Coroutine[Any, Any, T], size: int) -> asyncio.Task[T]:
        """Starts a task with a body of `size` bytes. The caller checks `has_capacity` first."""
        task = asyncio.create_task(work)
        self.tasks[task] = size
        task.add_done_callback(self.tasks.pop)
        return task

    async def close(self) -> None:
        """Cancels all tasks, waits for them, and closes the pool."""
        await cancelled(tuple(self.tasks))
        self.pool.close()


async def cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits until all have ended. Never raises what they raise."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
