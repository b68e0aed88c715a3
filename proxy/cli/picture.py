"""Draws what /inspect says: the window before and after, parts, steps, each message's fate; it plans nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

WIDEST = 120  # columns of the bars: wider ones say no more
FIGURES = 26  # columns that stand beside them
MOST_ROWS = 24  # of the table of messages: an agent's conversation has hundreds
MOST_LOAD = 2.0  # windows in a bar; of what is longer the rest is left out, so that the window itself stays in sight
LINE = "┃"  # the window's end: the Plimsoll line itself
MORE = "»"
OVER = "bold red"


class Part(NamedTuple):
    """What takes room: its name, and how it is drawn, with colours and without."""

    key: str
    name: str
    sign: str
    colour: str


PARTS = (  # in the order in which they stand in the bar
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
ALONE = ("shortened", "joined")  # they have a row each

Told = Mapping[str, Any]


def picture(told: Told, width: int = 100) -> RenderableType:
    """All of an inspection's JSON as something that rich can print."""
    drawn: list[RenderableType] = [
        _head(told),
        Text(),
        _bars(told, width),
        Text(),
        _parts(told),
        Text(),
        _verdict(told),
    ]
    drawn += [Text(f"note: {said}", style="yellow") for said in told.get("notices", ())]
    if told["steps"]:
        drawn += [Text(), _steps(told["steps"])]
    return Group(*drawn, Text(), _messages(told["messages"]))


def _head(told: Told) -> Text:
    head = Text(told["model"], style="bold")
    if told["model_sent"] != told["model"]:
        head.append(f" → {told['model_sent']}", style="bold cyan")
    source = "a guess: nobody knows it" if told["window_guessed"] else f"from {told['window_source']}"
    head.append(f"   window {told['window']:,} ({source})   count {told['tokens']['quality']}", style="dim")
    return head


def _bars(told: Told, width: int) -> Table:
    """Both to one scale, unless they are of different windows."""
    before, sent = told["parts"]["before"], told["parts"]["sent"]
    rows = [("before", before, told["window"])]
    if told["steps"]:
        rows.append(("sent", sent, told["window_sent"]))
    cells = max(20, min(WIDEST, width - FIGURES))
    loads = [sum(parts.values()) / window for _, parts, window in rows]
    widest = max(loads) if told["window"] == told["window_sent"] else 0.0
    table = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    for (name, parts, window), load in zip(rows, loads, strict=True):
        scale = min(MOST_LOAD, max(1.0, load, widest))
        style = OVER if load > 1 else ""
        drawn = bar(parts, window, cells, scale)
        table.add_row(name, drawn, Text(f"{sum(parts.values()):,}", style), Text(f"{load:.0%}", style))
    return table


def bar(parts: Mapping[str, int], window: int, cells: int, scale: float = 1.0) -> Text:
    """The parts in `cells` columns that hold `scale` windows, the line where the window ends among them; what is over
    the line is red."""
    line = max(1, round(cells / scale))
    sizes = _sizes(parts, window * scale, cells)
    signs = [part for part in PARTS for _ in range(sizes.get(part.key, 0))]
    drawn = Text()
    for place in range(cells):
        if place == line:
            drawn.append(LINE, style="bold")
        part = signs[place] if place < len(signs) else None
        more = place == cells - 1 and len(signs) > cells
        drawn.append(
            MORE if more else part.sign if part else " ", OVER if more or place >= line else part.colour if part else ""
        )
    return drawn if line < cells else drawn.append(LINE, style="bold")


def _sizes(parts: Mapping[str, int], whole: float, cells: int) -> dict[str, int]:
    """Columns for each part: its share, at least one where there is any; what that makes too many the largest gives."""
    sizes = {key: max(1, round(cells * tokens / whole)) for key, tokens in parts.items() if tokens > 0}
    if sizes:
        largest = max(sizes, key=lambda key: sizes[key])
        wanted = max(len(sizes), round(cells * sum(parts.values()) / whole))
        sizes[largest] -= sum(sizes.values()) - wanted
    return sizes


def _parts(told: Told) -> Table:
    """What each sign is, in tokens."""
    before, sent = told["parts"]["before"], told["parts"]["sent"]
    table = Table("", "takes", "before", "sent", box=None, header_style="dim", padding=(0, 1))
    for column in table.columns[2:]:
        column.justify = "right"
    for part in PARTS:
        was, now = before.get(part.key, 0), sent.get(part.key, 0)
        if was or now:
            table.add_row(
                Text(part.sign, part.colour), part.name, f"{was:,}", Text(f"{now:,}", "" if was == now else "bold")
            )
    return table


def _verdict(told: Told) -> Text:
    if not told["fits"] and told["possible"]:
        return Text(f"just fits: {told['excess']:,} tokens of the margin or the reply's floor are missing", OVER)
    if not told["fits"]:
        return Text(f"does not fit: {told['excess']:,} tokens too many, whatever may be cut", OVER)
    said = "" if told["steps"] else "forwarded byte for byte, "
    free = told["window_sent"] - sum(told["parts"]["sent"].values())
    if told["tokens"]["max_tokens_sent"] is None:
        said += f"{max(0, free + told['tokens']['reserve']):,} tokens left for the reply (the request sets no limit)"
    else:
        said += f"{max(0, free):,} tokens stay free"
    return Text("fits", "bold green").append(f": {said}", style="dim")


def _steps(steps: Sequence[Told]) -> Table:
    table = Table("step", "prompt", "", "max_tokens", "model", box=None, header_style="dim")
    table.columns[2].justify = "right"
    for step in steps:
        before, after = step["tokens_before"], step["tokens_after"]
        change = f"{after - before:+,}" if after != before else ""
        table.add_row(
            step["step"], f"{before:,} → {after:,}", change, _change(step, "max_tokens"), _change(step, "model")
        )
    return table


def _change(step: Told, key: str) -> str:
    return f"{step[key + '_before']} → {step[key + '_after']}" if key + "_after" in step else ""


def _messages(messages: Told) -> Table:
    """One row a message; messages in a row that fared alike are one, and of too many rows the middle is left out."""
    table = Table("message", "role", "tokens", "sent", "", "why", box=None, header_style="dim")
    for column in table.columns[2:4]:
        column.justify = "right"
    rows = runs(messages["detail"])
    gap = range(MOST_ROWS // 2, len(rows) - MOST_ROWS // 2) if len(rows) > MOST_ROWS else range(0)
    for place, run in enumerate(rows):
        if place not in gap:
            table.add_row(*_row(run))
        elif place == gap.start:
            hidden = [row for run in rows[gap.start : gap.stop] for row in run]
            table.add_row("…", *_row(hidden)[1:4], "", "")
    table.add_row("", "", "", "", "", Text(f"{messages['sent']} of {messages['in']} messages sent", style="dim"))
    return table


def _row(run: Sequence[Told]) -> tuple[str | Text, ...]:
    first, last = run[0], run[-1]
    places = f"#{first['index']}" if first is last else f"#{first['index']}…#{last['index']}"
    role = first["role"] if first is last else f"{len(run)} messages"
    before, after = (f"{sum(row[key] for row in run):,}" for key in ("tokens", "tokens_sent"))
    return places, role, before, after, Text(first["fate"], FATES.get(first["fate"], "")), first["why"]


def runs(detail: Sequence[Told]) -> list[list[Told]]:
    """Neighbours with the same fate for the same reason, together; what was shortened stands alone."""
    found: list[list[Told]] = []
    for row in detail:
        alike = found and (found[-1][0]["fate"], found[-1][0]["why"]) == (row["fate"], row["why"])
        if alike and row["fate"] not in ALONE:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def show(told: Told, console: Console | None = None) -> None:
    """Prints the picture."""
    console = console or Console()
    console.print(picture(told, console.width))
