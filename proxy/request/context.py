"""One request from its arrival to its Outcome: what was learned about it on the way; it decides nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from proxy.fit.lore import Entry
from proxy.http.memory_budget import Room
from proxy.model.api import Api
from proxy.model.conversation import Prompt
from proxy.model.limits import NOTHING_LEARNED, LearnedLimits, Window
from proxy.model.outcome import Outcome, Usage
from proxy.model.plan import Draft, Facts, Ladder, Mode, Plan
from proxy.model.scan import Scan, Total
from proxy.tokens.meter import unit_of
from proxy.tokens.usage import truncated
from proxy.upstreams.extra_calls import CallCost
from proxy.upstreams.models_listing import Headers
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.headers import request_id
from proxy.wire.report import count, header_value, notices, plan_headers, total_headers
from proxy.wire.tap import Tap

OBSERVED = (b"x-plimsoll-mode", b"observe")


@dataclass(slots=True)
class RequestContext:
    """What is known of one request so far. Times are of `time.perf_counter`, in seconds.

    `body` is as the client sent it, `plain` without its content-encoding, without the key of our own in messages, and
    without halves of surrogate pairs, which nobody can read; `payload` is what is sent. `room` is what its body holds
    of the memory budget. `ladder` is None where nothing may be done: the mode is off, or we do not understand it.
    `sure` says that its bytes alone prove that it fits; then `counting` counts it while the upstream works, or where
    much waits for that it is `uncounted`. `total` and `window` are known of what was counted and needed no `plan`.
    `asks` says that summaries and embeddings may be asked for, `spent` what that cost so far, `unasked` what was wanted
    where they may not. `lore` are the entries of the lorebooks that it asks for. `sender` are its headers, `caller` is
    who sent it: empty as long as nobody need know; `learned` is what refusals proved for that caller, and the request
    was planned with; `probing` says that it was planned as if nothing had been, to see whether that still holds.
    """

    api: Api
    mode: Mode
    controls: Controls = NOTHING_ASKED
    ladder: Ladder | None = None
    body: bytes = b""
    plain: bytes = b""
    payload: bytes = b""
    room: Room | None = None
    prompt: Prompt | None = None
    facts: Facts | None = None
    plan: Plan | None = None
    scan: Scan | None = None
    lore: tuple[Entry, ...] = ()
    total: Total | None = None
    window: Window | None = None
    sure: bool = False
    sender: Headers = ()
    caller: bytes = b""
    learned: LearnedLimits = NOTHING_LEARNED
    probing: bool = False
    counting: asyncio.Task[None] | None = None
    uncounted: bool = False
    model: str = ""
    stream: bool = False
    result: str = ""
    status: int = 0
    refusals: list[str] = field(default_factory=list)
    healed: bool = False
    asks: bool = True
    spent: CallCost | None = None
    path: str = ""
    attempts: int = 0
    request_id: bytes = b""
    unasked: tuple[str, ...] = ()
    tap: Tap | None = None
    usage: Usage | None = None
    own_seconds: float = 0.0
    sent_at: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None
    _waiting_since: float = 0.0
    _measured: dict[str, Any] | None = None
    _reply: int | None = None
    _unit: float | None = None

    @property
    def acts(self) -> bool:
        """Whether what is sent may differ from what the client sent."""
        return self.mode is Mode.FIT or self.mode is Mode.STRICT

    def departs(self) -> None:
        """It goes to the upstream."""
        self.attempts += 1
        self.sent_at = self._waiting_since = time.perf_counter()

    def begins(self) -> None:
        """The first bytes of its answer's body go to the client."""
        self.first_byte_seconds = time.perf_counter() - self.sent_at

    def returns(self) -> None:
        """The upstream has no more to do with it."""
        if self._waiting_since:
            self.upstream_seconds += time.perf_counter() - self._waiting_since
            self._waiting_since = 0.0

    def forget(self) -> None:
        """Nothing that was made of it may be used: it goes on as the client sent it."""
        self.ladder = self.prompt = self.facts = self.plan = self.total = None

    def let_go(self, counted: object = None) -> None:
        """Its answer begins, or it is over: what was read and made of it is not needed any more, only its figures."""
        plan, scan = self.plan, self.scan
        if plan is not None:
            self._measured, self._unit = self._of(plan), self.unit
            self.plan = None
        if scan is not None:
            self._reply, self.scan = scan.reserve, None
        self.prompt = self.facts = None
        self.body = self.plain = self.payload = b""
        if self.room is not None:
            self.room.leave()

    @property
    def unit(self) -> float | None:
        """How many of the model's tokens one of its encoding was taken for; None where its count cannot teach."""
        if self.plan is not None:
            return unit_of((self.plan.draft if self.acts else self.plan.before).meter)
        return self._unit if self._measured is not None or self.total is None else self.total.unit

    def truncated(self, usage: Usage) -> bool:
        """Whether the upstream read far fewer tokens than it was sent, as far as that is known by now."""
        if self.plan is not None:
            sent = self.plan.draft if self.acts else self.plan.before
            return truncated(sent.prompt, sent.meter.quality, self.unit, usage)
        total = self.total
        if total is None or usage.prompt >= total.prompt:  # as of nearly all
            return False
        return truncated(total.prompt, total.quality, self.unit, usage)

    def outcome(self) -> Outcome:
        """All that is to be told of it: what observing found as planned, and nothing as done that was not sent."""
        if (
            self.plan is None
            and self._measured is None
            and self.total is not None
            and self.window is not None
            and self.ladder is not None
        ):
            return self._counted(self.total, self.window, self.ladder)
        common: dict[str, Any] = {
            "endpoint": self.api.name,
            "result": self.result or "passed",
            "status": self.status,
            "mode": self.mode,
            "ladder": self.ladder.name if self.ladder else "",
            "model": self.model,
            "refusals": tuple(self.refusals),
            "healed": self.healed,
            "usage": self.told,
            "uncounted": self.uncounted,
            "stream": self.stream,
            "own_seconds": self.own_seconds,
            "upstream_seconds": self.upstream_seconds,
            "first_byte_seconds": self.first_byte_seconds,
            "path": self.path,
            "attempts": self.attempts,
            "request_id": request_id(self.request_id),
            **self._extra(),
        }
        if self.plan is not None:
            common |= self._of(self.plan)
        elif self._measured is not None:
            common |= self._measured
        else:
            common["model_sent"] = self.model
        return Outcome(**common)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What the client is told of it, as far as it is known by now."""
        if self.plan is not None:
            told = plan_headers(self.plan, sent=self.acts)
        else:
            told = [] if self.total is None else total_headers(self.total, self.reply)
        if self.mode is Mode.OBSERVE:
            told.append(OBSERVED)
        if self.controls is not NOTHING_ASKED and (said := self.notices()):
            told.append((b"x-plimsoll-notice", header_value("; ".join(said))))
        return told

    def notices(self) -> list[str]:
        """What the client asked for that changed nothing, and what was not asked for here."""
        if self.plan is None and self.scan is None:
            return []  # it was not understood
        window = self.window if self.plan is None else self.plan.before.window
        messages = count(self.plan.before) if self.plan else self.scan.seen.count if self.scan else 0
        unasked = [f"{kind} that is not known yet would be asked for" for kind in self.unasked]
        return [*notices(self.controls, window, messages), *unasked]

    def _of(self, plan: Plan) -> dict[str, Any]:
        """What is told of a plan. Of a request that never went upstream nothing was sent, cut or granted."""
        if not self.attempts:
            nothing = {"prompt_sent": None, "reply_sent": None, "load_after": None, "messages_sent": 0}
            return _measured(plan, plan.before) | nothing
        if self.acts:
            return _measured(plan, plan.draft) | {"notes": plan.notes}
        return _measured(plan, plan.before) | {"planned": plan.notes}

    def _extra(self) -> dict[str, Any]:
        spent = self.spent
        if spent is None or not spent.calls:
            return {}
        return {"extra_calls": spent.calls, "extra_tokens": spent.tokens, "extra_seconds": spent.seconds}

    @property
    def reply(self) -> int | None:
        """The reply limit that the client set."""
        return self._reply if self.scan is None else self.scan.reserve

    @property
    def told(self) -> Usage | None:
        """What the upstream said it counted."""
        return self.usage if self.tap is None else self.tap.usage

    def _counted(self, total: Total, window: Window, ladder: Ladder) -> Outcome:
        """The outcome of nearly every request, made without a detour."""
        reply = self.reply
        reserve = ladder.default_reserve if reply is None else reply
        load = (total.prompt + reserve) / window.tokens
        return Outcome(
            endpoint=self.api.name,
            result=self.result or "passed",
            status=self.status,
            mode=self.mode,
            ladder=ladder.name,
            model=self.model,
            model_sent=self.model,
            window=window.tokens,
            window_source=window.source,
            quality=total.quality,
            prompt=total.prompt,
            prompt_sent=total.prompt if self.attempts else None,
            reserve=reserve,
            reply_asked=reply,
            reply_sent=reply if self.attempts else None,
            load_before=load,
            load_after=load if self.attempts else None,
            messages_in=total.messages,
            messages_sent=total.messages if self.attempts else 0,
            refusals=tuple(self.refusals),
            healed=self.healed,
            usage=self.told,
            stream=self.stream,
            own_seconds=self.own_seconds,
            upstream_seconds=self.upstream_seconds,
            first_byte_seconds=self.first_byte_seconds,
            path=self.path,
            attempts=self.attempts,
            request_id=request_id(self.request_id) if self.request_id else "",
            **(self._extra() if self.spent is not None else {}),
        )


def _measured(plan: Plan, sent: Draft) -> dict[str, Any]:
    before = plan.before
    return {
        "model_sent": sent.model,
        "window": sent.window.tokens,
        "window_source": sent.window.source,
        "quality": before.meter.quality,
        "prompt": before.prompt,
        "prompt_sent": sent.prompt,
        "reserve": sent.reserve,
        "reply_asked": before.reply,
        "reply_sent": sent.reply,
        "load_before": before.load,
        "load_after": sent.load,
        "messages_in": count(before),
        "messages_sent": count(sent),
    }
