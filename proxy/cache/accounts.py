"""Accounts of budgets: what was spent in a period and what is held for requests under way, here and on all replicas.

Theory of operation
-------------------

A request holds an amount before it is sent, and settles what it really used when it has ended. Without a backend a
worker decides on its own. With one, `account_script` decides: the amounts that requests ask for while a command is
under way go together with the next one, so a busy worker sends no more commands than it has to, and never two at once
for one account. What was settled is written soon, without a request.

A backend that fails changes no stage and takes nothing from anybody: the last sums that it answered hold, with what
this worker spends from then on, and the last stage stays. All is written as soon as it answers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from proxy.cache.account_script import GRANTED, HELD, LEASE_MS, USED_UP, Found, Write
from proxy.cache.keyring import Keyring
from proxy.cache.remote import Remote
from proxy.model.bounded import Bounded
from proxy.model.budget import Budget, For

KIND = "budget:1"
MAX_ACCOUNTS = 20_000
MAX_BUSY = 20_000  # accounts that wait to be written, while the backend is away
PAUSE_S = 0.1  # between two writes of what was settled
BEAT_S = LEASE_MS / 4000  # between two writes of what is held
KEEP_S = 86_400.0  # a session after its last request
GRACE_S = 1.0  # after a period by this machine's clock, in which the backend's may still say that it has ended
AT_ONCE = 16  # accounts that are written at once without a request
FAR = 1 << 53  # over every limit
Parts = tuple[bytes, ...]


class Decision(msgspec.Struct, frozen=True):
    """Whether an amount is held: `GRANTED`; `HELD` if requests under way hold what it needs; or `USED_UP`. With the
    stage of the account, what is left of its limit, and the seconds of its period that are left (None: it does not
    end)."""

    answer: int
    stage: int
    left: int
    resets: float | None


@dataclass(slots=True, eq=False)
class Ask:
    """An amount that a request wants to hold, and what becomes of it."""

    amount: int
    decided: asyncio.Future[int]


@dataclass(slots=True, eq=False)
class Account:
    """One account of a budget. `parts`: what its name in the backend is a hash of."""

    budget: Budget
    parts: Parts
    link: Link
    spent: int = 0  # by this worker in this period
    held: int = 0  # by this worker, for requests under way
    stage: int = 0
    used_at: float = 0.0
    _confirmed: int = 0
    _known: int = 0  # what all spent, as the backend answered last
    _others_held: int = 0
    _index: int = 0
    _ends_at: float | None = None
    _heard_at: float | None = None
    _written_at: float = 0.0
    _changed: bool = False
    _number: int = 0  # of the own figures: each time that they begin anew they have a field of their own in the backend
    _asks: list[Ask] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _settled: asyncio.Event | None = None  # where somebody waits

    def __post_init__(self) -> None:
        self._number = next(self.link.numbers)
        self._begin(self._period_now())

    @property
    def name(self) -> str:
        """Whose it is: the last part of its name, of one that a rule names."""
        return self.parts[-1].decode("utf-8", "replace") or "all"

    @property
    def total(self) -> int:
        """What all spent in the period, as far as it is known here."""
        return self._known + self.spent - self._confirmed

    @property
    def limit(self) -> int:
        """What may be spent: a share of the budget, where workers do not know of each other."""
        return self.budget.limit if self.link.shared else max(1, self.budget.limit // self.link.workers)

    def state(self, answer: int = GRANTED) -> Decision:
        """The account as it is known now."""
        resets = None if self._ends_at is None else max(0.0, self._ends_at - self.link.clock())
        return Decision(answer, self.current_stage, max(0, self.limit - self.total), resets)

    @property
    def current_stage(self) -> int:
        """The stage of the period that is now."""
        self._turn()
        return self.stage

    async def hold(self, amount: int) -> Decision:
        """Holds an amount, if there is room for it; `settle` ends that."""
        self._turn()
        self.used_at = self.link.clock()
        self.link.keep(self)
        if not self.link.reachable:
            return self.state(self._decide(amount))
        ask = Ask(amount, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self.write_soon()
        try:
            return self.state(await asyncio.shield(ask.decided))
        except asyncio.CancelledError:
            if ask.decided.done() and ask.decided.result() == GRANTED:
                self.settle(amount, 0)
            ask.decided.cancel()
            raise

    async def wait(self, seconds: float) -> None:
        """Waits until a request has settled here, at most so long."""
        if self._settled is None:
            self._settled = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), seconds)

    def settle(self, held: int, used: int) -> None:
        """Ends what `hold` granted: the request used so much."""
        self._turn()
        self.held -= held
        self.spent += used
        self.used_at = self.link.clock()
        if self._settled is not None:
            self._settled.set()
            self._settled = None
        if self.link.shared:
            self._changed = True
            self.link.keep(self)
            self.link.wake()
        else:
            self.stage = max(self.stage, self._stage_alone())
            self.rest()

    def rest(self) -> None:
        """Nothing is held, and all is written: it may be forgotten as others are."""
        if not (self.held or self._changed or self._asks or self._task):
            self.link.busy.pop(self.parts, None)

    def _stage_alone(self) -> int:
        """The stage by what this worker alone spent, of its share."""
        return self.budget.stage(self.total * self.budget.limit // self.limit)

    def _decide(self, amount: int) -> int:
        """What becomes of an amount by what is known here."""
        limit = self.limit if self.budget.enforced else FAR
        others = self._others_held if self._is_recent() else 0
        if self.total + others + self.held + amount <= limit:
            self.held += amount
            return GRANTED
        return HELD if self.total + amount <= limit and others + self.held > 0 else USED_UP

    def _is_recent(self) -> bool:
        """Whether what others hold may still be held."""
        return self._heard_at is not None and self.link.clock() - self._heard_at < LEASE_MS / 1000

    def _period_now(self) -> int:
        seconds = self.budget.seconds
        return int(self.link.wall() // seconds) if seconds else 0

    def _begin(self, index: int, left: float | None = None) -> None:
        """A period begins, of which so many seconds are left (None: by this machine's clock)."""
        seconds = self.budget.seconds
        self._index, self.stage = index, 0
        if seconds:
            left = (index + 1) * seconds - self.link.wall() if left is None else left
            self._ends_at = self.link.clock() + max(0.0, left)

    def _turn(self) -> None:
        """Begins the next period, if this one has ended. The backend's clock decides, as long as it answers."""
        if self._ends_at is None or self.link.clock() < self._ends_at:
            return
        if not self.link.reachable or self.link.clock() >= self._ends_at + GRACE_S:
            self._begin(max(self._index + 1, self._period_now()))
            self.spent = self._confirmed = self._known = 0
            self._number = next(self.link.numbers)

    def write_soon(self) -> asyncio.Task[None]:
        """Writes what this worker spent and holds, with all that is asked for meanwhile."""
        if self._task is None:
            self._task = self.link.spawn(self._write())
        return self._task

    async def _write(self) -> None:
        """Writes until nobody asks for anything any more. One command at a time: each tells all of what is held."""
        answered = False
        try:
            while True:
                asks, self._asks = self._asks, []
                try:
                    answered = await self._exchange(asks)
                finally:
                    for ask in asks:  # one that the backend did not decide
                        if not ask.decided.done():
                            ask.decided.set_result(self._decide(ask.amount))
                if not self._asks:
                    return
        finally:
            self._task = None
            self.rest()
            if answered and self._changed:  # meanwhile: one that fails is written again by the next beat
                self.link.wake()

    async def _exchange(self, asks: Sequence[Ask]) -> bool:
        """One command: tells what this worker spent and holds, and asks for more. Whether it was answered."""
        self._turn()
        self._changed, self._written_at = False, self.link.clock()
        limit = self.budget.limit if self.budget.enforced else FAR
        own = (self._index, self.spent, self.held, self._confirmed, self._known, self.stage)
        asked, marks = [ask.amount for ask in asks], self.budget.marks
        sent = Write(self.link.worker, self.budget.seconds, *own, limit, marks, number=self._number, asks=asked)
        found = await self.link.send(self.parts, sent)
        if found is None:
            self._changed = True
            return False
        self._hear(sent, found)
        for ask, answer in zip(asks, found.asked, strict=True):
            if ask.decided.done():  # whoever asked has left
                self._changed = True
                continue
            if answer == GRANTED:
                self.held += ask.amount
            ask.decided.set_result(answer)
        return True

    def _hear(self, sent: Write, found: Found) -> None:
        """The backend's sums hold from now on."""
        if found.index != self._index:
            self._begin(found.index, found.left if found.left >= 0 else None)
        if found.index != sent.index:  # what was told belongs to a period that has ended
            self.spent -= sent.spent
            self._confirmed = 0
            self._number = next(self.link.numbers)
            self._changed = self._changed or self.spent > 0
        else:
            self._confirmed = sent.spent
        if self._ends_at is not None:
            self._ends_at = self.link.clock() + max(0.0, found.left)
        self._known, self._heard_at = found.spent, self.link.clock()
        self._others_held = max(0, found.held - sent.held - _granted(sent, found))
        self.stage = max(self.stage, found.stage)

    def is_due(self, now: float) -> bool:
        """Whether something is to be written without a request."""
        beats = self.held > 0 and now - self._written_at >= BEAT_S
        return self._task is None and (self._changed or beats)

    def is_old(self, now: float) -> bool:
        """Whether it may be forgotten."""
        return not (self.budget.seconds or self.held or self._changed) and now - self.used_at > KEEP_S


@lru_cache(maxsize=512)
def _parts_of(budget: Budget) -> Parts:
    """The parts of the names of a budget's accounts, but for whose they are."""
    return budget.name.encode(), budget.scope.encode(), budget.unit.encode(), b"%d" % budget.seconds


def _granted(sent: Write, found: Found) -> int:
    return sum(amount for amount, answer in zip(sent.asks, found.asked, strict=True) if answer == GRANTED)


class Link:
    """What accounts have in common: the backend, if there is one, and the clocks."""

    def __init__(
        self,
        remote: Remote | None,
        keyring: Keyring,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.shared = remote is not None
        self.workers, self.clock, self.wall = workers, clock, wall
        self.changed = asyncio.Event()
        self.busy: dict[Parts, Account] = {}  # those that hold something, and those with something to be written
        self.numbers = itertools.count()
        self._remote, self._keyring = remote, keyring
        self._worker, self._pid = "", 0

    @property
    def worker(self) -> str:
        """A name for this worker, which no other has."""
        if self._pid != os.getpid():
            self._pid, self._worker = os.getpid(), os.urandom(8).hex()
        return self._worker

    @property
    def reachable(self) -> bool:
        """Whether the backend would be asked now."""
        remote = self._remote
        return remote is not None and remote.account_breaker.closed and self._keyring.sealer is not None

    def keep(self, account: Account) -> None:
        """Keeps an account until it rests: there must not be two of one name. While the backend is away, those of
        which nothing is held make room for others."""
        self.busy[account.parts] = account
        if len(self.busy) > MAX_BUSY:
            for parts in [parts for parts, one in self.busy.items() if not one.held and one is not account]:
                del self.busy[parts]

    def wake(self) -> None:
        """There is something to be written."""
        self.changed.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a background task, which the end of the cache cancels."""
        assert self._remote is not None
        return self._remote.spawn(work)

    async def send(self, parts: Parts, write: Write) -> Found | None:
        """One command to the account of this name; None if the backend does not answer."""
        remote, sealer = self._remote, self._keyring.sealer
        if remote is None or sealer is None:
            return None
        name = sealer.name(KIND, *parts, whose=b"\0".join(parts))
        return await remote.exchange(lambda backend: backend.account(name, write))


class Accounts:
    """The accounts of all budgets. Those of callers that rules name are as many as these; of others, and of sessions,
    which clients invent, `MAX_ACCOUNTS` each are kept."""

    def __init__(self, remote: Remote | None, keyring: Keyring) -> None:
        self.link = Link(remote, keyring)
        self._named: dict[Parts, Account] = {}
        self._others: Bounded[Parts, Account] = Bounded(MAX_ACCOUNTS)
        self._sessions: Bounded[Parts, Account] = Bounded(MAX_ACCOUNTS)

    def of(self, budget: Budget, who: bytes, named: bool) -> Account:
        """The account of somebody under a budget; `named`: by a rule."""
        parts = (*_parts_of(budget), who)
        if named and budget.scope is not For.SESSION:
            found = self._named.get(parts) or self._named.setdefault(parts, Account(budget, parts, self.link))
        else:
            kept = self._sessions if budget.scope is For.SESSION else self._others
            known = kept.get(parts) or self.link.busy.get(parts)
            if known is None or known.is_old(self.link.clock()):
                known = kept.put(parts, Account(budget, parts, self.link))
            elif parts not in kept:
                kept.put(parts, known)
            found = known
        if found.budget is not budget:  # the rules have changed
            found.budget = budget
        return found

    def named(self, budgets: Collection[Budget]) -> list[Account]:
        """Those of callers that rules name, and of all callers together, under these budgets."""
        shown = {_parts_of(budget) for budget in budgets}
        return [account for parts, account in self._named.items() if parts[:-1] in shown]

    async def write_loop(self) -> None:
        """Writes what was settled, and what is held for long, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.link.changed.wait(), BEAT_S)
            self.link.changed.clear()
            await self.write()
            await asyncio.sleep(PAUSE_S)

    async def write(self) -> None:
        """Writes what is to be written now."""
        if not self.link.reachable:
            return
        now, busy = self.link.clock(), list(self.link.busy.values())
        due = [one for one in busy if one.is_due(now)]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(one.write_soon() for one in due[start : start + AT_ONCE]))
        for one in busy:
            one.rest()
