"""A memory budget for buffered request bodies, shared by all connections and all workers.

Theory of operation. A body takes `FACTOR` times its decompressed size, until its response begins. It is admitted once
its declared size is free, and reserves that for as long as nobody misses it. Once others have waited for `PATIENCE_S`,
a body that takes longer than `GRACE_S` holds only what has arrived and one `STEP`, and grows from there. Each worker
writes its reservations into its own row of a table in shared memory. To check for room, a worker adds up all rows.

These rules prevent starvation and deadlock:

* Bodies without a reservation wait in a queue. Callers take turns; within one caller, and between the workers' turns,
  the oldest is first. One that has waited `OVERTAKE_S` goes before larger ones that find no room. Small bodies have a
  separate share, so large bodies that wait or arrive slowly do not block ordinary traffic.
* No caller holds more than half while others wait, except with the only body that it has. A caller beyond that gets no
  more, and once another has waited `PATIENCE_S`, its youngest body that still arrives gives way: it is refused.
* A body with a reservation that must grow goes before the queue. It waits for `PATIENCE_S` at most while others wait in
  the queue, for half of that while an older body waits to grow. So of half-read bodies that wait for one another the
  younger ones are refused, and what they held is free for the oldest.

It reads no body and is independent of HTTP. Callers are opaque: `identify` names them.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

FACTOR = 4  # bytes reserved per byte of a decompressed body: the body, its parsed form, and its rewritten form
SMALL = 64 * 1024  # bytes; bodies up to this size may use the share of small bodies
SMALL_SHARE = 8  # 1/8 of the budget is reserved for small bodies
STEP = 1 << 20  # bytes; the most that a growing body reserves ahead
ASSUMED_BODY = 16 * 1024  # bytes that are assumed for a body without a declared length
WAIT_TIMEOUT_S = 10.0  # timeout of the wait for room; clients retry a 503, and a retry may reach a less loaded instance
GRACE_S = 1.0  # for which an arriving body keeps the reservation of its declared size in any case
PATIENCE_S = 0.8  # of those who wait; then bodies that arrive slowly, wait to grow, or are of a caller over half yield
OVERTAKE_S = 1.5  # after which a body goes before larger ones that find no room
WHOLE_S = 30.0  # in which a body must arrive while others wait: the minimum rate follows from its size
LEAST_RATE = 64 * 1024  # bytes per second that any body must reach then
POLL_S = 0.02  # between two checks for room that another worker released
MOST_WAITING = 1_000  # requests in the queue of one worker; one caller may take half of it
WAITING_SHARE = 8  # bytes already received of queued requests may take up to 1/8 of the budget; one caller's a 1/16
MOST_GROWING = 100  # bodies of one worker that wait to grow

# The columns of a row: reserved bytes; since when whoever is next waits, its oldest request, and its oldest request of
# another caller than that one (nanoseconds, 0: nobody); requests in the queue; since when a body waits to grow; the
# process. Behind them reserved bytes by caller: digests of callers fall into so many shares.
LARGE_BODIES, SMALL_BODIES, NEXT_SINCE, OLDEST, OLDEST_SHARE, OTHERS_OLDEST, WAITING, GROWS_SINCE, PID, HELD = range(10)
SHARES = 16_384  # two callers in one of them are taken for one: 128 KiB for each worker make that seldom
WIDTH = HELD + SHARES
NOTHING = memoryview(bytes(8 * WIDTH)).cast("q")
Identify = Callable[[Any], bytes]


@dataclass(slots=True, eq=False)
class _Entry:
    """A request in the queue: `since` in nanoseconds, `size` of its body and `received` of it in bytes."""

    since: int
    room: Room
    size: int
    received: int
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Budget:
    """A budget of `total` bytes, shared by `workers` processes that are forked after it was made. `identify` returns
    the caller of what a room was made for. `clock`: seconds, the same in all processes."""

    def __init__(self, total: int, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock = total, clock
        self.identify: Identify = lambda who: b""
        self._key = os.urandom(16)  # nobody can aim at another caller's share
        self._refused = {"wait": 0, "growth": 0, "size": 0, "half": 0}
        small = total // SMALL_SHARE
        self._limits = (total - small, small)
        self._half = (total - small) // 2
        self._table = memoryview(mmap.mmap(-1, 8 * WIDTH * workers)).cast("q")
        self._row = 0
        self._single_worker = workers == 1
        self._queues: dict[int, deque[_Entry]] = {}  # by share; whose turn is next is first
        self._growing: dict[Room, int] = {}  # since when, the oldest first
        self._arriving: dict[Room, None] = {}  # in the order of their arrival
        self._timer: asyncio.TimerHandle | None = None

    # Called when workers start and end.

    def serve_as(self, number: int) -> None:
        """Assigns a row to this process, the worker with that number, and clears the row."""
        self._row = number * WIDTH
        self._clear(self._row)
        self._table[self._row + PID] = os.getpid()

    def forget(self, pid: int) -> None:
        """Releases the reservations of a worker that has ended."""
        for row in range(0, len(self._table), WIDTH):
            if self._table[row + PID] == pid:
                self._clear(row)

    def _clear(self, row: int) -> None:
        self._table[row : row + WIDTH] = NOTHING

    # The current state over all workers.

    @property
    def used(self) -> int:
        """Reserved bytes."""
        return self._sum(LARGE_BODIES) + self._sum(SMALL_BODIES)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._sum(WAITING)

    @property
    def refused(self) -> Mapping[str, int]:
        """Rejected bodies of this process by reason: `wait` (timeout or full queue), `growth` (no room to grow), `size`
        (larger than the budget), `half` (its caller held more than half while others waited)."""
        return self._refused

    def refuse(self, reason: str) -> None:
        """Counts a rejected body."""
        self._refused[reason] += 1

    @property
    def contended(self) -> bool:
        """Whether a request waits for room in any worker."""
        return any(self._table[WAITING::WIDTH]) or any(self._table[GROWS_SINCE::WIDTH])

    @property
    def is_short(self) -> bool:
        """Whether a request has waited for room for `PATIENCE_S` in any worker."""
        stale, waited = self._stale(), self._now() - int(1e9 * PATIENCE_S)
        return any(stale < at <= waited for column in (OLDEST, GROWS_SINCE) for at in self._table[column::WIDTH])

    def fits(self, size: int) -> bool:
        """Whether a body of `size` bytes fits into an otherwise empty budget."""
        cost = size * FACTOR
        return cost <= self._limits[LARGE_BODIES] or (size <= SMALL and cost <= self._limits[SMALL_BODIES])

    def room(self, who: object = None) -> Room:
        """Returns an empty reservation for one body of a caller, whom `identify` names."""
        return Room(self, who)

    def share_of(self, who: object) -> int:
        """Returns the column of a row that counts what a caller holds."""
        digest = blake2b(self.identify(who), key=self._key, digest_size=4).digest()
        return HELD + int.from_bytes(digest) % SHARES

    def _sum(self, column: int) -> int:
        return self._table[column] if self._single_worker else sum(self._table[column::WIDTH])

    # Called by Room. A share of 0 is none: small bodies are not counted by caller.

    def take(self, column: int, cost: int, share: int) -> bool:
        """Reserves `cost` bytes if they are free. Returns whether it did."""
        table, cell = self._table, self._row + column
        table[cell] += cost  # add first, then check: two concurrent workers cannot both exceed the limit
        if (table[cell] if self._single_worker else sum(table[column::WIDTH])) <= self._limits[column]:
            if share:
                table[self._row + share] += cost
            return True
        table[cell] -= cost
        return False

    def release(self, column: int, cost: int, share: int) -> None:
        """Releases bytes."""
        self._table[self._row + column] -= cost
        if share:
            self._table[self._row + share] -= cost
        if self._queues:
            self._admit()

    def may_take(self, share: int, cost: int, first: bool = False) -> bool:
        """Whether a caller may take more: not beyond half while others wait, except for the `first` body that it
        has."""
        if not self._others_since(share):
            return True
        held = self._sum(share)
        return held + cost <= self._half or (first and not held)

    def must_give_way(self, room: Room) -> bool:
        """Whether an arriving body must be refused: its caller holds more than half, another has waited for
        `PATIENCE_S`, and it is the youngest of its caller's."""
        since = self._others_since(room.share)
        if not since or since > self._now() - int(1e9 * PATIENCE_S) or self._sum(room.share) <= self._half:
            return False
        return room is next((one for one in reversed(self._arriving) if one.share == room.share), None)

    def arrives(self, room: Room, arriving: bool) -> None:
        """Notes that a body with a reservation begins to arrive, or no longer does."""
        if arriving:
            self._arriving[room] = None
        else:
            self._arriving.pop(room, None)

    async def enqueue(self, room: Room, size: int, received: int) -> bool:
        """Waits in the queue until the room has reserved `size` bytes. Returns False immediately if the queue is full,
        by number of requests or by received bytes. `received` is the number of received bytes of this request."""
        if self._is_full(room.share, received):
            return False
        entry = _Entry(self._now(), room, size, received)
        self._queues.setdefault(room.share, deque()).append(entry)
        self._publish()
        self._admit()
        try:
            await entry.granted
        except BaseException:
            if not entry.granted.cancelled():
                room.release()  # the reservation was granted just before the cancellation
            elif entry in self._queues.get(room.share, ()):
                self._remove(entry)
            raise
        finally:
            self._admit()
        return True

    def _is_full(self, share: int, received: int) -> bool:
        own, all_ = self._queues.get(share, ()), [entry for queue in self._queues.values() for entry in queue]
        most = self.total // WAITING_SHARE
        return (
            len(all_) >= MOST_WAITING
            or 2 * len(own) >= MOST_WAITING
            or sum(entry.received for entry in all_) + received > most
            or 2 * (sum(entry.received for entry in own) + received) > most
        )

    async def wait_for_growth(self, room: Room, size: int) -> bool:
        """Waits until the room has reserved `size` bytes, with priority over the queue. Returns False after
        `WAIT_TIMEOUT_S`, earlier if others wait, and at once if too many wait already."""
        if len(self._growing) >= MOST_GROWING:
            return False
        since = self._growing[room] = self._now()
        try:
            while not (granted := room.grow(size)):
                if self._now() - since >= int(1e9 * self._growth_timeout(since)):
                    break
                self._publish_growing()
                await asyncio.sleep(POLL_S)
            return granted
        finally:
            del self._growing[room]
            self._publish_growing()

    def _growth_timeout(self, since: int) -> float:
        if min(self._growing.values()) < since or (self._oldest_elsewhere(GROWS_SINCE) or since) < since:
            return PATIENCE_S / 2  # an older body waits to grow, which gets what this one held
        return PATIENCE_S if any(self._table[WAITING::WIDTH]) else WAIT_TIMEOUT_S

    def _publish_growing(self) -> None:
        allowed = (since for room, since in self._growing.items() if self.may_take(room.share, 1))
        self._table[self._row + GROWS_SINCE] = min(allowed, default=0)

    # The queue.

    def _now(self) -> int:
        return int(1e9 * self.clock())

    def _admit(self) -> None:
        """Grants queued reservations while there is room."""
        while (entry := self._grant()) is not None:
            self._queues[entry.room.share] = self._queues.pop(entry.room.share)  # the others' turn
            self._remove(entry)
            if entry.granted.done():
                entry.room.release()
            else:
                entry.granted.set_result(None)
        self._publish()
        if self._queues and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        self._timer = None
        self._admit()

    def _remove(self, entry: _Entry) -> None:
        queue = self._queues[entry.room.share]
        queue.remove(entry)
        if not queue:
            del self._queues[entry.room.share]
        self._publish()

    def _grant(self) -> _Entry | None:
        """Reserves for the next request that finds room, and returns it: whose turn it is, else one that has waited for
        `OVERTAKE_S`."""
        following = self._next()
        if following is None:
            return None
        if self._is_first(following.since) and following.room.reserve(following.size):
            return following
        free, before = self._limits[LARGE_BODIES] - self._sum(LARGE_BODIES), self._now() - int(1e9 * OVERTAKE_S)
        for entry in self._overtaking(before):
            small = entry.size <= SMALL
            if (small or entry.size * FACTOR <= free) and self._may_enter(entry) and entry.room.reserve(entry.size):
                return entry
        return None

    def _overtaking(self, before: int) -> Iterator[_Entry]:
        for queue in self._queues.values():
            for entry in queue:
                if entry.since > before:
                    break
                yield entry

    def _next(self) -> _Entry | None:
        """Returns the request whose turn it is: the first one of the next caller that may take more."""
        return next((queue[0] for queue in self._queues.values() if self._may_enter(queue[0])), None)

    def _may_enter(self, entry: _Entry) -> bool:
        return self.may_take(entry.room.share, entry.size * FACTOR, first=True)

    def _publish(self) -> None:
        table, row = self._table, self._row
        oldest = sorted((queue[0].since, share) for share, queue in self._queues.items())[:2]
        table[row + OLDEST], table[row + OLDEST_SHARE] = oldest[0] if oldest else (0, 0)
        table[row + OTHERS_OLDEST] = oldest[1][0] if len(oldest) > 1 else 0
        table[row + WAITING] = sum(map(len, self._queues.values()))
        following = self._next()
        table[row + NEXT_SINCE] = 0 if following is None else following.since

    def _is_first(self, since: int) -> bool:
        """Whether nobody else goes before a request of this worker's whose turn it is."""
        if self._table[self._row + GROWS_SINCE] or self._oldest_elsewhere(GROWS_SINCE) is not None:
            return False
        other = self._oldest_elsewhere(NEXT_SINCE)
        return other is None or since <= other

    def _others_since(self, share: int) -> int:
        """Returns since when a request of another caller waits in any worker; 0 if none does."""
        if not any(self._table[WAITING::WIDTH]):
            return 0
        stale, found = self._stale(), 0
        for row in range(0, len(self._table), WIDTH):
            column = OTHERS_OLDEST if self._table[row + OLDEST_SHARE] == share else OLDEST
            since = self._table[row + column]
            if since > stale and (not found or since < found):
                found = since
        return found

    def _oldest_elsewhere(self, column: int) -> int | None:
        """Returns the oldest time in a column of the other workers, or None."""
        stale, own = self._stale(), self._row // WIDTH
        others = (at for number, at in enumerate(self._table[column::WIDTH]) if number != own and at > stale)
        return min(others, default=None)

    def _stale(self) -> int:
        """Times older than this are ignored, twice `WAIT_TIMEOUT_S`: their worker hangs."""
        return max(0, self._now() - int(2e9 * WAIT_TIMEOUT_S))


class Room:
    """The reservation of one body. `release` ends it once the body is no longer needed. Further calls of `release`
    have no effect."""

    __slots__ = ("_budget", "_column", "_held", "_share", "_since", "_who")

    def __init__(self, budget: Budget, who: object = None) -> None:
        self._budget, self._who = budget, who
        self._column = SMALL_BODIES
        self._held = self._share = 0

    @property
    def share(self) -> int:
        """The column of a row that counts what its caller holds."""
        if not self._share:
            self._share = self._budget.share_of(self._who)
        return self._share

    def try_reserve(self, size: int) -> bool:
        """Reserves for a body of `size` bytes if no other request waits. Returns whether it did."""
        cost = size * FACTOR
        if size <= SMALL and self._budget.take(SMALL_BODIES, cost, 0):
            self._held = cost
            return True
        return not self._budget.contended and self.reserve(size)

    def reserve(self, size: int) -> bool:
        """Reserves for a body of `size` bytes, even if other requests wait. Returns whether it did."""
        cost = size * FACTOR
        budget = self._budget
        if size <= SMALL and budget.take(SMALL_BODIES, cost, 0):
            self._column, self._held = SMALL_BODIES, cost
            return True
        if not budget.take(LARGE_BODIES, cost, self.share):
            return False
        self._column, self._held = LARGE_BODIES, cost
        return True

    async def wait(self, size: int, received: int = 0) -> bool:
        """Reserves for a body of `size` bytes, waiting in the queue if necessary. Returns False if the queue is full.
        Cancellation leaves the queue."""
        return self.try_reserve(size) or await self._budget.enqueue(self, size, received)

    # While its body arrives.

    def __enter__(self) -> Room:
        """The body begins to arrive."""
        self._since = self._budget.clock()
        self._budget.arrives(self, True)
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.arrives(self, False)

    def keep(self, received: int) -> bool:
        """Called several times a second while the body arrives, with the bytes that it has so far. Once others have
        waited for `PATIENCE_S`, it gives back what has not arrived in time. Returns False if the body must be refused:
        what it held is free."""
        budget = self._budget
        if self._column == SMALL_BODIES or not budget.is_short:
            return True
        if budget.clock() - self._since >= GRACE_S:
            self.trim(received + STEP)
        if budget.must_give_way(self):
            self.release()
            self.refuse("half")
            return False
        return True

    def rate(self, size: int) -> float:
        """Returns the bytes per second at which a body of `size` bytes must arrive now: 0 if nobody has waited for
        `PATIENCE_S`."""
        return max(LEAST_RATE, size / WHOLE_S) if self._budget.is_short else 0.0

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
            more = wanted * FACTOR - (held if column == LARGE_BODIES else 0)
            if wanted > SMALL and not budget.may_take(self.share, more):
                continue
            if column == LARGE_BODIES:
                if budget.take(LARGE_BODIES, more, self.share):
                    self._held = wanted * FACTOR
                    return True
            elif self.reserve(wanted):
                budget.release(column, held, 0)
                return True
        return False

    def trim(self, size: int) -> None:
        """Releases what exceeds the needs of a body of `size` bytes."""
        if size * FACTOR < self._held:
            held, self._held = self._held, size * FACTOR
            share = self._share if self._column == LARGE_BODIES else 0
            self._budget.release(self._column, held - self._held, share)

    def another(self) -> Room:
        """Returns an empty reservation for a body of the same caller that is kept for longer than this one."""
        return Room(self._budget, self._who)

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
            self._budget.release(self._column, held, self._share if self._column == LARGE_BODIES else 0)
