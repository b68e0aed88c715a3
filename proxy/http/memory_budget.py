"""A memory budget for buffered request bodies, shared by all connections and all workers.

Theory of operation. A body reserves `FACTOR` times its decompressed size. It reserves before it is read, and releases
when its response begins. Each worker writes its reservations into its own row of a table in shared memory. To check
for room, a worker adds up all rows.

Two rules prevent starvation and deadlock:

* A body without a reservation waits in a queue, in order of arrival over all workers. No later body overtakes it, so
  small bodies do not starve a large one. Small bodies have a separate share, so large bodies that wait or arrive slowly
  do not block ordinary traffic.
* A body with a reservation that must grow (its length is not declared, or it is compressed) has priority over the
  queue. If the budget is exhausted, one such body over all workers waits. A second one fails and releases its
  reservation. So growing bodies never wait for one another, and one of several that grow together completes.

It reads no body and is independent of HTTP.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

FACTOR = 4  # bytes reserved per byte of a decompressed body: the body, its parsed form, and its rewritten form
SMALL = 64 * 1024  # bytes; bodies up to this size may use the share of small bodies
SMALL_SHARE = 8  # 1/8 of the budget is reserved for small bodies
STEP = 1 << 20  # bytes; the most that a growing body reserves ahead
ASSUMED_BODY = 16 * 1024  # bytes that are assumed for a body without a declared length
WAIT_TIMEOUT_S = 10.0  # timeout of the wait for room; clients retry a 503, and a retry may reach a less loaded instance
POLL_S = 0.02  # between two checks for room that another worker released
MOST_WAITING = 1_000  # requests in the queue of one worker
WAITING_SHARE = 8  # bytes already received of queued requests may take up to 1/8 of the budget

PROCESS = 160 << 20  # bytes of one process without bodies: code, encodings, bounded caches
WORKER = 80 << 20  # bytes of each further process; it shares the rest with the first
LEAST = 16 << 20  # bytes; the minimum of a derived budget
UNLIMITED = 1 << 60  # cgroup v1 reports "no limit" as a number near 2**63

# The columns of a row, and their number.
LARGE_BODIES, SMALL_BODIES, WAITS_SINCE, WAITING, GROWS_SINCE, PID, WIDTH = range(7)
Read = Callable[[str], str | None]


class Budget:
    """A budget of `total` bytes, shared by `workers` processes that are forked after it was made."""

    def __init__(self, total: int, workers: int = 1) -> None:
        self.total = total
        self._refused = {"wait": 0, "growth": 0, "size": 0}
        small = total // SMALL_SHARE
        self._limits = (total - small, small)
        self._table = memoryview(mmap.mmap(-1, 8 * WIDTH * workers)).cast("q")
        self._row = 0
        self._single_worker = workers == 1
        self._queue: deque[tuple[int, asyncio.Future[None], Room, int]] = deque()
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None

    # Called when workers start and end.

    def serve_as(self, number: int) -> None:
        """Assigns a row to this process, the worker with that number, and clears the row."""
        self._row = number * WIDTH
        for column in range(WIDTH):
            self._table[self._row + column] = 0
        self._table[self._row + PID] = os.getpid()

    def forget(self, pid: int) -> None:
        """Releases the reservations of a worker that has ended."""
        for row in range(0, len(self._table), WIDTH):
            if self._table[row + PID] == pid:
                for column in range(WIDTH):
                    self._table[row + column] = 0

    # The current state over all workers.

    @property
    def used(self) -> int:
        """Reserved bytes."""
        return sum(self._table[LARGE_BODIES::WIDTH]) + sum(self._table[SMALL_BODIES::WIDTH])

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return sum(self._table[WAITING::WIDTH])

    @property
    def refused(self) -> Mapping[str, int]:
        """Rejected bodies of this process by reason: `wait` (timeout or full queue), `growth` (no room to grow), `size`
        (larger than the budget)."""
        return self._refused

    def refuse(self, reason: str) -> None:
        """Counts a rejected body."""
        self._refused[reason] += 1

    @property
    def contended(self) -> bool:
        """Whether a request waits for room in any worker."""
        return any(self._table[WAITS_SINCE::WIDTH]) or any(self._table[GROWS_SINCE::WIDTH])

    def fits(self, size: int) -> bool:
        """Whether a body of `size` bytes fits into an otherwise empty budget."""
        cost = size * FACTOR
        return cost <= self._limits[LARGE_BODIES] or (size <= SMALL and cost <= self._limits[SMALL_BODIES])

    def room(self) -> Room:
        """Returns an empty reservation for one body."""
        return Room(self)

    # Called by Room.

    def take(self, column: int, cost: int) -> bool:
        """Reserves `cost` bytes if they are free. Returns whether it did."""
        table, cell = self._table, self._row + column
        table[cell] += cost  # add first, then check: two concurrent workers cannot both exceed the limit
        if (table[cell] if self._single_worker else sum(table[column::WIDTH])) <= self._limits[column]:
            return True
        table[cell] -= cost
        return False

    def release(self, column: int, cost: int) -> None:
        """Releases bytes."""
        self._table[self._row + column] -= cost
        if self._queue:
            self._admit()

    async def enqueue(self, room: Room, size: int, received: int) -> bool:
        """Waits in the queue until the room has reserved `size` bytes. Returns False immediately if the queue is full,
        by number of requests or by received bytes. `received` is the number of received bytes of this request."""
        if len(self._queue) >= MOST_WAITING or self._received + received > self.total // WAITING_SHARE:
            return False
        entry = (time.monotonic_ns(), asyncio.get_running_loop().create_future(), room, size)
        self._queue.append(entry)
        self._received += received
        self._admit()
        try:
            await entry[1]
        except BaseException:
            if entry in self._queue:
                self._queue.remove(entry)
            else:
                room.release()  # the reservation was granted just before the cancellation
            raise
        finally:
            self._received -= received
            self._admit()
        return True

    async def wait_for_growth(self, room: Room, size: int) -> bool:
        """Waits until the room has reserved `size` bytes, with priority over the queue. Returns False if another
        growing body already waits, or after `WAIT_TIMEOUT_S`."""
        cell, until = self._row + GROWS_SINCE, time.monotonic() + WAIT_TIMEOUT_S
        if self._table[cell]:
            return False
        self._table[cell] = time.monotonic_ns()  # set first, as in `take`: of two concurrent workers, neither waits
        try:
            if self._other_worker_grows():
                return False
            while not (granted := room.grow(size)) and time.monotonic() < until:
                await asyncio.sleep(POLL_S)
            return granted
        finally:
            self._table[cell] = 0

    def _other_worker_grows(self) -> bool:
        return self._oldest_elsewhere(GROWS_SINCE) is not None

    def _admit(self) -> None:
        """Grants queued reservations while there is room, this worker has the oldest one of all workers, and no growing
        body waits."""
        queue = self._queue
        while queue and self._is_first(queue[0][0]) and queue[0][2].reserve(queue[0][3]):
            _, granted, room, _ = queue.popleft()
            if granted.done():
                room.release()
            else:
                granted.set_result(None)
            self._publish()
        self._publish()
        if queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        self._timer = None
        self._admit()

    def _publish(self) -> None:
        self._table[self._row + WAITS_SINCE] = self._queue[0][0] if self._queue else 0
        self._table[self._row + WAITING] = len(self._queue)

    def _is_first(self, since: int) -> bool:
        if self._table[self._row + GROWS_SINCE] or self._other_worker_grows():
            return False
        other = self._oldest_elsewhere(WAITS_SINCE)
        return other is None or since <= other

    def _oldest_elsewhere(self, column: int) -> int | None:
        """Returns the oldest time in a column of the other workers, or None. Ignores times older than twice
        `WAIT_TIMEOUT_S`: their worker hangs."""
        stale = time.monotonic_ns() - int(2e9 * WAIT_TIMEOUT_S)
        own = self._row // WIDTH
        others = (at for number, at in enumerate(self._table[column::WIDTH]) if number != own and at > stale)
        return min(others, default=None)


class Room:
    """The reservation of one body. `release` ends it once the body is no longer needed. Further calls of `release`
    have no effect."""

    __slots__ = ("_budget", "_column", "_held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._column = SMALL_BODIES
        self._held = 0

    @property
    def contended(self) -> bool:
        """Whether a request waits for room in any worker."""
        return self._budget.contended

    def try_reserve(self, size: int) -> bool:
        """Reserves for a body of `size` bytes if no other request waits. Returns whether it did."""
        cost = size * FACTOR
        if size <= SMALL and self._budget.take(SMALL_BODIES, cost):
            self._held = cost
            return True
        return not self._budget.contended and self.reserve(size)

    def reserve(self, size: int) -> bool:
        """Reserves for a body of `size` bytes, even if other requests wait. Returns whether it did."""
        cost = size * FACTOR
        budget = self._budget
        if size <= SMALL and budget.take(SMALL_BODIES, cost):
            self._column, self._held = SMALL_BODIES, cost
            return True
        if not budget.take(LARGE_BODIES, cost):
            return False
        self._column, self._held = LARGE_BODIES, cost
        return True

    async def wait(self, size: int, received: int = 0) -> bool:
        """Reserves for a body of `size` bytes, waiting in the queue if necessary. Returns False if the queue is full.
        Cancellation leaves the queue."""
        return self.try_reserve(size) or await self._budget.enqueue(self, size, received)

    async def wait_to_grow(self, size: int) -> bool:
        """Like `grow`, but waits for room. If it returns False, the body must be rejected."""
        if self.grow(size) or (self.fits(size) and await self._budget.wait_for_growth(self, size)):
            return True
        self.refuse("growth")
        return False

    def grow(self, size: int) -> bool:
        """Extends the reservation for a body that has grown to `size` bytes, and reserves ahead if possible. Returns
        whether it did. Never waits."""
        if size * FACTOR <= self._held:
            return True
        budget, column, held = self._budget, self._column, self._held
        for wanted in (size + min(size, STEP), size):
            if column == LARGE_BODIES:
                if budget.take(LARGE_BODIES, wanted * FACTOR - held):
                    self._held = wanted * FACTOR
                    return True
            elif self.reserve(wanted):
                budget.release(column, held)
                return True
        return False

    def trim(self, size: int) -> None:
        """Releases what exceeds the needs of a complete body of `size` bytes."""
        if size * FACTOR < self._held:
            self._budget.release(self._column, self._held - size * FACTOR)
            self._held = size * FACTOR

    def another(self) -> Room:
        """Returns an empty reservation for a body that is kept for longer than this one."""
        return Room(self._budget)

    def fits(self, size: int) -> bool:
        """Whether a body of `size` bytes fits into an otherwise empty budget."""
        return self._budget.fits(size)

    def refuse(self, reason: str) -> None:
        """Counts a rejected body."""
        self._budget.refuse(reason)

    def release(self) -> None:
        """Releases the whole reservation."""
        if self._held:
            held, self._held = self._held, 0
            self._budget.release(self._column, held)


def derived(limit: int | None, workers: int) -> int:
    """Returns the default budget in bytes: half of the memory `limit` that the processes themselves leave. The other
    half is for connections, streamed data and memory that the allocator keeps."""
    if limit is None:
        return LEAST
    return max(LEAST, (limit - PROCESS - WORKER * (workers - 1)) // 2)


def memory_limit(read: Read) -> int | None:
    """Returns the memory limit of this process in bytes, or None if it is unknown: the least of the machine's memory
    and the limits of its cgroups (v1 and v2). `read` returns the text of a file."""
    return min(_limits(read), default=None)


def _limits(read: Read) -> Iterator[int]:
    machine = re.search(r"^MemTotal:\s+(\d+) kB", read("/proc/meminfo") or "", re.MULTILINE)
    if machine:
        yield int(machine[1]) * 1024
    for line in ["0::/", "1:memory:/", *(read("/proc/self/cgroup") or "").splitlines()]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        for folder in _upwards(path.rstrip("/")):  # a cgroup's limit applies to its children
            text = (read(f"{base}{folder}/{name}") or "").strip()
            if text.isdecimal() and int(text) < UNLIMITED:
                yield int(text)


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def read_text(path: str) -> str | None:
    """Returns a file's text, or None if it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return None
