"""The access log (one line per request, on standard output) and events (lines about the proxy, on standard error).

Both are text on a terminal and JSON elsewhere. They contain no content of requests and no key. No request waits or
fails because the reader of a stream is slow or gone.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TextIO

import msgspec

from proxy.model.outcome import Outcome
from proxy.model.plan import Note
from proxy.observe.log_writer import LogWriter, unbuffered_write
from proxy.wire.keys import hidden_text
from proxy.wire.report import step_summary

_ENCODER = msgspec.json.Encoder()
MAX_NAME = 120  # characters of a name that a client chose


_events_as_json = False  # global, because events concern the process and not one request


def event(message: str, **figures: object) -> None:
    """Writes a line about the proxy itself (a breaker that opened, a bug that was caught) to standard error, in the
    style that `set_event_style` chose. Never raises; the line is dropped if writing would block."""
    line = _json_event(message, figures) if _events_as_json else _text_event(message, figures)
    with suppress(OSError, ValueError):  # the stream is closed
        if sys.stderr is not None and _is_writable(sys.stderr):
            unbuffered_write(sys.stderr)(line)


def _json_event(message: str, figures: dict[str, object]) -> str:
    plain = {name: one if isinstance(one, int | float) else hidden_text(str(one)) for name, one in figures.items()}
    record = {"time": round(time.time(), 3), "event": message, **plain}
    return _ENCODER.encode(record).decode() + "\n"


def _text_event(message: str, figures: dict[str, object]) -> str:
    fields = " ".join(f"{name}={hidden_text(str(value))}" for name, value in figures.items())
    return f"{time.strftime('%H:%M:%S')} plimsoll: {message} {fields}".rstrip() + "\n"


def set_event_style(style: str) -> None:
    """Sets the style of all further events: auto, json or text (auto: text on a terminal, else json)."""
    global _events_as_json
    _events_as_json = not _is_text(style, sys.stderr)


def _is_writable(stream: TextIO) -> bool:
    """Whether writing a line would not block."""
    try:
        return bool(select.select((), (stream.fileno(),), (), 0)[1])
    except OSError:  # a stream in memory
        return True


class AccessLog:
    """Writes one line for each outcome that it is called with. A thread formats and writes the lines."""

    def __init__(self, formatter: Callable[[Outcome, float], str], writer: LogWriter) -> None:
        self._formatter = formatter
        self._writer = writer

    def __call__(self, outcome: Outcome) -> None:
        """Queues one line and returns at once. Never raises."""
        self._writer.write(partial(self._formatter, outcome, time.time()))

    def close(self) -> None:
        """Writes the queued lines, within the timeout of `LogWriter.close`."""
        self._writer.close()


def make_access_log(style: str = "auto", stream: TextIO | None = None) -> AccessLog:
    """An access log on `stream` (None: standard output). `style` is auto, json or text (auto: text on a terminal)."""
    out = stream or sys.stdout
    if _is_text(style, out):
        return AccessLog(text_line, LogWriter(out, lost_text))
    return AccessLog(json_line, LogWriter(out, lost_json))


def _is_text(style: str, stream: TextIO | None) -> bool:
    return style == "text" or (style == "auto" and stream is not None and stream.isatty())


class _Record(msgspec.Struct, omit_defaults=True):
    """The fields of a JSON line. Fields with their default value are omitted. Names are part of the public interface;
    `_ms` are milliseconds."""

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
    trace_id: str = ""
    truncated: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    upstream: str = ""
    unmoved: str = ""
    unplanned: str = ""
    kept: str = ""
    caller: str = ""
    budget: str = ""
    stage: int = 0


def json_line(o: Outcome, at: float) -> str:
    """The line of an outcome as JSON, with its newline; `at` is the time in seconds since 1970."""
    record = _Record(
        _rounded(at, 1000),
        o.endpoint,
        o.path,
        o.result,
        o.status,
        o.stream,
        o.attempts,
        _rounded(1000 * o.own_seconds, 100),
        _rounded(1000 * o.upstream_seconds, 10),
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
        _steps(o.notes) if o.notes else "",
        o.quality,
        _steps(o.planned) if o.planned else "",
        ", ".join(o.refusals) if o.refusals else "",
        o.usage.prompt if o.usage else None,
        o.extra_calls,
        o.extra_tokens,
        round(1000 * o.extra_seconds, 1) if o.extra_calls else None,
        o.request_id,
        o.trace.trace_id if o.trace else "",
        o.truncated,
        o.bytes_in,
        o.bytes_out,
        o.upstream,
        o.unmoved,
        o.unplanned,
        _kept(o) if o.kept else "",
        o.caller,
        o.budget,
        o.stage,
    )
    return _ENCODER.encode(record).decode() + "\n"


def _rounded(number: float, parts: int) -> float:
    """A number of at least 0 in whole `parts` of one; takes a third of what `round` takes."""
    return int(number * parts + 0.5) / parts


def lost_json(count: int) -> str:
    """The JSON line that reports how many lines could not be written."""
    return f'{{"time":{time.time():.3f},"lost_lines":{count}}}\n'


def text_line(o: Outcome, at: float) -> str:
    """The line of an outcome as text, with its newline: model, window, tokens used of the budget, messages kept, and
    what was done; `at` is the time in seconds since 1970."""
    used = "" if o.prompt_sent is None else f" {o.prompt_sent:,}/{_budget(o, o.prompt_sent):,} tokens"
    cut = "" if o.prompt in (None, o.prompt_sent) else f" (of {o.prompt:,})"
    kept = f" messages={o.messages_sent}/{o.messages_in}" if o.messages_in else ""
    steps = f" [{_steps(o.notes)}]" if o.notes else ""
    planned = f" planned=[{_steps(o.planned)}]" if o.planned else ""
    refused = f" refused={','.join(o.refusals)}" if o.refusals else ""
    truncated = f" truncated={o.usage.prompt:,}" if o.truncated and o.usage else ""
    passed = f" in={o.bytes_in:,}B out={o.bytes_out:,}B" if o.bytes_in or o.bytes_out else ""
    took = f" own={1000 * o.own_seconds:.1f}ms upstream={1000 * o.upstream_seconds:.0f}ms"
    model = printable(o.model) if o.model_sent in ("", o.model) else f"{printable(o.model)}->{printable(o.model_sent)}"
    named = f" model={model} window={o.window:,}" if o.model else ""
    head = f"{time.strftime('%H:%M:%S', time.localtime(at))} {o.status} {o.result} {o.endpoint} {o.path}".rstrip()
    how = " stream" * o.stream + (f" mode={o.mode}" if o.mode not in ("", "fit") else "")
    more = f" kept=[{_kept(o)}]" if o.kept else ""
    more += f" upstream={o.upstream}" if o.upstream else ""
    more += f" caller={o.caller}" if o.caller else ""
    more += f" budget={o.budget}:{o.stage}" if o.budget else ""
    more += "".join(f" [{why}]" for why in (o.unmoved, o.unplanned) if why)
    more += f" attempts={o.attempts}" if o.attempts > 1 else ""
    if o.extra_calls:
        more += f" extra={o.extra_calls} calls, {o.extra_tokens:,} tokens, {o.extra_seconds:.1f}s"
    marked = f" id={o.request_id}" * bool(o.request_id) + (f" trace={o.trace.trace_id}" if o.trace else "")
    return f"{head}{how}{named}{used}{cut}{kept}{steps}{planned}{refused}{truncated}{more}{passed}{took}{marked}\n"


def _budget(o: Outcome, prompt: int) -> int:
    """Tokens that the prompt may use: the window without the reply. A reply without a limit takes what a longer prompt
    leaves, so that prompt has the whole window."""
    budget = max(0, o.window - (o.reserve if o.reply_sent is None else min(o.reserve, o.reply_sent)))
    return o.window if o.reply_sent is None and prompt > budget else budget


def lost_text(count: int) -> str:
    """The text line that reports how many lines could not be written."""
    return f"{time.strftime('%H:%M:%S')} {count:,} lines were lost\n"


def _steps(notes: Sequence[Note]) -> str:
    return printable(", ".join(map(step_summary, notes)), 8 * MAX_NAME) if notes else ""


def _kept(o: Outcome) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in o.kept)


def printable(text: str, most: int = MAX_NAME) -> str:
    """A text from a client, safe for a terminal: at most `most` characters, without keys, unprintable ones replaced by
    `?`."""
    return _printable(text[: 2 * most])[:most]


@lru_cache(maxsize=1024)
def _printable(text: str) -> str:
    text = hidden_text(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
