"""One line an outcome, for people on a terminal and as JSON elsewhere; no content and no key ever goes into it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from proxy.types import Outcome
from proxy.wire.report import step_summary

Log = Callable[[Outcome], None]


def event(message: str, **figures: object) -> None:
    """A line about the proxy itself (a breaker that opened, a bug that was caught), on standard error."""
    told = " ".join(f"{k}={v}" for k, v in figures.items())
    print(f"{time.strftime('%H:%M:%S')} plimsoll: {message} {told}".rstrip(), file=sys.stderr, flush=True)


def make_log(style: str = "auto", stream: TextIO | None = None) -> Log:
    """A function that writes one line for each outcome; `style` is auto, json or text (auto: text on a terminal)."""
    out = stream or sys.stdout
    as_text = style == "text" or (style == "auto" and out.isatty())
    line = text_line if as_text else json_line

    def write(outcome: Outcome) -> None:
        out.write(line(outcome))
        out.flush()

    return write


def fields(outcome: Outcome) -> dict[str, Any]:
    """What is told of an outcome, by name; what is not known is left out. Times in milliseconds."""
    told: dict[str, Any] = {
        "time": round(time.time(), 3),
        "endpoint": outcome.endpoint,
        "result": outcome.result,
        "status": outcome.status,
        "mode": outcome.mode,
        "ladder": outcome.ladder,
        "model": outcome.model,
        "model_sent": outcome.model_sent if outcome.model_sent != outcome.model else "",
        "window": outcome.window,
        "prompt": outcome.prompt,
        "prompt_sent": outcome.prompt_sent,
        "reserve": outcome.reserve,
        "max_tokens": outcome.reply_sent,
        "messages": outcome.messages_in,
        "messages_sent": outcome.messages_sent,
        "steps": ", ".join(map(step_summary, outcome.notes)),
        "count": outcome.quality,
        "refused": ", ".join(outcome.refusals),
        "usage": outcome.usage.prompt if outcome.usage else None,
        "own_ms": round(1000 * outcome.own_seconds, 2),
        "upstream_ms": round(1000 * outcome.upstream_seconds, 1),
    }
    return {k: v for k, v in told.items() if v not in (None, "", 0) or k in ("status", "own_ms")}


def json_line(outcome: Outcome) -> str:
    """One JSON object and a line's end."""
    return msgspec.json.encode(fields(outcome)).decode() + "\n"


def text_line(outcome: Outcome) -> str:
    """Seed 000's line for people: model, window, used of budget, messages kept, and what was done."""
    o = outcome
    used = "" if o.prompt_sent is None else f" {o.prompt_sent:,}/{max(0, o.window - o.reserve):,} tokens"
    cut = "" if o.prompt in (None, o.prompt_sent) else f" (of {o.prompt:,})"
    kept = f" messages={o.messages_sent}/{o.messages_in}" if o.messages_in else ""
    steps = f" [{', '.join(map(step_summary, o.notes))}]" if o.notes else ""
    took = f" own={1000 * o.own_seconds:.1f}ms upstream={1000 * o.upstream_seconds:.0f}ms"
    model = printable(o.model if o.model == o.model_sent or not o.model_sent else f"{o.model}->{o.model_sent}")
    head = f"{time.strftime('%H:%M:%S')} {o.status} {o.result} {o.endpoint}"
    return f"{head} model={model} window={o.window}{used}{cut}{kept}{steps}{took}\n"


def printable(text: str, most: int = 120) -> str:
    """A name that a client sent, safe for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])
