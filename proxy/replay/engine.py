"""Runs a replay: reads in order, plans in all cores, and adds up in order, in bounded memory.

Theory of operation. The parent reads requests in the order of their times and hands them out in chunks. Worker
processes plan them: that takes nearly all of the time, and a plan depends on its request alone. The parent takes the
results in the same order, since what a provider's prompt cache holds depends on it. At most a few chunks are on the
way. A worker that dies (of a request that takes all memory) loses no more than that request: its chunk is planned
again, one request at a time.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from proxy.config.settings import Settings
from proxy.replay.order import Placed
from proxy.replay.plan_worker import Column, Cut, Planned, Planning

CHUNK_REQUESTS, CHUNK_BYTES = 64, 2 << 20
AHEAD = 3  # chunks on the way for each worker
WORST = 3  # cuts to look at
LEAST_CUT = 0.01  # of the prompt
DIED = "planning it ended the process: it needs too much memory"

_planning: list[Planning] = []  # of a worker process


class Result(msgspec.Struct, frozen=True):
    """What came of one request: without its body, for each column. `cuts`: by column, where they may be among the worst
    that were seen."""

    placed: Placed
    planned: tuple[Planned, ...]
    cuts: tuple[Cut | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be done. `jobs`: worker processes; 0 means this one. `content`, `reports`: see `Planning`."""

    settings: Settings
    columns: Sequence[Column]
    jobs: int = 1
    content: bool = False
    reports: bool = False

    def planning(self) -> Planning:
        """What plans."""
        return Planning(self.settings, self.columns, self.content, self.reports)


def results(requests: Iterable[Placed], options: Options) -> Iterator[Result]:
    """The results of all requests, in their order. One chunk alone is planned here: starting workers takes a second."""
    chunks = _chunks(requests)
    first = list(islice(chunks, 2))
    if options.jobs == 0 or len(first) < 2:
        with options.planning() as planning:
            for chunk in chain(first, chunks):
                yield from _here(planning, chunk)
        return
    workers = Workers(options)
    try:
        yield from workers.results(chain(first, chunks))
    finally:
        workers.close()


def _here(planning: Planning, chunk: Sequence[Placed]) -> list[Result]:
    """Plans a chunk. Of the cuts, only those that may be among the worst have their rows made."""
    found = []
    worst: list[dict[int, float]] = [{} for _ in planning.columns]
    for placed in chunk:
        planned, cuts = [], []
        pairs = planning.plan(placed.recorded) if placed.recorded.body else ()
        for place, (made, plan) in enumerate(pairs):
            planned.append(made)
            shows = (
                plan is not None and made.share_cut >= LEAST_CUT and is_among(worst[place], made.talk, made.share_cut)
            )
            cuts.append(planning.cut(made, plan) if shows and plan is not None else None)
        found.append(Result(placed._replace(recorded=replace(placed.recorded, body=b"")), tuple(planned), tuple(cuts)))
    return found


def is_among(worst: dict[int, float], talk: int, share: float) -> bool:
    """Whether a share is among the worst so far, of which each conversation has one; then it is kept there."""
    if share <= worst.get(talk, 0.0):
        return False
    worst[talk] = share
    if len(worst) > WORST:
        least = min(worst, key=lambda one: worst[one])
        del worst[least]
        return least != talk
    return True


def _chunks(requests: Iterable[Placed]) -> Iterator[list[Placed]]:
    chunk: list[Placed] = []
    size = 0
    for placed in requests:
        chunk.append(placed)
        size += len(placed.recorded.body)
        if len(chunk) >= CHUNK_REQUESTS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _start(options: Options) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    _planning.append(options.planning())


def _there(chunk: Sequence[Placed]) -> list[Result]:
    return _here(_planning[0], chunk)


@dataclass(slots=True)
class Workers:
    """Worker processes, and the chunks that are on the way to them."""

    options: Options
    start: Callable[[Options], None] = _start
    work: Callable[[Sequence[Placed]], list[Result]] = _there
    _pool: ProcessPoolExecutor = field(init=False)
    _waiting: deque[tuple[list[Placed], Future[list[Result]]]] = field(init=False, default_factory=deque)

    def __post_init__(self) -> None:
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.options.jobs, context, initializer=self.start, initargs=(self.options,))

    def results(self, chunks: Iterable[list[Placed]]) -> Iterator[Result]:
        """The results of chunks, in their order."""
        for chunk in chunks:
            self._submit(chunk)
            while len(self._waiting) > AHEAD * self.options.jobs:
                yield from self._next()
        while self._waiting:
            yield from self._next()

    def _submit(self, chunk: list[Placed]) -> None:
        try:
            future = self._pool.submit(self.work, chunk)
        except BrokenProcessPool:
            future = Future()
            future.set_exception(BrokenProcessPool())
        self._waiting.append((chunk, future))

    def _next(self) -> list[Result]:
        chunk, future = self._waiting.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            return self._again(chunk)

    def _again(self, chunk: Sequence[Placed]) -> list[Result]:
        """Plans a chunk whose worker died, one request at a time; then the chunks behind it."""
        found: list[Result] = []
        self._restart()
        for placed in chunk:
            try:
                found += self._pool.submit(self.work, [placed]).result()
            except BrokenProcessPool:
                died = tuple(Planned(unplanned=DIED) for _ in self.options.columns)
                found.append(Result(placed._replace(recorded=replace(placed.recorded, body=b"")), died))
                self._restart()
        waiting, self._waiting = self._waiting, deque()
        for later, _ in waiting:
            self._submit(later)
        return found

    def _restart(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._new()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
