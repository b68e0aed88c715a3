"""One line an outcome, for people on a terminal and as JSON elsewhere; no content and no key ever goes into it.

Whoever reads the lines may be slow or gone: no request waits for that, and none fails.
"""

from __future__ import annotations

import logging
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TextIO

import msgspec

from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log_writer import Lines, putting
from proxy.wire.report import step_summary

_ENCODER = msgspec.json.Encoder()
LONGEST = 120  # characters of a name that a client chose


_events_as_json = False  # as the process was started: events are of the process, not of one request


def event(message: str, **figures: object) -> None:
    """A line about the proxy itself (a breaker that opened, a bug that was caught), on standard error: in the style
    that `speak` set, else for people."""
    line = _json_event(message, figures) if _events_as_json else _text_event(message, figures)
    with suppress(OSError, ValueError):  # nobody listens any more
        if sys.stderr is not None and _takes(sys.stderr):
            putting(sys.stderr)(line)


def _json_event(message: str, figures: dict[str, object]) -> str:
    plain = {name: value if isinstance(value, str | int | float) else str(value) for name, value in figures.items()}
    told = {"time": round(time.time(), 3), "event": message, **plain}
    return _ENCODER.encode(told).decode() + "\n"


def _text_event(message: str, figures: dict[str, object]) -> str:
    told = " ".join(f"{k}={v}" for k, v in figures.items())
    return f"{time.strftime('%H:%M:%S')} plimsoll: {message} {told}".rstrip() + "\n"


def speak(style: str) -> None:
    """From now on events are lines in the style of the log: auto, json or text (auto: text on a terminal)."""
    global _events_as_json
    _events_as_json = not _for_people(style, sys.stderr)


class Events(logging.Handler):
    """What a library says of its own accord, as an event; without the traceback, which may hold content."""

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        event(record.getMessage())


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
    if _for_people(style, out):
        return Log(text_line, Lines(out, lost_text))
    return Log(json_line, Lines(out, lost_json))


def _for_people(style: str, stream: TextIO | None) -> bool:
    return style == "text" or (style == "auto" and stream is not None and stream.isatty())


class _Told(msgspec.Struct, omit_defaults=True):
    """What is told of an outcome; what is not known is left out. Times in milliseconds."""

    time: float
    endpoint: str
    path: str
    result: str
    status: int
    stream: bool
    attempts: int
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
    planned: str = ""
    refused: str = ""
    usage: int | None = None
    extra_calls: int = 0
    extra_tokens: int = 0
    extra_ms: float | None = None
    request_id: str = ""
    truncated: bool = False
    bytes_in: int = 0
    bytes_out: int = 0


def json_line(o: Outcome, at: float) -> str:
    """One JSON object and a line's end; `at` is the time of day in seconds."""
    told = _Told(
        round(at, 3),
        o.endpoint,
        o.path,
        o.result,
        o.status,
        o.stream,
        o.attempts,
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
        _steps(o.notes),
        o.quality,
        _steps(o.planned),
        ", ".join(o.refusals),
        o.usage.prompt if o.usage else None,
        o.extra_calls,
        o.extra_tokens,
        round(1000 * o.extra_seconds, 1) if o.extra_calls else None,
        o.request_id,
        o.truncated,
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
    steps = f" [{_steps(o.notes)}]" if o.notes else ""
    planned = f" planned=[{_steps(o.planned)}]" if o.planned else ""
    refused = f" refused={','.join(o.refusals)}" if o.refusals else ""
    cut_there = f" truncated={o.usage.prompt:,}" if o.truncated and o.usage else ""
    passed = f" in={o.bytes_in:,}B out={o.bytes_out:,}B" if o.bytes_in or o.bytes_out else ""
    took = f" own={1000 * o.own_seconds:.1f}ms upstream={1000 * o.upstream_seconds:.0f}ms"
    model = printable(o.model) if o.model_sent in ("", o.model) else f"{printable(o.model)}->{printable(o.model_sent)}"
    named = f" model={model} window={o.window:,}" if o.model else ""
    head = f"{time.strftime('%H:%M:%S', time.localtime(at))} {o.status} {o.result} {o.endpoint} {o.path}".rstrip()
    how = " stream" * o.stream + (f" mode={o.mode}" if o.mode not in ("", "fit") else "")
    more = f" attempts={o.attempts}" if o.attempts > 1 else ""
    if o.extra_calls:
        more += f" extra={o.extra_calls} calls, {o.extra_tokens:,} tokens, {o.extra_seconds:.1f}s"
    marked = f" id={o.request_id}" if o.request_id else ""
    return f"{head}{how}{named}{used}{cut}{kept}{steps}{planned}{refused}{cut_there}{more}{passed}{took}{marked}\n"


def lost_text(count: int) -> str:
    """The same, for people."""
    return f"{time.strftime('%H:%M:%S')} {count:,} lines were lost\n"


def _steps(notes: Sequence[Note]) -> str:
    return printable(", ".join(map(step_summary, notes)), 8 * LONGEST) if notes else ""


def printable(text: str, most: int = LONGEST) -> str:
    """A name that a client sent, safe for a terminal and no longer than a name is."""
    if len(text) <= most and text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text[:most])
