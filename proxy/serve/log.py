"""One line an outcome, for people on a terminal and as JSON elsewhere; no content and no key ever goes into it.

Whoever reads the lines may be slow or gone: no request waits for that, and none fails.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TextIO

import msgspec

from proxy.serve.lines import Lines, putting
from proxy.types import Outcome
from proxy.wire.report import step_summary

LONGEST = 120  # characters of a name that a client chose


def event(message: str, **figures: object) -> None:
    """A line about the proxy itself (a breaker that opened, a bug that was caught), on standard error."""
    told = " ".join(f"{k}={v}" for k, v in figures.items())
    with suppress(OSError, ValueError):  # nobody listens any more
        if sys.stderr is not None and _takes(sys.stderr):
            putting(sys.stderr)(f"{time.strftime('%H:%M:%S')} plimsoll: {message} {told}".rstrip() + "\n")


class Seldom:
    """An event that may happen a thousand times a second: told once in so many seconds, with how often it was not."""

    __slots__ = ("_after", "_message", "_seconds", "_untold")

    def __init__(self, message: str, seconds: float = 10.0) -> None:
        self._message, self._seconds = message, seconds
        self._after, self._untold = 0.0, 0

    def __call__(self, **figures: object) -> None:
        """It happened."""
        now = time.monotonic()
        if now < self._after:
            self._untold += 1
            return
        event(self._message, **figures, **({"untold": self._untold} if self._untold else {}))
        self._after, self._untold = now + self._seconds, 0


def _takes(stream: TextIO) -> bool:
    """Whether a line can be written there without waiting for whoever reads it."""
    try:
        return bool(select.select((), (stream.fileno(),), (), 0)[1])
    except OSError:  # no file below: a test's
        return True


class Log:
    """Writes one line for each outcome that it is called with."""

    def __init__(self, line: Callable[[Outcome, float], str], lines: Lines) -> None:
        self._line = line
        self._lines = lines

    def __call__(self, outcome: Outcome) -> None:
        """One line, which a thread makes and writes."""
        self._lines.write(partial(self._line, outcome, time.time()))

    def close(self) -> None:
        """Writes what is not written yet."""
        self._lines.close()


def make_log(style: str = "auto", stream: TextIO | None = None) -> Log:
    """A log on `stream` (standard output); `style` is auto, json or text (auto: text on a terminal)."""
    out = stream or sys.stdout
    as_text = style == "text" or (style == "auto" and out is not None and out.isatty())
    return Log(text_line if as_text else json_line, Lines(out, lost_text if as_text else lost_json))


class _Told(msgspec.Struct, omit_defaults=True):
    """What is told of an outcome; what is not known is left out. Times in milliseconds."""

    time: float
    endpoint: str
    result: str
    status: int
    own_ms: float
    upstream_ms: float = 0.0
    mode: str = ""
    ladder: str = ""
    model: str = ""
    model_sent: str = ""
    window: int = 0
    prompt: int | None = None
    prompt_sent: int | None = None
    reserve: int = 0
    max_tokens: int | None = None
    messages: int = 0
    messages_sent: int = 0
    steps: str = ""
    count: str = ""
    refused: str = ""
    usage: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0


_ENCODER = msgspec.json.Encoder()


def json_line(o: Outcome, at: float) -> str:
    """One JSON object and a line's end; `at` is the time of day in seconds."""
    told = _Told(
        round(at, 3),
        o.endpoint,
        o.result,
        o.status,
        round(1000 * o.own_seconds, 2),
        round(1000 * o.upstream_seconds, 1),
        o.mode,
        o.ladder,
        printable(o.model),
        printable(o.model_sent) if o.model_sent != o.model else "",
        o.window,
        o.prompt,
        o.prompt_sent,
        o.reserve,
        o.reply_sent,
        o.messages_in,
        o.messages_sent,
        _steps(o),
        o.quality,
        ", ".join(o.refusals),
        o.usage.prompt if o.usage else None,
        o.bytes_in,
        o.bytes_out,
    )
    return _ENCODER.encode(told).decode() + "\n"


def lost_json(count: int) -> str:
    """The line that tells of lines that nobody took."""
    return f'{{"time":{time.time():.3f},"lost_lines":{count}}}\n'


def text_line(o: Outcome, at: float) -> str:
    """Seed 000's line for people: model, window, used of budget, messages kept, and what was done."""
    used = "" if o.prompt_sent is None else f" {o.prompt_sent:,}/{max(0, o.window - o.reserve):,} tokens"
    cut = "" if o.prompt in (None, o.prompt_sent) else f" (of {o.prompt:,})"
    kept = f" messages={o.messages_sent}/{o.messages_in}" if o.messages_in else ""
    steps = f" [{_steps(o)}]" if o.notes else ""
    refused = f" refused={','.join(o.refusals)}" if o.refusals else ""
    passed = f" in={o.bytes_in:,}B out={o.bytes_out:,}B" if o.bytes_in or o.bytes_out else ""
    took = f" own={1000 * o.own_seconds:.1f}ms upstream={1000 * o.upstream_seconds:.0f}ms"
    model = printable(o.model) if o.model_sent in ("", o.model) else f"{printable(o.model)}->{printable(o.model_sent)}"
    named = f" model={model} window={o.window:,}" if o.model else ""
    head = f"{time.strftime('%H:%M:%S', time.localtime(at))} {o.status} {o.result} {o.endpoint}"
    return f"{head}{named}{used}{cut}{kept}{steps}{refused}{passed}{took}\n"


def lost_text(count: int) -> str:
    """The same, for people."""
    return f"{time.strftime('%H:%M:%S')} {count:,} lines were lost\n"


def _steps(o: Outcome) -> str:
    return printable(", ".join(map(step_summary, o.notes)), 8 * LONGEST) if o.notes else ""


def printable(text: str, most: int = LONGEST) -> str:
    """A name that a client sent, safe for a terminal and no longer than a name is."""
    if len(text) <= most and text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text[:most])
