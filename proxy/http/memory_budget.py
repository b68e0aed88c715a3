"""One memory budget for the request bodies that are buffered: over all connections, and over all workers.

Theory of operation. A body holds `FACTOR` times its unpacked size from before it is read until its answer begins. Each
worker writes what it holds into its own row of a table in shared memory, and whoever wants room adds up all rows.
Two rules keep it live:

* Who holds nothing waits in line, oldest first over all workers, and no younger one goes before: a large body is not
  starved by small ones. Small bodies have a share of their own, so that large ones that wait, or come slowly, do not
  stop ordinary traffic.
* Who holds something (a body without a length, or a packed one, that grows) goes before all who wait in line. Where
  there is no room, one of them over all workers waits; whoever comes to that second gives up and returns what it holds.
  So half-grown bodies cannot wait for one another, and of those that grow in step one is served.

It reads no body and knows no HTTP.
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

FACTOR = 4  # bytes held for each byte of an unpacked body: itself, what was read of it, and what is written anew
SMALL = 64 * 1024  # bytes of a body that may use the share of small ones
SMALL_SHARE = 8  # one part in so many of the budget is for small bodies alone
STEP = 1 << 20  # bytes by which a body that grows asks for more at most
FIRST = 16 * 1024  # bytes that a body without a length is taken to have
PATIENCE_S = 10.0  # longest wait for room; clients repeat a 503 by themselves, and better elsewhere than here
POLL_S = 0.02  # between two looks for room that another worker gave back
MOST_WAITING = 1_000  # requests of one worker that wait in line
WAITING_SHARE = 8  # one part in so many of the budget is the most that requests in line may have sent already

PROCESS = 160 << 20  # bytes that one process takes besides bodies: code, encodings, bounded memories
WORKER = 80 << 20  # each further one; the rest is shared with the first
LEAST = 16 << 20  # bytes of a derived budget
UNLIMITED = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63

MAIN, YOUNG, SINCE, COUNT, GROWS, PID, WIDTH = range(7)  # the columns of a row, and how many there are
Read = Callable[[str], str | None]


class Budget:
    """So many bytes, shared by `workers` processes that are forked after it was made."""

    def __init__(self, total: int, workers: int = 1) -> None:
        self.total = total
        self._refused = {"wait": 0, "growth": 0, "size": 0}
        small = total // SMALL_SHARE
        self._limits = (total - small, small)
        self._table = memoryview(mmap.mmap(-1, 8 * WIDTH * workers)).cast("q")
        self._row = 0
        self._alone = workers == 1
        self._line: deque[tuple[int, asyncio.Future[None], Room, int]] = deque()
        self._here = 0
        self._timer: asyncio.TimerHandle | None = None

    # What the parent of several workers tells.

    def serve_as(self, number: int) -> None:
        """This process is the worker of that number, and begins with nothing."""
        self._row = number * WIDTH
        for column in range(WIDTH):
            self._table[self._row + column] = 0
        self._table[self._row + PID] = os.getpid()

    def forget(self, pid: int) -> None:
        """A worker is dead: what it held is free again."""
        for row in range(0, len(self._table), WIDTH):
            if self._table[row + PID] == pid:
                for column in range(WIDTH):
                    self._table[row + column] = 0

    # What is so now, over all workers.

    @property
    def used(self) -> int:
        """Bytes that are held."""
        return sum(self._table[MAIN::WIDTH]) + sum(self._table[YOUNG::WIDTH])

    @property
    def waiting(self) -> int:
        """Requests that wait in line."""
        return sum(self._table[COUNT::WIDTH])

    @property
    def refused(self) -> Mapping[str, int]:
        """How many bodies found no room in this process: in time, while they grew, or ever."""
        return self._refused

    def refuse(self, reason: str) -> None:
        """Counts a body that found no room."""
        self._refused[reason] += 1

    @property
    def pressed(self) -> bool:
        """Whether somebody waits."""
        return any(self._table[SINCE::WIDTH]) or any(self._table[GROWS::WIDTH])

    def fits(self, size: int) -> bool:
        """Whether a body of `size` bytes could be held if there were no other."""
        return size * FACTOR <= self._limits[MAIN] or (size <= SMALL and size * FACTOR <= self._limits[YOUNG])

    def room(self) -> Room:
        """A place for one body; it holds nothing yet."""
        return Room(self)

    # What a Room asks.

    def take(self, column: int, cost: int) -> bool:
        """Takes so many bytes, if they are free."""
        table, mine = self._table, self._row + column
        table[mine] += cost  # ours goes first: of two workers that take the last room at once, none takes too much
        if (table[mine] if self._alone else sum(table[column::WIDTH])) <= self._limits[column]:
            return True
        table[mine] -= cost
        return False

    def give(self, column: int, cost: int) -> None:
        """Gives bytes back."""
        self._table[self._row + column] -= cost
        if self._line:
            self._admit()

    async def turn(self, room: Room, size: int, here: int) -> bool:
        """Waits in line until the room holds `size` bytes. False at once where too many wait, or have sent too much
        (`here`: bytes of this one that came already) to wait."""
        if len(self._line) >= MOST_WAITING or self._here + here > self.total // WAITING_SHARE:
            return False
        place = (time.monotonic_ns(), asyncio.get_running_loop().create_future(), room, size)
        self._line.append(place)
        self._here += here
        self._admit()
        try:
            await place[1]
        except BaseException:
            if place in self._line:
                self._line.remove(place)
            else:
                room.leave()  # it was granted in the moment in which the client was given up
            raise
        finally:
            self._here -= here
            self._admit()
        return True

    async def growth(self, room: Room, size: int) -> bool:
        """Waits until the room holds `size` bytes, before all who wait in line. False where another one waits so, or
        there is no room in time."""
        mine, until = self._row + GROWS, time.monotonic() + PATIENCE_S
        if self._table[mine]:
            return False
        self._table[mine] = time.monotonic_ns()  # first, as in `take`: of two workers at once, none waits
        try:
            if self._grows_elsewhere():
                return False
            while not (granted := room.grow(size)) and time.monotonic() < until:
                await asyncio.sleep(POLL_S)
            return granted
        finally:
            self._table[mine] = 0

    def _grows_elsewhere(self) -> bool:
        return self._first_elsewhere(GROWS) is not None

    def _admit(self) -> None:
        """Lets in who is first in line over all workers, as long as there is room that nobody waits for to grow."""
        line = self._line
        while line and self._is_first(line[0][0]) and line[0][2].move(line[0][3]):
            _, granted, room, _ = line.popleft()
            if granted.done():
                room.leave()
            else:
                granted.set_result(None)
            self._tell()
        self._tell()
        if line and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._look)

    def _look(self) -> None:
        self._timer = None
        self._admit()

    def _tell(self) -> None:
        self._table[self._row + SINCE] = self._line[0][0] if self._line else 0
        self._table[self._row + COUNT] = len(self._line)

    def _is_first(self, since: int) -> bool:
        if self._table[self._row + GROWS] or self._grows_elsewhere():
            return False
        other = self._first_elsewhere(SINCE)
        return other is None or since <= other

    def _first_elsewhere(self, column: int) -> int | None:
        """Since when another worker's first waits. One that waits for too long does not move: its worker hangs."""
        stale = time.monotonic_ns() - int(2e9 * PATIENCE_S)
        own = self._row // WIDTH
        others = (at for number, at in enumerate(self._table[column::WIDTH]) if number != own and at > stale)
        return min(others, default=None)


class Room:
    """What one body holds of the budget. It is left as soon as the body is not needed, and can be left twice."""

    __slots__ = ("_budget", "_column", "_held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._column = YOUNG
        self._held = 0

    @property
    def pressed(self) -> bool:
        """Whether others wait for room."""
        return self._budget.pressed

    def now(self, size: int) -> bool:
        """Holds room for a body of `size` bytes, if nobody need wait for it."""
        cost = size * FACTOR
        if size <= SMALL and self._budget.take(YOUNG, cost):
            self._held = cost
            return True
        return not self._budget.pressed and self.move(size)

    def move(self, size: int) -> bool:
        """The same, and lets nobody go before it."""
        cost = size * FACTOR
        budget = self._budget
        if size <= SMALL and budget.take(YOUNG, cost):
            self._column, self._held = YOUNG, cost
            return True
        if not budget.take(MAIN, cost):
            return False
        self._column, self._held = MAIN, cost
        return True

    async def wait(self, size: int, here: int = 0) -> bool:
        """Holds room for a body of `size` bytes as soon as its turn comes. False where it is of no use to wait.
        Whoever cancels it has left the line."""
        return self.now(size) or await self._budget.turn(self, size, here)

    async def grown(self, size: int) -> bool:
        """As `grow`, and waits for room if nobody else does so. False where it must be given up."""
        if self.grow(size) or (self.fits(size) and await self._budget.growth(self, size)):
            return True
        self.refuse("growth")
        return False

    def grow(self, size: int) -> bool:
        """Holds room for a body that has become `size` bytes, and for some of what is to come, if there is any now."""
        if size * FACTOR <= self._held:
            return True
        budget, column, held = self._budget, self._column, self._held
        for wanted in (size + min(size, STEP), size):
            if column == MAIN:
                if budget.take(MAIN, wanted * FACTOR - held):
                    self._held = wanted * FACTOR
                    return True
            elif self.move(wanted):
                budget.give(column, held)
                return True
        return False

    def settle(self, size: int) -> None:
        """Holds no more than a body of `size` bytes needs: that is all of it."""
        if size * FACTOR < self._held:
            self._budget.give(self._column, self._held - size * FACTOR)
            self._held = size * FACTOR

    def another(self) -> Room:
        """A place for a body that is kept for longer than this one."""
        return Room(self._budget)

    def fits(self, size: int) -> bool:
        """Whether a body of `size` bytes could ever be held."""
        return self._budget.fits(size)

    def refuse(self, reason: str) -> None:
        """Counts a body that found no room."""
        self._budget.refuse(reason)

    def leave(self) -> None:
        """Gives all of it back."""
        if self._held:
            held, self._held = self._held, 0
            self._budget.give(self._column, held)


def derived(limit: int | None, workers: int) -> int:
    """The budget where no setting gives one: half of what a machine or cgroup of `limit` bytes has besides the
    processes themselves. The other half is for connections, what passes through, and what the allocator keeps."""
    if limit is None:
        return LEAST
    return max(LEAST, (limit - PROCESS - WORKER * (workers - 1)) // 2)


def memory_limit(read: Read) -> int | None:
    """Bytes of memory that this process may use: the least of the machine's and its cgroups' (v1 and v2), from what
    `read` finds in files; None where nothing is said."""
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
        for folder in _upwards(path.rstrip("/")):  # a limit of a cgroup holds for those in it
            text = (read(f"{base}{folder}/{name}") or "").strip()
            if text.isdecimal() and int(text) < UNLIMITED:
                yield int(text)


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def read_text(path: str) -> str | None:
    """A file's text; None where there is none."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return None
