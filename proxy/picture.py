"""Draws what /inspect says: the window as one bar before and after, the steps, and each message's fate; it computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

PARTS = (  # in the order in which they stand in the bar
    ("system", "system", "blue"),
    ("tools", "tools", "magenta"),
    ("history", "history", "green"),
    ("tool_results", "tool results", "yellow"),
    ("reply", "reply", "cyan"),
    ("margin", "margin", "white"),
)
FATES = {"kept": "green", "shortened": "yellow", "recalled": "cyan", "summarised": "magenta", "dropped": "red"}


def bar(parts: Mapping[str, int], window: int, width: int) -> Text:
    """The window as `width` cells; what does not fit stands behind the line in red."""
    drawn, cells = Text(), 0
    total = sum(parts.get(key, 0) for key, _, _ in PARTS)
    scale = width / max(window, 1)
    for key, _, colour in PARTS:
        size = round(parts.get(key, 0) * scale) or (1 if parts.get(key, 0) > 0 else 0)
        inside = max(0, min(size, width - cells))
        drawn.append("█" * inside, style=colour)
        cells += size
    drawn.append("░" * max(0, width - cells), style="dim")
    drawn.append("▏", style="bold")
    if total > window:
        drawn.append(f" {total - window:,} over", style="bold red")
    return drawn


def legend(parts: Mapping[str, int]) -> Text:
    """What each colour is, with its tokens."""
    drawn = Text()
    for key, name, colour in PARTS:
        if parts.get(key, 0):
            drawn.append("█ ", style=colour)
            drawn.append(f"{name} {parts[key]:,}   ", style="dim")
    return drawn


def picture(told: Mapping[str, Any], width: int = 100) -> RenderableType:
    """All of an inspection's JSON as something that rich can print."""
    tokens = told["tokens"]
    cells = max(20, min(80, width - 26))
    head = Text(f"{told['model']}", style="bold")
    if told["model_sent"] != told["model"]:
        head.append(f" → {told['model_sent']}", style="bold cyan")
    guess = ", a guess" if told.get("window_guessed") else ""
    head.append(
        f"   window {told['window']:,} ({told['window_source']}{guess})   count {tokens['quality']}", style="dim"
    )
    rows = Table.grid(padding=(0, 1))
    rows.add_row("before", bar(told["parts"]["before"], told["window"], cells), _sum(told["parts"]["before"]))
    rows.add_row("", legend(told["parts"]["before"]))
    if told["steps"]:
        rows.add_row("sent", bar(told["parts"]["sent"], told["window_sent"], cells), _sum(told["parts"]["sent"]))
        rows.add_row("", legend(told["parts"]["sent"]))
    verdict = Text("fits", style="bold green") if told["fits"] else Text("does not fit", style="bold red")
    if not told["steps"] and told["fits"]:
        verdict.append(": forwarded byte for byte", style="dim")
    return Group(head, rows, verdict, *([_steps(told["steps"])] if told["steps"] else []), _messages(told["messages"]))


def _sum(parts: Mapping[str, int]) -> str:
    return f"{sum(parts.values()):,}"


def _steps(steps: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("step", "prompt", "max_tokens", "model", box=None, header_style="dim")
    for step in steps:
        table.add_row(
            step["step"],
            f"{step['tokens_before']:,} → {step['tokens_after']:,}",
            _change(step, "max_tokens"),
            _change(step, "model"),
        )
    return table


def _change(step: Mapping[str, Any], key: str) -> str:
    return f"{step[key + '_before']} → {step[key + '_after']}" if key + "_after" in step else ""


def _messages(messages: Mapping[str, Any]) -> Table:
    """One row a message; a run of messages that fared alike is one row."""
    table = Table("message", "role", "tokens", "sent", "", "why", box=None, header_style="dim")
    for run in _runs(messages["detail"]):
        first, last = run[0], run[-1]
        names = f"#{first['index']}" if first is last else f"#{first['index']}…#{last['index']}"
        role = first["role"] if first is last else f"{len(run)} messages"
        before, after = (f"{sum(row[key] for row in run):,}" for key in ("tokens", "tokens_sent"))
        table.add_row(names, role, before, after, Text(first["fate"], style=FATES.get(first["fate"], "")), first["why"])
    table.add_row("", "", "", "", "", Text(f"{messages['sent']} of {messages['in']} messages sent", style="dim"))
    return table


def _runs(detail: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Neighbours with the same fate for the same reason, together."""
    runs: list[list[Mapping[str, Any]]] = []
    for row in detail:
        alike = runs and (runs[-1][0]["fate"], runs[-1][0]["why"]) == (row["fate"], row["why"])
        if alike and row["fate"] != "shortened":
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def show(told: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints the picture."""
    console = console or Console()
    console.print(picture(told, console.width))
