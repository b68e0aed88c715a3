"""One request from its arrival to its Outcome: what was learned about it on the way; it decides nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from proxy.types import Draft, Facts, Ladder, Mode, Note, Outcome, Plan, Prompt
from proxy.wire.controls import NOTHING_ASKED, Controls
from proxy.wire.report import count
from proxy.wire.tap import Tap


@dataclass(slots=True)
class Visit:
    """What is known of one request so far. Times are of `time.perf_counter`, in seconds."""

    endpoint: str
    mode: Mode
    began: float = field(default_factory=time.perf_counter)
    controls: Controls = NOTHING_ASKED
    ladder: Ladder | None = None
    body: bytes = b""
    packed: bool = False
    prompt: Prompt | None = None
    facts: Facts | None = None
    plan: Plan | None = None
    model: str = ""
    stream: bool = False
    result: str = ""
    status: int = 0
    refusals: list[str] = field(default_factory=list)
    healed: bool = False
    tap: Tap | None = None
    own_seconds: float = 0.0
    sent_at: float = 0.0
    upstream_seconds: float = 0.0
    first_byte_seconds: float | None = None

    @property
    def acts(self) -> bool:
        """Whether what is sent may differ from what the client sent."""
        return self.mode in (Mode.FIT, Mode.STRICT)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the steps did to what was really sent."""
        return self.plan.notes if self.plan is not None and self.acts else ()

    def outcome(self) -> Outcome:
        """All that is to be told of it."""
        told = Outcome(
            endpoint=self.endpoint,
            result=self.result or "passed",
            status=self.status,
            mode=str(self.mode),
            ladder=self.ladder.name if self.ladder else "",
            model=self.model,
            model_sent=self.model,
            refusals=tuple(self.refusals),
            healed=self.healed,
            usage=self.tap.usage if self.tap else None,
            stream=self.stream,
            own_seconds=self.own_seconds,
            upstream_seconds=self.upstream_seconds,
            first_byte_seconds=self.first_byte_seconds,
        )
        return (
            told
            if self.plan is None
            else _measured(told, self.plan, self.plan.draft if self.acts else self.plan.before)
        )


def _measured(outcome: Outcome, plan: Plan, sent: Draft) -> Outcome:
    before = plan.before
    return replace(
        outcome,
        model_sent=sent.model,
        window=sent.window.tokens,
        window_source=sent.window.source,
        quality=str(before.meter.quality),
        prompt=before.prompt,
        prompt_sent=sent.prompt,
        reserve=sent.reserve,
        reply_asked=before.reply,
        reply_sent=sent.reply,
        load_before=before.load,
        load_after=sent.load,
        messages_in=count(before),
        messages_sent=count(sent),
        notes=plan.notes if sent is plan.draft else (),
    )
