"""Draws the JSON of /inspect for a terminal: the window before and after, its parts, the steps and the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

MAX_BAR_WIDTH = 120  # columns
LABEL_WIDTH = 26  # columns next to a bar
MAX_ROWS = 24  # of the table of messages: an agent's conversation has hundreds
MAX_LOAD = 2.0  # windows that a bar shows; the rest is left out, so that the window stays visible
LINE = "┃"  # the end of the window: the Plimsoll line
OVERFLOW = "»"
OVER = "bold red"


class Part(NamedTuple):
    """A part of the prompt: its key in the JSON, its name, and how it is drawn with and without colours."""

    key: str
    name: str
    sign: str
    colour: str


PARTS = (  # in the order of the bar
    Part("system", "system", "█", "blue"),
    Part("tools", "tools", "▓", "magenta"),
    Part("history", "history", "▒", "green"),
    Part("tool_results", "tool results", "▚", "yellow"),
    Part("reply", "reply", "░", "cyan"),
    Part("margin", "margin", "·", "white"),
)
FATES = {
    "kept": "green",
    "shortened": "yellow",
    "joined": "green",
    "recalled": "cyan",
    "summarised": "magenta",
    "dropped": "red",
}
SEPARATE = ("shortened", "joined")  # fates with one row per message

Inspection = Mapping[str, Any]  # the JSON of /inspect, or a part of it


def picture(inspection: Inspection, width: int = 100) -> RenderableType:
    """The whole picture of an inspection, for rich. `width` is in columns."""
    drawn: list[RenderableType] = [
        _head(inspection),
        Text(),
        _bars(inspection, width),
        Text(),
        _parts(inspection),
        Text(),
        _verdict(inspection),
    ]
    drawn += [Text(f"note: {notice}", style="yellow") for notice in inspection.get("notices", ())]
    if inspection["steps"]:
        drawn += [Text(), _steps(inspection["steps"])]
    return Group(*drawn, Text(), _messages(inspection["messages"]))


def _head(inspection: Inspection) -> Text:
    head = Text(inspection["model"], style="bold")
    if inspection["model_sent"] != inspection["model"]:
        head.append(f" → {inspection['model_sent']}", style="bold cyan")
    source = "a guess: unknown model" if inspection["window_guessed"] else f"from {inspection['window_source']}"
    head.append(f"   window {inspection['window']:,} ({source})   count {inspection['tokens']['quality']}", style="dim")
    return head


def _bars(inspection: Inspection, width: int) -> Table:
    """Both bars at one scale, unless their windows differ."""
    before, sent = inspection["parts"]["before"], inspection["parts"]["sent"]
    rows = [("before", before, inspection["window"])]
    if inspection["steps"]:
        rows.append(("sent", sent, inspection["window_sent"]))
    cells = max(20, min(MAX_BAR_WIDTH, width - LABEL_WIDTH))
    loads = [sum(parts.values()) / window for _, parts, window in rows]
    widest = max(loads) if inspection["window"] == inspection["window_sent"] else 0.0
    table = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    for (name, parts, window), load in zip(rows, loads, strict=True):
        scale = min(MAX_LOAD, max(1.0, load, widest))
        style = OVER if load > 1 else ""
        drawn = bar(parts, window, cells, scale)
        table.add_row(name, drawn, Text(f"{sum(parts.values()):,}", style), Text(f"{load:.0%}", style))
    return table


def bar(parts: Mapping[str, int], window: int, cells: int, scale: float = 1.0) -> Text:
    """The parts in a bar of `cells` columns that stands for `scale` windows. A line marks the end of the window; parts
    beyond it are red."""
    line = max(1, round(cells / scale))
    sizes = _sizes(parts, window * scale, cells)
    signs = [part for part in PARTS for _ in range(sizes.get(part.key, 0))]
    drawn = Text()
    for i in range(cells):
        if i == line:
            drawn.append(LINE, style="bold")
        part = signs[i] if i < len(signs) else None
        more = i == cells - 1 and len(signs) > cells
        drawn.append(
            OVERFLOW if more else part.sign if part else " ", OVER if more or i >= line else part.colour if part else ""
        )
    return drawn if line < cells else drawn.append(LINE, style="bold")


def _sizes(parts: Mapping[str, int], total: float, cells: int) -> dict[str, int]:
    """Columns of each part: in proportion, at least one if it is not empty. The largest part absorbs the rounding."""
    sizes = {key: max(1, round(cells * tokens / total)) for key, tokens in parts.items() if tokens > 0}
    if sizes:
        largest = max(sizes, key=lambda key: sizes[key])
        columns = max(len(sizes), round(cells * sum(parts.values()) / total))
        sizes[largest] -= sum(sizes.values()) - columns
    return sizes


def _parts(inspection: Inspection) -> Table:
    """The legend: tokens of each part."""
    before, sent = inspection["parts"]["before"], inspection["parts"]["sent"]
    table = Table("", "part", "before", "sent", box=None, header_style="dim", padding=(0, 1))
    for column in table.columns[2:]:
        column.justify = "right"
    for part in PARTS:
        was, now = before.get(part.key, 0), sent.get(part.key, 0)
        if was or now:
            table.add_row(
                Text(part.sign, part.colour), part.name, f"{was:,}", Text(f"{now:,}", "" if was == now else "bold")
            )
    return table


def _verdict(inspection: Inspection) -> Text:
    if not inspection["fits"] and inspection["possible"]:
        return Text(f"fits only with {inspection['excess']:,} tokens less for the margin or the reply", OVER)
    if not inspection["fits"]:
        return Text(f"does not fit: {inspection['excess']:,} tokens too many after all cuts", OVER)
    text = "" if inspection["steps"] else "forwarded byte for byte, "
    free = inspection["window_sent"] - sum(inspection["parts"]["sent"].values())
    if inspection["tokens"]["max_tokens_sent"] is None:
        text += (
            f"{max(0, free + inspection['tokens']['reserve']):,} tokens left for the reply (the request sets no limit)"
        )
    else:
        text += f"{max(0, free):,} tokens free"
    return Text("fits", "bold green").append(f": {text}", style="dim")


def _steps(steps: Sequence[Inspection]) -> Table:
    table = Table("step", "prompt", "", "max_tokens", "model", box=None, header_style="dim")
    table.columns[2].justify = "right"
    for step in steps:
        before, after = step["tokens_before"], step["tokens_after"]
        change = f"{after - before:+,}" if after != before else ""
        table.add_row(
            step["step"], f"{before:,} → {after:,}", change, _change(step, "max_tokens"), _change(step, "model")
        )
    return table


def _change(step: Inspection, key: str) -> str:
    return f"{step[key + '_before']} → {step[key + '_after']}" if key + "_after" in step else ""


def _messages(messages: Inspection) -> Table:
    """One row per message. Consecutive messages with the same fate share a row; of too many rows the middle is left
    out."""
    table = Table("message", "role", "tokens", "sent", "", "why", box=None, header_style="dim")
    for column in table.columns[2:4]:
        column.justify = "right"
    rows = runs(messages["detail"])
    omitted = range(MAX_ROWS // 2, len(rows) - MAX_ROWS // 2) if len(rows) > MAX_ROWS else range(0)
    for i, run in enumerate(rows):
        if i not in omitted:
            table.add_row(*_row(run))
        elif i == omitted.start:
            hidden = [row for run in rows[omitted.start : omitted.stop] for row in run]
            table.add_row("…", *_row(hidden)[1:4], "", "")
    table.add_row("", "", "", "", "", Text(f"{messages['sent']} of {messages['in']} messages sent", style="dim"))
    return table


def _row(run: Sequence[Inspection]) -> tuple[str | Text, ...]:
    first, last = run[0], run[-1]
    places = f"#{first['index']}" if first is last else f"#{first['index']}…#{last['index']}"
    role = first["role"] if first is last else f"{len(run)} messages"
    before, after = (f"{sum(row[key] for row in run):,}" for key in ("tokens", "tokens_sent"))
    return places, role, before, after, Text(first["fate"], FATES.get(first["fate"], "")), first["why"]


def runs(detail: Sequence[Inspection]) -> list[list[Inspection]]:
    """Groups consecutive messages with the same fate and reason. Shortened and joined messages are separate."""
    found: list[list[Inspection]] = []
    for row in detail:
        alike = found and (found[-1][0]["fate"], found[-1][0]["why"]) == (row["fate"], row["why"])
        if alike and row["fate"] not in SEPARATE:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def show(inspection: Inspection, console: Console | None = None) -> None:
    """Prints the picture of an inspection."""
    console = console or Console()
    console.print(picture(inspection, console.width))
