"""Requests under a budget of callers.toml: planned for the window of its stage, held before they are sent, and settled
when they have ended.

Theory of operation
-------------------

A request is planned for the stage that its account is known to be in. What it may take at most is then held: its exact
prompt, less what will be read from the provider's cache, with the limit of its reply. That command tells the stage
that holds for all replicas. If it is another one, the request is planned again for that, so that all cut alike. Where
nothing can be held, because requests under way hold what is left, it waits for these; where nothing is left, the client
gets the error that its API has for a quota that is used up, which no client repeats.

Nothing is sent uncounted under a budget that is enforced: a request that is not understood is refused. Nobody fails
because of the store of accounts (`proxy.cache.accounts`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.cache.account_script import GRANTED, HELD
from proxy.cache.accounts import Account, Accounts
from proxy.errors import ClientError
from proxy.fit import spending
from proxy.fit.money import BROKEN_OFF, PricesOf
from proxy.model.bounded import Bounded
from proxy.model.budget import NANO, STAGES, Budget, For, Unit
from proxy.model.conversation import Kind, Prompt
from proxy.model.outcome import Outcome, Repeated, Usage
from proxy.model.terms import OnFull
from proxy.request.backend import Backend
from proxy.request.bugs import report_bug
from proxy.request.holds import Hold, not_sent, refused, uncounted, unheld
from proxy.request.prepare import Planner
from proxy.request.routes import Router
from proxy.request.stages import Planned, Received, Record, Scanned
from proxy.request.totals import Totals
from proxy.request.work import HEAVY_BYTES
from proxy.upstreams.models_listing import Headers
from proxy.wire.coding import KNOWN
from proxy.wire.headers import Header, value_of
from proxy.wire.scan import NotUnderstood

WAIT_S = 10.0  # for requests under way that hold what is left
POLL_S = 0.25  # between two tries while it waits: what other replicas settle is seen then
MAX_REPLIES, MAX_KNOWN = 64, 4_096  # the latest replies of an account, and accounts of which they are known
EVERYBODY, ENCODINGS = b"", b"accept-encoding"
UNCOUNTED_REPLY = "its reply is fetched later, and it names no limit for that"

Labels = tuple[str, ...]
Plan = Callable[[Received, Scanned | None], Awaitable[tuple[Planned, Backend | None]]]
# How much of what is about to be sent for a model to an upstream (of this name) was sent there before.
Expected = Callable[[Planned, str, str, Totals], Repeated | None]


class Asked(NamedTuple):
    """A request of a caller whose rule names a budget, and what plans it for one of `routes`. `repeated`: how much of
    it was sent before."""

    received: Received
    scanned: Scanned | None
    record: Record
    plan: Plan
    routes: Router
    repeated: Expected


class Tried(NamedTuple):
    """A request that was planned under a budget. `hold`: None without an account."""

    planned: Planned
    hold: Hold | None = None


def is_hidden(received: Received) -> bool:
    """Whether the answer to a request under a budget that is enforced may come in a coding in which nobody could count
    it."""
    rule = received.controls.rule
    if rule is None or rule.budget is None or not rule.budget.enforced:
        return False
    named = value_of(received.headers, ENCODINGS)
    return named is not None and not all(map(_is_read, named.split(b",")))


def readable(headers: Headers) -> list[Header]:
    """The headers of a request, with those of the codings that it accepts which are read here."""
    named = (value_of(headers, ENCODINGS) or b"").split(b",")
    read = b",".join([coding for coding in named if _is_read(coding)]).strip() or b"identity"
    return [*(header for header in headers if header[0] != ENCODINGS), (ENCODINGS, read)]


def _is_read(coding: bytes) -> bool:
    return coding.partition(b";")[0].strip().lower().decode("latin-1") in KNOWN


@dataclass(slots=True)
class Budgets:
    """The budgets of one process. `identify`: a caller that no rule names, by its headers and address. `current`: those
    of the rules that hold now."""

    accounts: Accounts
    prices: PricesOf
    identify: Callable[[Headers, str], bytes]
    current: Collection[Budget] = ()
    _replies: Bounded[tuple[bytes, ...], deque[int]] = field(default_factory=lambda: Bounded(MAX_KNOWN))

    def states(self) -> list[tuple[Labels, float, int]]:
        """Of each account that has a name: its budget and caller, the share that is used, and its stage."""
        return [
            ((account.budget.name, account.name), account.total / account.limit, account.current_stage)
            for account in self.accounts.named(self.current)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Each account that has a name, in JSON values: its limit (tokens, or US dollars) and what of it is `used`, its
        stage, and in how many seconds it begins anew. `shared`: that is what all workers used, not this one alone."""
        return [_row(account) for account in self.accounts.named(self.current)]

    async def plan(self, asked: Asked) -> Tried:
        """Plans a request under its budget, and holds what it may take. The error that the client gets instead is in
        the `Planned`."""
        received, scanned, record = asked.received, asked.scanned, asked.record
        rule = received.controls.rule
        try:
            account = await self._account(received, scanned, record, asked.routes.default.planner)
            if account is not None and account.budget.enforced:
                return await self._held(account, asked)
        except Exception as error:
            if isinstance(error, ClientError):
                raise
            report_bug(record, error)
            account = None
            if rule is not None and rule.budget is not None and rule.budget.enforced:
                return Tried(Planned(received, scanned=scanned, error=uncounted("the proxy itself failed")))
        planned = (await asked.plan(received, scanned))[0]  # as without a budget: it waits for nothing
        return Tried(planned, None if account is None else unheld(account))

    async def _held(self, account: Account, asked: Asked) -> Tried:
        """The same under a budget that is enforced."""
        received, scanned, record, plan, routes, repeated = asked
        budget, stage, ends = account.budget, account.current_stage, time.monotonic() + WAIT_S
        denied: Hold | None = None
        if account.total >= account.limit:  # else a plan might buy summaries with what nobody has
            denied = await self._hold(account, 1, stage, record, ends)
            if denied.decision.answer != GRANTED:
                return Tried(refused(Planned(received, scanned=scanned), denied), denied)
            denied.settle(0)
            denied = None
        while True:
            under = staged(received, budget, stage)
            planned, home = await plan(under, None if scanned is None else replace(scanned, controls=under.controls))
            if planned.error is not None or home is None:
                # What was asked of others to plan it is paid in any case.
                return Tried(planned, unheld(account)) if denied is None else Tried(refused(planned, denied), denied)
            if planned.proven and planned.total is None:
                planned = await home.planner.later.count(planned, record)
            figures = figures_of(planned)
            if figures is None:
                return Tried(not_sent(planned, uncounted(planned.unplanned)), unheld(account))
            later = planned.scanned is not None and planned.scanned.scan.background
            if later and figures.reply is None:
                return Tried(not_sent(planned, uncounted(UNCOUNTED_REPLY)), unheld(account))
            sent_as = figures.model, routes.target(planned, home).name
            known = repeated(planned, *sent_as, home.planner.totals.totals)
            hold = await self._hold(account, self._most(account, figures, sent_as, known), stage, record, ends)
            hold.later, answer, now = later, hold.decision.answer, hold.decision.stage
            smaller = budget.window_in(max(stage, now)) != budget.window_in(stage)
            if answer == GRANTED and not smaller:
                return Tried(planned, hold)
            if answer == GRANTED:  # another stage has begun: all are planned for its window
                hold.settle(0)
                stage = now
                continue
            denied = hold
            if answer == HELD or budget.window_in(stage) == budget.window_in(STAGES):
                return Tried(refused(planned, hold), hold)
            stage = max(stage + 1, now)  # less of it may still have room

    async def _account(
        self, received: Received, scanned: Scanned | None, record: Record, planner: Planner
    ) -> Account | None:
        """The account of a request; None if its caller has no budget, or nothing is sent for it."""
        rule = received.controls.rule
        if rule is None or rule.budget is None or received.dry_run:
            return None
        budget, named = rule.budget, not rule.anybody
        if budget.scope is For.ALL:
            return self.accounts.of(budget, EVERYBODY, named=True)
        who = rule.name.encode() if named else b"\0" + self.identify(received.headers, received.address)
        if budget.scope is For.SESSION:
            who += b"\0" + await _session(received, scanned, record, planner)
        return self.accounts.of(budget, who, named)

    def _most(self, account: Account, figures: Figures, sent_as: tuple[str, str], known: Repeated | None) -> int:
        """The most that a request takes."""
        reply = figures.reply
        if reply is None:
            reply = spending.usual_reply(self._replies.get(account.parts) or ())
        most = Usage(figures.prompt, reply * figures.choices, tier=figures.tier)
        return spending.expected(account.budget, self.prices, sent_as, most, known)

    async def _hold(self, account: Account, amount: int, stage: int, record: Record, ends: float) -> Hold:
        """Holds an amount; waits for others that hold what it needs. That is not our own time."""
        began = time.perf_counter()
        try:
            decision = await account.hold(amount)
            while decision.answer == HELD and time.monotonic() < ends:
                await account.wait(POLL_S)
                decision = await account.hold(amount)
            return Hold(account, amount, stage, decision)
        finally:
            waited = time.perf_counter() - began
            record.own_seconds -= waited
            record.upstream_seconds += waited

    def settle(self, hold: Hold, outcome: Outcome, came: int, failed: bool = False) -> None:
        """A request has ended. `came`: about how many tokens of its reply came, where no usage was reported. One of
        whose reply nothing is known took what it held; one that was answered with an error alone (`failed`), whatever
        the status, took nothing."""
        usage, broken = outcome.usage, outcome.result in BROKEN_OFF
        if failed and usage is None:
            hold.settle(spending.of_outcome(hold.budget, self.prices, replace(outcome, attempts=0)))
            return
        if usage is not None and not usage.prompt and outcome.prompt_sent:  # of a server that does not count
            outcome = replace(outcome, usage=None)
        unknown = outcome.usage is None and not came and not broken
        if outcome.usage is None:
            outcome = replace(outcome, came=max(outcome.came, came))
        elif hold.budget.enforced:
            known = self._replies.get(hold.account.parts) or self._replies.put(
                hold.account.parts, deque(maxlen=MAX_REPLIES)
            )
            known.append(outcome.usage.completion)
        taken = spending.of_outcome(hold.budget, self.prices, outcome)
        if (unknown or (hold.later and (broken or outcome.usage is None))) and spending.is_billed(outcome):
            taken = max(taken, hold.held)
        hold.settle(taken)


class Figures(msgspec.Struct, frozen=True):
    """What is sent: the model, the tokens of the prompt, the limit of each reply (None: it has none), how many replies
    there may be, and the tier of service."""

    model: str
    prompt: int
    reply: int | None
    choices: int = 1
    tier: str = ""


def figures_of(planned: Planned) -> Figures | None:
    """The figures of what is sent; None if it was not counted."""
    plan, total, scanned = planned.plan, planned.total, planned.scanned
    if scanned is None or (plan is None and total is None):
        return None
    scan = scanned.scan
    if plan is not None:
        sent = plan.draft if planned.received.may_change else plan.before
        return Figures(sent.model, sent.billed, sent.reply, scan.choices, scan.tier)
    assert total is not None
    return Figures(scanned.model, total.prompt, scan.reserve, scan.choices, scan.tier)


def staged(received: Received, budget: Budget, stage: int) -> Received:
    """The request as it is planned in a stage: no header of the client's widens its window again."""
    window, rule = budget.window_in(stage), received.controls.rule
    if window is None or rule is None:
        return received
    controls, terms = received.controls, received.terms
    cap = window if controls.window is None else min(window, controls.window)
    fitted = terms if terms.on_full is OnFull.FIT else replace(terms, on_full=OnFull.FIT)
    return replace(received, controls=replace(controls, window=cap, ladder=rule.ladder), terms=fitted)


async def _session(received: Received, scanned: Scanned | None, record: Record, planner: Planner) -> bytes:
    """A digest of a conversation's instructions and of what its user said first; empty if it is not understood."""
    if scanned is None:
        scanned, _ = await planner.scanner.named(received, record)
    if scanned is None:
        return b""
    try:
        return await planner.plans.pool.run(len(scanned.plain) > HEAVY_BYTES, _beginning, received, scanned.plain)
    except NotUnderstood:
        return b""


def _beginning(received: Received, plain: bytes) -> bytes:
    prompt: Prompt = received.api.request.parse(plain)
    digest = blake2b(digest_size=16)
    for message in prompt.messages:
        if message.kind in (Kind.INSTRUCTION, Kind.USER):
            text = message.text().encode("utf-8", "replace")
            digest.update(b"%d:%d:" % (message.kind is Kind.USER, len(text)) + text)
        if message.kind is Kind.USER:
            break
    return digest.digest()


def _row(account: Account) -> dict[str, Any]:
    budget, resets = account.budget, account.state().resets
    unit = NANO if budget.unit is Unit.USD else 1
    return {
        "budget": budget.name,
        "caller": account.name,
        "unit": budget.unit.value,
        "limit": budget.limit / unit,
        "used": account.total / unit,
        "stage": account.current_stage,
        "over": budget.over.value,
        "resets_s": None if resets is None else round(resets),
        "shared": account.link.shared,
    }
