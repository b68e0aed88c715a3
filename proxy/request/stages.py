"""The stages of one request, from its arrival to its answer, and the record of its attempts and times.

Theory of operation
-------------------

A request passes five stages. Each is a frozen value, made from the stages before it:

    Received   as the client sent it: headers, control headers, body
        |      read_body
    Scanned    the plain body, what a scan of its bytes found, and what follows from its model and its sender: the
        |      ladder, lorebook entries, learned limits
    Counted    the window, and the prompt's tokens where they are known
        |      the bytes prove that it fits, or its count does, or the ladder is descended
    Planned    the payload, and where the ladder was descended the plan that it follows from
        |      upstream
    Answered   the status that the client got, and the usage that the upstream reported

`Counted` may come after `Planned`: where the body's bytes alone prove that it fits (`proven`), the request is sent at
once and counted while the upstream works. A refusal leads back from the upstream to another `Planned`, made from the
same `Received`: nothing is planned from a payload. Where a stage fails, or the body is not understood, the request
keeps the stages that it passed and its payload is what the client sent.

`context.RequestContext` has the latest value of each stage; `prepare`, `heal` and the gateway set them, and nothing
else does. What is no decision is in its `Record`: attempts, times, costs. Its `release` drops all content as soon as
the answer begins, and keeps the `figures.Figures`; the `Outcome` is made of figures, answer and record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from proxy.fit.lore import Entry
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Suspicion, Window
from proxy.model.outcome import Usage
from proxy.model.plan import Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.request.sent_prefixes import Prefixes
from proxy.request.tracing import RequestTrace
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.tap import Tap


class Received(msgspec.Struct, frozen=True, gc=False):
    """A request as it arrived, from a client at an `address`. `dry_run`: nothing is sent for it, and no extra call is
    made (`/inspect`)."""

    api: Api
    mode: Mode
    path: str = ""
    headers: Headers = ()
    controls: Controls = NOTHING_ASKED
    body: bytes = b""
    dry_run: bool = False
    address: str = ""

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
    body has too many to be parsed.
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

    @property
    def model(self) -> str:
        """The model that the client named."""
        return self.scan.model


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The window that a request is compared with, and the cost of its prompt.

    `proven`: the body's bytes alone prove that it fits; then `total` is None until the background count ends.
    `skipped`: too much background work was under way to count it at all.
    """

    window: Window
    total: Total | None = None
    proven: bool = False
    skipped: bool = False


class Planned(msgspec.Struct, frozen=True, gc=False):
    """The bytes to send. Where the ladder was descended: the prompt, the facts and the plan that they follow from.

    `missing` says which wants a dry run could not fulfil. `prefixes`: those of what the client sent and of
    a payload that a plan changed. `refusing`: no step changed it, but the server is told to refuse what is too long,
    where it would have dropped something and said nothing.
    `pieces`: the payloads that are sent instead of one.
    """

    payload: bytes = b""
    prompt: Prompt | None = None
    facts: Facts | None = None
    plan: Plan | None = None
    missing: tuple[str, ...] = ()
    prefixes: tuple[Prefixes, Prefixes | None] | None = None
    refusing: bool = False
    pieces: tuple[bytes, ...] = ()


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


class Record(msgspec.Struct):
    """Attempts, times and costs of a request while it is under way. Times of `time.perf_counter`, in seconds.

    `result` is the outcome's label so far. `counting` is the count that runs while the upstream works. `cost` is what
    extra calls cost, None before the first one. `trace`: if the request is sampled. `upstream` is where the latest
    attempt went, if there are several. `phases`: parts of our own time by name, and of counts in the background.
    `held` is the body for a recording, once the request has dropped it; None if there was no room for it.
    `unreadable`: an answer was compressed in a way that is not decoded, and the next ones are asked for as plain text.
    `unmoved`: why it was not moved to a model that its ladder allows, in words and as values of `Unmoved`.
    `unplanned`: why it was sent as it came, without a plan.
    `suspicion`: what the refusal before the latest attempt proves if that is answered.
    """

    result: str = ""
    attempts: int = 0
    refusals: tuple[str, ...] = ()
    request_id: bytes = b""
    counting: asyncio.Task[None] | None = None
    cost: CallCost | None = None
    trace: RequestTrace | None = None
    phases: dict[str, float] | None = None
    own_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    upstream: str = ""
    held: bytes | None = b""
    unreadable: bool = False
    unmoved: tuple[str, tuple[str, ...]] = ("", ())
    unplanned: str = ""
    suspicion: Suspicion | None = None
    _sent_at: float = 0.0
    _waiting_since: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether nothing happened to it but that it was sent: no refusal, no step, no count, no trace."""
        marked = self.refusals or self.cost or self.trace or self.phases or self.upstream or self.unplanned
        return not (marked or self.unmoved[0] or self.unmoved[1])

    def attempt(self) -> None:
        """The request is about to be sent to the upstream."""
        self.attempts += 1
        self._sent_at = self._waiting_since = time.perf_counter()

    def phase(self, name: str, began: float, waited: float = 0.0) -> None:
        """Adds the time since `began` to a phase, without what it `waited` for others."""
        if self.phases is None:
            self.phases = {}
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began - waited

    def first_byte(self) -> None:
        """The first bytes of the answer's body go to the client."""
        self.first_byte_seconds = time.perf_counter() - self._sent_at

    def stop_waiting(self) -> None:
        """The upstream has finished with this attempt, or the proxy with the upstream."""
        if self._waiting_since:
            self.upstream_seconds += time.perf_counter() - self._waiting_since
            self._waiting_since = 0.0
        if self.trace is not None:
            self.trace.stop()
