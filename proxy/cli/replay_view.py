"""The report of a replay for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.cli.picture import View
from proxy.replay.notes import dollars, evidence, money, notes, shows_group, unpriced
from proxy.replay.report import FIGURES_ONLY, MOST_SHOWN

GAP = 2  # columns between two cells
MOST_ROWS = 5  # messages of a cut


def drawn(found: dict[str, Any], view: View) -> RenderableType:
    """The report for a terminal."""
    columns = found["columns"]
    first = columns[0]
    parts: list[RenderableType] = [_input(found, view)]
    if (only := found["figures_only"]) is not None:
        parts += [Text(), *_recorded(only, view)]
    if not first["total"]["planned"]:
        return Group(*parts, *([] if only is None else [Text(), view.text(FIGURES_ONLY, "bold")]))
    parts += [Text(), _compared(columns, view)]
    for title, key in GROUPS:
        if shows_group(first, key):
            parts += [Text(), _groups(title, first[key], view)]
    if first["budgets"]:
        parts += [Text(), _budgets(first["budgets"], view)]
    if any(column["steps"] for column in columns):
        parts += [Text(), _steps(columns, view)]
    for cut in first["worst"]:
        parts += [Text(), _worst(cut, view)]
    parts += [Text(), *_agreement(first, view), Text(), _speed(found, view)]
    return Group(*parts)


def _input(found: dict[str, Any], view: View) -> Text:
    given = found["input"]
    formats = ", ".join(f"{name} {count:,}" for name, count in given["formats"].items()) or "no format that is known"
    lines = [f"{given['requests']:,} requests in {given['files']:,} files: {formats}"]
    lines += [f"not understood: {count:,} x {why}" for why, count in given["not_understood"].items()]
    lines += [f"not planned: {count:,} x {why}" for why, count in found["columns"][0]["not_planned"].items()]
    lines += [f"cannot be read: {problem}" for problem in given["unreadable"]]
    lines += [*notes(found), *unpriced(found["columns"][0]["without_price"])]
    return Text("\n").join(map(view.text, lines))


ROWS: Sequence[tuple[str, Callable[[dict[str, Any]], str]]] = (
    ("requests", lambda t: f"{t['planned']:,}"),
    ("near the line (80 %)", lambda t: f"{t['near']:,}"),
    ("over the line", lambda t: f"{t['over']:,}"),
    ("would be refused as sent", lambda t: f"{t['too_long']:,}"),
    ("  of these answered", lambda t: f"{t['answered']:,}"),
    ("cut", lambda t: f"{t['cut']:,}"),
    ("cannot be made to fit", lambda t: f"{t['unfit']:,}"),
    ("refused: budget used up", lambda t: f"{t['over_budget']:,}"),
    ("prompt tokens", lambda t: f"{t['tokens']['prompt']:,}"),
    ("  removed", lambda t: f"{t['tokens']['removed']:,}"),
    ("evidence kept", evidence),
    ("cached tokens, as sent", lambda t: f"{t['cached_tokens']['as_sent']:,}"),
    ("cached tokens, fitted", lambda t: f"{t['cached_tokens']['fitted']:,}"),
    ("cost as sent, net", lambda t: dollars(t["money"]["as_sent_net"])),
    ("cost fitted, net", lambda t: dollars(t["money"]["fitted_net"])),
    ("saved, net", lambda t: dollars(t["money"]["saved_net"])),
    ("saved, without the cache", lambda t: dollars(t["money"]["saved"])),
    ("cost of what was refused", lambda t: dollars(t["money"]["answered_net"])),
    ("without a price", lambda t: f"{t['money']['unpriced']:,}"),
)


def _plain(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=bool(place), overflow="fold")
    return table


def _compared(columns: Sequence[dict[str, Any]], view: View) -> Table:
    table = _plain("", *(_heading(column, view) for column in columns))
    for name, figure in ROWS:
        table.add_row(name, *(figure(column["total"]) for column in columns))
    return table


GROUPS = (("model", "models"), ("caller", "callers"), ("app", "apps"))


def _groups(title: str, groups: Sequence[dict[str, Any]], view: View) -> Text:
    rows = [
        (
            group["name"],
            *(f"{group[key]:,}" for key in ("planned", "cut", "over", "too_long", "answered")),
            f"{group['tokens']['prompt']:,}",
            f"{group['tokens']['removed']:,}",
            *(money(group, key) for key in ("fitted_net", "saved_net")),
        )
        for group in groups[:MOST_SHOWN]
    ]
    head = (title, "requests", "cut", "over", "refused", "answered", "tokens", "removed", "cost net", "saved net")
    return named_table(head, rows, view)


def _budgets(found: Sequence[dict[str, Any]], view: View) -> Text:
    """What budgets did: requests by the stage in which they were planned, and those that were refused."""
    rows = [
        (
            f"{one['budget']}: {one['name']}",
            one["over"],
            one["limit"],
            one["most"],
            f"{one['share']:.0%}",
            *(f"{count:,}" for count in (*one["stages"], one["refused"])),
            evidence(one),
        )
        for one in found[:MOST_SHOWN]
    ]
    stages = (f"stage {i}" for i in range(4))
    head = ("budget: caller", "over", "limit", "most used", "", *stages, "refused", "evidence kept")
    return named_table(head, rows, view)


def named_table(head: Sequence[str], rows: Sequence[Sequence[str]], view: View) -> Text:
    """A table whose first column has names: each is whole and in one line, so that it can be copied. Where the terminal
    is too narrow for that, figures stand below their names."""
    cells = [[view.text(cell).plain for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    below = sum(widths) + GAP * (len(widths) - 1) > view.width
    lines = [Text("\n" if below else "").join(_cells(row, widths, below)) for row in cells]
    lines[0].stylize("dim")
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _cells(row: Sequence[str], widths: Sequence[int], below: bool) -> tuple[Text, Text]:
    figures = "".join(f"{' ' * GAP}{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
    name = row[0] if below else row[0] + " " * (widths[0] - cell_len(row[0]))
    return Text(name), Text(figures)


def _recorded(only: dict[str, Any], view: View) -> Iterator[RenderableType]:
    """What requests say of themselves of which only the figures are recorded."""
    for title, key in (("recorded figures: model", "models"), ("recorded figures: caller", "callers")):
        rows = [
            (
                group["name"],
                *(f"{group[name]:,}" for name in ("requests", "near", "over", "cut")),
                *(f"{group['tokens'][name]:,}" for name in ("prompt", "removed")),
                money(group, "sent_net"),
            )
            for group in only[key][:MOST_SHOWN]
        ]
        yield named_table((title, "requests", "near", "over", "cut", "tokens", "removed", "cost net"), rows, view)
        yield Text()
    steps = [(f"by {one['step']}", f"{one['requests']:,}", f"{one['tokens']:,}") for one in only["steps"]]
    if steps:
        yield named_table(("recorded steps", "requests", "removed"), steps, view)


def _steps(columns: Sequence[dict[str, Any]], view: View) -> Table:
    """Tokens that each step removes, and from how many requests."""
    several = len(columns) > 1
    table = _plain("step: tokens removed (requests)", *(_heading(c, view) if several else "" for c in columns))
    for name in dict.fromkeys(step["step"] for column in columns for step in column["steps"]):
        found = [next((step for step in column["steps"] if step["step"] == name), None) for column in columns]
        table.add_row(view.text(name), *("" if s is None else f"{s['tokens']:,} ({s['requests']:,})" for s in found))
    return table


def _heading(column: dict[str, Any], view: View) -> str:
    """The name of a column in several lines, so that it takes no room from the first column."""
    return str(view.text(column["name"]).plain).replace(", ", "\n")


def _worst(cut: dict[str, Any], view: View) -> RenderableType:
    """A cut: its sums by what became of messages, and the messages of which most was removed, with why."""
    steps = ", ".join(dict.fromkeys(step["step"] for step in cut["steps"]))
    tokens = f"{cut['prompt']:,} to {cut['prompt_sent']:,} tokens ({cut['share_removed']:.0%} removed)"
    where = Text(view.text(f"{cut['file']}, entry {cut['entry']}").plain, no_wrap=True, overflow="ignore")
    table = _plain("", "tokens", "sent", "")
    table.columns[3].justify, table.columns[3].no_wrap = "left", False
    for state, rows in _by_state(cut["rows"]).items():
        sums = (sum(row[key] for row in rows) for key in ("tokens", "tokens_sent"))
        table.add_row(f"  {len(rows):,} messages", *(f"{count:,}" for count in sums), view.text(state))
    for row in sorted(cut["rows"], key=lambda row: row["tokens_sent"] - row["tokens"])[:MOST_ROWS]:
        if row["tokens"] > row["tokens_sent"]:
            said = f"{row['state']}: {row['why']}" if row["why"] else row["state"]
            figures = (f"{row[key]:,}" for key in ("tokens", "tokens_sent"))
            table.add_row(view.text(f"  #{row['index']} {row['role']}"), *figures, view.text(said))
    return Group(view.text(f"{cut['model']}: {tokens} by {steps}", "bold"), where, table)


def _by_state(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["state"], []).append(row)
    return found


def _agreement(column: dict[str, Any], view: View) -> Iterator[RenderableType]:
    """How far counts and the model of the cache agree with recorded usage."""
    for title, key in (("count against usage", "counts"), ("cache model against usage", "prompt_cache")):
        rows = [
            (
                row["model"],
                *(f"{row[name]:,}" for name in ("requests", "estimated", "reported")),
                *(f"{row[name]:.1%}" for name in ("error_p50", "error_p95", "within_1_percent")),
            )
            for row in column[key][:MOST_SHOWN]
        ]
        head = (title, "requests", "ours", "reported", "error p50", "p95", "within 1 %")
        nothing = Text(f"{title}: nothing is recorded to compare with", "dim")
        yield named_table(head, rows, view) if rows else nothing


def _speed(found: dict[str, Any], view: View) -> Text:
    speed = found["speed"]
    text = f"{speed['tokens']:,} tokens in {speed['seconds']:,.1f} s; list prices of {found['prices_at'] or 'no date'}"
    return view.text(text, "dim")
