"""The stages of one request, from its arrival to its answer, and the record of its attempts and times.

Theory of operation
-------------------

A request passes five stages. Each is a frozen value, made from the stages before it:

    Received   as the client sent it: headers, control headers, body
        |      the body's bytes are scanned
    Scanned    the plain body, what a scan of its bytes found, and what follows from its model and its sender: the
        |      ladder, lorebook entries, learned limits
    Counted    the window, and the prompt's tokens where they are known
        |      the bytes prove that it fits, or its count does, or the ladder is descended
    Planned    the payload, the stages before it, and where the ladder was descended the plan that the payload follows
        |      from; or the error that the client gets instead
    Answered   the status that the client got, and the usage that the upstream reported

A stage is returned: `Planner.prepare(received) -> Planned`, `Healer.heal(planned, refusal) -> Planned | None`. The
gateway alone binds the latest one of a request, in its `context.RequestContext`; a test reads the syntax trees.

Where the body's bytes alone prove that a request fits (`proven`), it is sent at once and counted while the upstream
works: the background count is a task whose result is the same `Planned` with the count. A refusal leads back from the
upstream to another `Planned`, made from the same `Received`: nothing is planned from a payload. Where a stage fails, or
the body is not understood, `Planned` has the stages that the request passed, and its payload is what the client sent.

What is no decision is in the `Record`: attempts, times, costs. The gateway drops all content as soon as the answer
begins, and keeps the `figures.Figures`; the `Outcome` is made of figures, answer and record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.errors import ClientError
from proxy.fit.lore import Entry
from proxy.http.memory_budget import Room
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Suspicion, Window
from proxy.model.outcome import Usage
from proxy.model.plan import Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.model.terms import USUAL, Terms
from proxy.request.sent_prefixes import Prefixes
from proxy.request.tracing import RequestTrace
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.tap import Tap


class Received(msgspec.Struct, frozen=True, gc=False):
    """A request as it arrived, from a client at an `address`. `dry_run`: nothing is sent for it, and no extra call is
    made (`/inspect`). `room`: its body's share of the memory budget. `terms`: what its headers say, else the settings.
    """

    api: Api
    mode: Mode
    path: str = ""
    headers: Headers = ()
    controls: Controls = NOTHING_ASKED
    body: bytes = b""
    dry_run: bool = False
    address: str = ""
    room: Room | None = None
    terms: Terms = USUAL

    @property
    def may_change(self) -> bool:
        """Whether what is sent may differ from what the client sent."""
        return self.mode is Mode.FIT or self.mode is Mode.STRICT


class Scanned(msgspec.Struct, frozen=True, gc=False):
    """A body whose bytes were scanned, and what follows from its model and its sender.

    `plain` is the body without its content-encoding, without the proxy's own key in messages, and without unpaired
    surrogates. `controls` includes the pins of that key. `ladder` is None if none may be used: the request was not
    understood. `tenant` is a digest of all headers that upstreams tell their tenants apart by (`tenant_of`), empty if
    nothing depends on it. `learned` are the limits that refusals proved for this tenant; `probing`: the request is
    planned without them, to test whether they still hold. `digests`: those of its prefixes, where its conversation may
    have limits of its own. `left_out`: the messages in the middle that `plain` and its scan are without, because the
    body has too many to be parsed. `applied`: the JSON of the edits of context that we made, as the client
    asked; None if it did not, or if the upstream makes them.
    """

    plain: bytes
    scan: Scan
    controls: Controls = NOTHING_ASKED
    ladder: Ladder | None = None
    lore: tuple[Entry, ...] = ()
    tenant: bytes = b""
    learned: LearnedLimits = NOTHING_LEARNED
    probing: bool = False
    digests: Sequence[int] = ()
    left_out: int = 0
    applied: bytes | None = None
    compaction: str = ""
    transcript: bool = False

    @property
    def model(self) -> str:
        """The model that the client named."""
        return self.scan.model

    def unchanged(self, received: Received) -> bytes:
        """The client's own bytes; without the proxy's own key, if a message has it, and after edits that we made."""
        return self.plain if self.scan.seen.keyed or self.applied is not None else received.body


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The window that a request is compared with, and the cost of its prompt.

    `proven`: the body's bytes alone prove that it fits; then `total` is None until the background count ends.
    `skipped`: too much background work was under way to count it at all.
    """

    window: Window
    total: Total | None = None
    proven: bool = False
    skipped: bool = False


class Descent(msgspec.Struct, frozen=True, gc=False):
    """What the ladder was descended with: the prompt, the facts, and the plan that follows from them. `missing` says
    which wants a dry run could not fulfil."""

    prompt: Prompt
    facts: Facts
    plan: Plan
    missing: tuple[str, ...] = ()


class Planned(msgspec.Struct, frozen=True):
    """The bytes to send for a request, with the stages before. `descent`: where the ladder was descended.

    `prefixes`: those of what the client sent and of a payload that a plan changed. `refusing`: no step changed it, but
    the server is told to refuse what is too long, where it would have dropped something and said nothing. `pieces`: the
    payloads that are sent instead of one. `result`: the outcome's label as far as planning decides it. `unplanned`: why
    it is sent as it came, without a plan. `unmoved`: why it is not moved to a model that its ladder allows, in words
    and as values of `Unmoved`. `suspicion`: what the refusal before it proves if this one is answered. `error`: nothing
    is sent, the client gets this. `uncut`: the plan was made after a refusal, to measure what was sent without one.
    """

    received: Received
    payload: bytes = b""
    scanned: Scanned | None = None
    counted: Counted | None = None
    descent: Descent | None = None
    prefixes: tuple[Prefixes, Prefixes | None] | None = None
    refusing: bool = False
    pieces: tuple[bytes, ...] = ()
    result: str = ""
    unplanned: str = ""
    unmoved: tuple[str, tuple[str, ...]] = ("", ())
    suspicion: Suspicion | None = None
    error: ClientError | None = None
    uncut: bool = False

    @property
    def proven(self) -> bool:
        """Whether the body's bytes alone prove that it fits."""
        return self.counted is not None and self.counted.proven

    @property
    def plan(self) -> Plan | None:
        """The plan, if the ladder was descended."""
        return None if self.descent is None else self.descent.plan

    @property
    def total(self) -> Total | None:
        """The cost of the prompt, if it was counted without a plan."""
        return None if self.counted is None else self.counted.total

    @property
    def fitted(self) -> tuple[Scanned, Ladder] | None:
        """The scanned body and its ladder, where the request was understood."""
        scanned = self.scanned
        return None if scanned is None or scanned.ladder is None else (scanned, scanned.ladder)

    def uncounted(self) -> Planned:
        """The same where too much background work is under way to count it."""
        return self if self.counted is None else replace(self, counted=replace(self.counted, skipped=True))

    def as_sent(self, payload: bytes) -> Planned:
        """After a failure: the request has no ladder, no count and no plan, and is sent as the client sent it."""
        scanned, counted = self.scanned, self.counted
        return Planned(
            self.received,
            payload,
            None if scanned is None else replace(scanned, ladder=None),
            None if counted is None else replace(counted, total=None),
            result=self.result,
            unplanned=self.unplanned,
        )


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The answer that the client got: its HTTP status, and whether it was healed after a refusal.

    `usage` was read from an answer of one piece; `tap` reads it from an answer that is relayed.
    """

    status: int
    usage: Usage | None = None
    tap: Tap | None = None
    healed: bool = False

    @property
    def reported(self) -> Usage | None:
        """The usage that the upstream reported."""
        return self.usage if self.tap is None else self.tap.usage

    @property
    def came(self) -> int:
        """About how many tokens of the reply came, of one that broke off."""
        return 0 if self.tap is None else self.tap.came

    @property
    def failed(self) -> bool:
        """Whether it has an error, whatever its status, and nothing of a reply."""
        return self.tap is not None and self.tap.error is not None and not self.tap.content_seen


class Record(msgspec.Struct):
    """Attempts, times and costs of a request while it is under way. Times of `time.perf_counter`, in seconds.

    `result` is how it ended, empty while that is as its `Planned` says. `cost` is what extra calls cost, None before
    the first one. `trace`: if the request is sampled. `upstream` is where the latest
    attempt went, if there are several. `phases`: parts of our own time by name, and of counts in the background.
    `held` is the body for a recording, once the request has dropped it; None if there was no room for it.
    `cost_reported`: what a gateway says in a header that the request costs, in US dollars.
    `unreadable`: an answer was compressed in a way that is not decoded, and the next ones are asked for as plain text.
    """

    result: str = ""
    attempts: int = 0
    refusals: tuple[str, ...] = ()
    request_id: bytes = b""
    cost: CallCost | None = None
    trace: RequestTrace | None = None
    phases: dict[str, float] | None = None
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    upstream: str = ""
    held: bytes | None = b""
    cost_reported: float | None = None
    unreadable: bool = False
    _sent_at: float = 0.0
    _waiting_since: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether nothing happened to it but that it was sent: no refusal, no count, no extra call, no trace."""
        return not (self.refusals or self.cost or self.trace or self.phases or self.upstream)

    def attempt(self, headers: Headers, upstream: str) -> Headers:
        """The request is about to be sent to an upstream, which has a name if there are several. Returns its headers:
        the upstream's spans become children of the attempt's."""
        self.attempts += 1
        self.upstream = upstream
        self._sent_at = self._waiting_since = time.perf_counter()
        return headers if self.trace is None else self.trace.attempt(headers, upstream)

    def add_cost(self, cost: CallCost) -> None:
        """Adds the cost of extra calls for it."""
        if self.cost is None:
            self.cost = CallCost()
        self.cost.calls += cost.calls
        self.cost.tokens += cost.tokens

    def answered(self, status: int) -> None:
        """The upstream responded with this status."""
        if self.trace is not None:
            self.trace.answered(status)

    def phase(self, name: str, began: float, waited: float = 0.0) -> None:
        """Adds the time since `began` to a phase, without what it `waited` for others."""
        if self.phases is None:
            self.phases = {}
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began - waited

    def first_byte(self) -> None:
        """The first bytes of the answer's body go to the client."""
        self.first_byte_seconds = time.perf_counter() - self._sent_at

    def whole(self, api: Api, body: bytes) -> None:
        """The whole answer, which was read, goes to the client."""
        if self.trace is not None:
            self.trace.read(api, body)
        self.first_byte()

    def stop_waiting(self) -> None:
        """The upstream has finished with this attempt, or the proxy with the upstream."""
        if self._waiting_since:
            self.upstream_seconds += time.perf_counter() - self._waiting_since
            self._waiting_since = 0.0
        if self.trace is not None:
            self.trace.stop()
