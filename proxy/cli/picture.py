"""Draws the JSON of /inspect for a terminal: the window before and after, its parts, the steps and the messages.

Every column adds up: the parts to the bar, the messages and the overhead to the prompt that the steps show. A row names
each step that touched its message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from shutil import get_terminal_size
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

MAX_BAR_WIDTH = 120  # columns
NAME_WIDTH = 12  # columns of a role or the name of a figure; a longer one wraps
MAX_ROWS = 24  # of the table of messages: an agent's conversation has hundreds
MAX_RANGES = 3  # of lines that a row names, the longest
MAX_LOAD = 2.0  # windows that a bar shows; the rest is left out, so that the window stays visible
LINE = "┃"  # the end of the window: the Plimsoll line
OVERFLOW = "»"
OVER = "bold red"
# What is drawn where a terminal has no Unicode: a line, an ellipsis, an arrow, a dash.
ASCII = str.maketrans({LINE: "|", OVERFLOW: ">", "…": "...", "→": "->", "–": "-"})


class Part(NamedTuple):
    """A part of the prompt: its key in the JSON, its name, and how it is drawn: in Unicode, in ASCII and in colour."""

    key: str
    name: str
    sign: str
    ascii: str
    colour: str


PARTS = (  # in the order of the bar
    Part("system", "system", "█", "#", "blue"),
    Part("tools", "tools", "▓", "=", "magenta"),
    Part("history", "history", "▒", "+", "green"),
    Part("tool_results", "tool results", "▚", "%", "yellow"),
    Part("reply", "reply", "░", ":", "cyan"),
    Part("margin", "margin", "·", ".", "white"),
)
STATES = {
    "kept": "green",
    "shortened": "yellow",
    "excerpted": "yellow",
    "joined": "green",
    "recalled": "cyan",
    "added": "cyan",
    "summarised": "magenta",
    "dropped": "red",
}
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")  # in a reason
AGAIN = "counted again"  # for the name of a step
SEPARATE = ("shortened", "excerpted", "joined", "added")  # states with one row per message

Inspection = Mapping[str, Any]  # the JSON of /inspect, or a part of it


@dataclass(frozen=True, slots=True)
class View:
    """How a picture is drawn. `width` is in columns. `ascii`: without Unicode. `all`: every message has a row. `rest`:
    how to see the messages that have none."""

    width: int = 100
    ascii: bool = False
    all: bool = False
    rest: str = ""

    def text(self, text: str, style: str = "") -> Text:
        """Text as the terminal can show it. Text of a client moves no cursor and is no markup."""
        visible = "".join(c if c.isprintable() else "?" for c in text)
        shown = visible.translate(ASCII).encode("ascii", "replace").decode() if self.ascii else visible
        return Text(shown, style)

    def sign(self, part: Part) -> str:
        """The sign of a part in a bar."""
        return part.ascii if self.ascii else part.sign


def view(console: Console, *, all: bool = False, rest: str = "") -> View:
    """How a picture is drawn on this console: in ASCII if its encoding is not Unicode, or if the terminal is dumb."""
    return View(console.width, console.options.ascii_only or console.is_dumb_terminal, all, rest)


def terminal() -> Console:
    """The console of standard output. Rich takes every dumb terminal to be 80 columns wide."""
    console = Console()
    return Console(width=get_terminal_size().columns, height=console.height) if console.is_dumb_terminal else console


def show(inspection: Inspection, console: Console | None = None, *, all: bool = False) -> None:
    """Prints the picture of an inspection. `all`: one row for every message."""
    console = console or terminal()
    console.print(picture(inspection, view(console, all=all, rest="--all shows them")))


def picture(inspection: Inspection, view: View) -> RenderableType:
    """The whole picture of an inspection, for rich."""
    drawn: list[RenderableType] = [
        _head(inspection, view),
        Text(),
        _bars(inspection, view),
        Text(),
        _parts(inspection, view),
        Text(),
        _verdict(inspection),
    ]
    drawn += [view.text(f"note: {notice}", "yellow") for notice in inspection.get("notices", ())]
    if (mode := inspection.get("mode")) in ("off", "observe"):
        drawn.append(view.text(f"note: in mode {mode} it is sent as it came; this is the plan of mode fit", "yellow"))
    if inspection["steps"]:
        drawn += [Text(), _steps(inspection["steps"], view)]
    return Group(*drawn, Text(), _messages(inspection, view))


def _head(inspection: Inspection, view: View) -> Text:
    head = view.text(inspection["model"], "bold")
    if inspection["model_sent"] != inspection["model"]:
        head.append_text(view.text(f" → {inspection['model_sent']}", "bold cyan"))
    source = "a guess: unknown model" if inspection["window_guessed"] else f"from {inspection['window_source']}"
    figures = f"   window {inspection['window']:,} ({source})   count {inspection['tokens']['quality']}"
    return head.append_text(view.text(figures, "dim"))


def _table(*columns: str, numbers: Sequence[int] = ()) -> Table:
    """A table without lines. Numbers stand at the right and are never cut; texts wrap."""
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(columns):
        right = place in numbers
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def _bars(inspection: Inspection, view: View) -> Table:
    """Both bars at one scale, unless their windows differ."""
    before, sent = _taken(inspection)
    rows = [("before", before, inspection["window"])]
    if inspection["steps"]:
        rows.append(("sent", sent, inspection["window_sent"]))
    loads = [sum(parts.values()) / window for _, parts, window in rows]
    figures = [(f"{sum(parts.values()):,}", f"{load:.0%}") for (_, parts, _), load in zip(rows, loads, strict=True)]
    label = sum(max(map(len, column)) + 1 for column in zip(*figures, strict=True)) + len("before ") + len(LINE)
    cells = max(20, min(MAX_BAR_WIDTH, view.width - label))
    widest = max(loads) if inspection["window"] == inspection["window_sent"] else 0.0
    table = _table("", "", "", "", numbers=(2, 3))
    table.show_header, table.columns[1].no_wrap = False, True
    for (name, parts, window), load, (tokens, share) in zip(rows, loads, figures, strict=True):
        scale = min(MAX_LOAD, max(1.0, load, widest))
        style = OVER if load > 1 else ""
        table.add_row(name, bar(parts, window, cells, scale, view), Text(tokens, style), Text(share, style))
    return table


def bar(parts: Mapping[str, int], window: int, cells: int, scale: float, view: View) -> Text:
    """The parts in a bar of `cells` columns that stands for `scale` windows. A line marks the end of the window; parts
    beyond it are red."""
    line = max(1, round(cells / scale))
    sizes = _sizes(parts, window * scale, cells)
    signs = [part for part in PARTS for _ in range(sizes.get(part.key, 0))]
    drawn: list[tuple[str, str]] = []  # signs with their styles
    for i in range(cells):
        if i == line:
            drawn.append((LINE, "bold"))
        part = signs[i] if i < len(signs) else None
        more = i == cells - 1 and len(signs) > cells
        sign = OVERFLOW if more else view.sign(part) if part else " "
        drawn.append((sign, OVER if part and (more or i >= line) else part.colour if part else ""))
    if line >= cells:
        drawn.append((LINE, "bold"))
    runs_of_style = groupby(drawn, key=lambda one: one[1])
    return Text.assemble(*(view.text("".join(sign for sign, _ in run), style) for style, run in runs_of_style))


def _taken(inspection: Inspection) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The parts before and as sent. A reply without a limit takes at most what is left."""
    before, sent = inspection["parts"]["before"], inspection["parts"]["sent"]
    if inspection["tokens"]["max_tokens_sent"] is None:
        left = max(0, inspection["window_sent"] - sum(sent.values()) + sent["reply"])
        sent = {**sent, "reply": min(sent["reply"], left)}
    return before if inspection["steps"] else sent, sent


def _sizes(parts: Mapping[str, int], total: float, cells: int) -> dict[str, int]:
    """Columns of each part: in proportion, at least one if it is not empty. The largest part absorbs the rounding."""
    sizes = {key: max(1, round(cells * tokens / total)) for key, tokens in parts.items() if tokens > 0}
    if sizes:
        largest = max(sizes, key=lambda key: sizes[key])
        columns = max(len(sizes), round(cells * sum(parts.values()) / total))
        sizes[largest] -= sum(sizes.values()) - columns
    return sizes


def _parts(inspection: Inspection, view: View) -> Table:
    """The legend: tokens of each part, and their sum."""
    before, sent = _taken(inspection)
    table = _table("", "part", "before", "sent", numbers=(2, 3))
    for part in PARTS:
        was, now = before.get(part.key, 0), sent.get(part.key, 0)
        if was or now:
            sign = Text(view.sign(part), part.colour)
            table.add_row(sign, part.name, f"{was:,}", Text(f"{now:,}", "" if was == now else "bold"))
    table.add_row("", "total", f"{sum(before.values()):,}", f"{sum(sent.values()):,}", style="dim")
    return table


def _verdict(inspection: Inspection) -> Text:
    if not inspection["fits"] and inspection["possible"]:
        return Text(f"fits only with {inspection['excess']:,} tokens less for the margin or the reply", OVER)
    if not inspection["fits"]:
        return Text(f"does not fit: {inspection['excess']:,} tokens too many after all cuts", OVER)
    text = "" if inspection["steps"] else "forwarded byte for byte, "
    _, sent = _taken(inspection)
    free = max(0, inspection["window_sent"] - sum(sent.values()))
    if inspection["tokens"]["max_tokens_sent"] is None:
        text += f"{free + sent['reply']:,} tokens left for the reply (the request sets no limit)"
    else:
        text += f"{free:,} tokens free"
    return Text("fits", "bold green").append(f": {text}", style="dim")


def _steps(steps: Sequence[Inspection], view: View) -> Table:
    """One row for each figure that a step changed."""
    table = _table("step", "", "before", "after", "change", numbers=(2, 3, 4))
    for step in steps:
        name, prompt = step["step"], (step["tokens_before"], step["tokens_after"])
        limits = (step["max_tokens_before"], step["max_tokens_after"]) if "max_tokens_after" in step else None
        rows = [("prompt", prompt)] if prompt[0] != prompt[1] or limits is None else []
        rows += [("max_tokens", limits)] if limits is not None else []
        for figure, (before, after) in rows:
            change = "" if before is None or after is None else f"{after - before:+,}"
            table.add_row(view.text(name), figure, _figure(before), _figure(after), change)
            name = ""
        if "model_after" in step:
            table.add_row(view.text(name), view.text(f"model {step['model_after']}"), "", "", "")
    return table


def _figure(tokens: int | None) -> str:
    return "none" if tokens is None else f"{tokens:,}"


def _messages(inspection: Inspection, view: View) -> Table:
    """One row per message. Consecutive messages with the same state share a row; of too many rows the middle is left
    out, unless all are shown."""
    messages = inspection["messages"]
    table = _table("message", "role", "tokens", "sent", "", numbers=(2, 3))
    table.columns[0].no_wrap, table.columns[1].max_width = True, NAME_WIDTH
    rows = [[row] for row in messages["detail"]] if view.all else runs(messages["detail"])
    omitted = range(0)
    if len(rows) > MAX_ROWS and not view.all:
        omitted = range(MAX_ROWS // 2, len(rows) - MAX_ROWS // 2)
    for i, run in enumerate(rows):
        if i not in omitted:
            table.add_row(*_row(run, view))
        elif i == omitted.start:
            hidden = [row for run in rows[omitted.start : omitted.stop] for row in run]
            table.add_row(view.text("…"), f"{len(hidden)} messages", *_sums(hidden), Text(view.rest, "dim"))
    by = f": {steps}" if (steps := _steps_of([messages["overhead"]])) else ""
    besides = view.text(f"tools and the request itself{by}", "dim")
    table.add_row("", "overhead", *_sums([messages["overhead"]]), besides)
    sums = _sums([*messages["detail"], messages["overhead"]])
    table.add_row("", "prompt", *sums, _counts(messages), style="dim")
    return table


def _counts(messages: Inspection) -> str:
    """How many of the client's messages are sent, and how many the proxy adds."""
    added = sum(row["index"] is None for row in messages["detail"])
    return f"{messages['sent'] - added} of {messages['in']} messages sent{f', {added} added' if added else ''}"


def _row(run: Sequence[Inspection], view: View) -> tuple[str | Text, ...]:
    first, last = run[0], run[-1]
    places = "+" if first["index"] is None else f"#{first['index']}"
    role = view.text(first["role"] if first is last else f"{len(run)} messages")
    state = Text(first["state"], STATES.get(first["state"], ""))
    if steps := _steps_of(run):
        state.append_text(
            view.text(f" by {steps}" if first["state"] != "kept" else f", counted again by {steps}", "dim")
        )
    why = "; ".join(filter(None, (_reasons(run), _left_out(first, view))))
    return (
        view.text(places if first is last else f"{places}…#{last['index']}"),
        role,
        *_sums(run),
        state.append_text(view.text(f": {why}", "default")) if why else state,
    )


def _sums(rows: Sequence[Inspection]) -> tuple[str, str]:
    before, sent = (sum(row[key] for row in rows) for key in ("tokens", "tokens_sent"))
    return f"{before:,}", f"{sent:,}"


def _left_out(row: Inspection, view: View) -> str:
    """The lines that an excerpt does not have whole: `103 of 300 lines left out or cut: 4–80, 95–120`."""
    ranges = row.get("left_out", ())
    if not ranges:
        return ""
    longest = sorted(ranges, key=lambda one: one[0] - one[1])
    shown = ranges if view.all else sorted(longest[:MAX_RANGES])
    names = [f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last in shown]
    others = len(ranges) - len(shown)
    more = f" and {others} more range{'s' * (others > 1)}" if others else ""
    count = sum(last - first + 1 for first, last in ranges)
    return f"{count:,} of {row['lines']:,} lines left out or cut: {', '.join(names)}{more}"


def runs(detail: Sequence[Inspection]) -> list[list[Inspection]]:
    """Groups consecutive messages with the same state and reason, whatever their relevance. Shortened, joined and added
    messages are separate."""
    found: list[list[Inspection]] = []
    for row in detail:
        alike = found and (found[-1][0]["state"], _reason(found[-1][0])) == (row["state"], _reason(row))
        if alike and row["state"] not in SEPARATE:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _reason(row: Inspection) -> str:
    return FIGURE.sub("0", row["why"])


def _reasons(run: Sequence[Inspection]) -> str:
    """The reason of all these messages, which differs in its figures alone: `relevance 0.25 to 0.40`."""
    whys = dict.fromkeys(row["why"] for row in run)
    columns = [sorted(set(found), key=_size) for found in zip(*map(FIGURE.findall, whys), strict=True)]
    merged = iter([f[0] if len(f) == 1 else f"{f[0]} to {f[-1]}" for f in columns])
    return FIGURE.sub(lambda _: next(merged), next(iter(whys)))


def _size(figure: str) -> float:
    return float(figure.replace(",", ""))


def _steps_of(run: Sequence[Inspection]) -> str:
    """The steps that touched these messages, in order."""
    return ", ".join(dict.fromkeys(touch["step"] or AGAIN for row in run for touch in row.get("steps", ())))
