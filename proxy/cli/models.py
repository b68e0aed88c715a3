"""What `plimsoll models` shows: what we know of a model, from where, how it is counted, and what a proxy learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from proxy.config.windows import Windows
from proxy.model.conversation import Prompt
from proxy.tokens.families import Families
from proxy.tokens.meter import meter_for

COLUMNS = ("model", "window", "max input", "max output", "from", "count", "margin", "can")
LONG = ("model", "can")  # they wrap where there is no room
ROOMY = 110  # columns
FIGURES = ("window", "max input", "max output")
Row = dict[str, Any]


class Forgetful:
    """A memory for one look: it remembers nothing."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """Nothing."""
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        """Forgets it."""


def known(model: str, windows: Windows, families: Families) -> Row:
    """All that is known of one model; figures in tokens."""
    window = windows.find(model)
    empty = Prompt(model, ())
    meter = meter_for(empty, model, Forgetful(), tokenizer=windows.tokenizer(model), families=families)
    return {
        "model": model,
        "window": window.tokens,
        "max_input": window.max_input,
        "max_output": window.max_output,
        "source": window.source,
        "guessed": window.guessed,
        "can": None if window.can is None else sorted(window.can),
        "count": str(meter.quality),
        "margin": {"base": meter.margin.base, "share": meter.margin.share},
    }


def table(rows: Sequence[Row], console: Console | None = None) -> None:
    """Prints them for people; a column in which nothing stands is left out, and the last one where there is no room."""
    console = console or Console()
    told = [_cells(row) for row in rows]
    drawn = Table(box=None, header_style="dim", padding=(0, 1))
    columns = COLUMNS if console.width >= ROOMY else COLUMNS[:-1]
    shown = [name for name in columns if any(cells[name] for cells in told)]
    for name in shown:
        drawn.add_column(
            name, justify="right" if name in FIGURES else "left", no_wrap=name not in LONG, overflow="fold"
        )
    for cells in told:
        drawn.add_row(*(cells[name] for name in shown))
    console.print(drawn)


def lessons(told: Sequence[Row], console: Console | None = None) -> None:
    """Prints for people what a running proxy learned of models."""
    console = console or Console()
    for row in told:
        limits, counts, agreed = row["limits"], row["counts"], row["agreed"]
        if not limits and not counts and agreed["ratio"] is None:
            console.print(f"\n{row['model']}: nothing learned", markup=False, highlight=False)
            continue
        console.print(f"\n{row['model']}: learned", markup=False, highlight=False)
        for one in limits:
            console.print(f"  {_limit(one)}", markup=False, highlight=False)
        for one in counts:
            margin = "" if one["margin"] is None else f" with a margin of {one['margin']:.0%}"
            said = f"counts x {one['ratio']:g}{margin}, from {one['answers']} answers to caller {one['caller']}"
            console.print(f"  {said}", markup=False, highlight=False)
        if agreed["ratio"] is not None:
            said = f"counts x {agreed['ratio']:g} for new callers, agreed on by {agreed['callers']}"
            console.print(f"  {said}", markup=False, highlight=False)


def _limit(one: Row) -> str:
    value = f"{one['value']:,}" if isinstance(one["value"], int) else f"{one['value']:g}"
    named = f", the upstream {one['named']:,}" if one["named"] else ""
    tried = f", tried from {one['probe_due']}" if one["probe_due"] else ""
    return (
        f"{one['kind']} {value} for caller {one['caller']}, until {one['until']}{tried}; by {one['rule']} at "
        f"{one['taught_at']}: we counted {one['counted']:,} ({one['quality']}){named}"
    )


def _cells(row: Row) -> dict[str, str]:
    margin = row["margin"]
    share = f" + {margin['share']:.0%}" if margin["share"] else ""
    return {
        "model": row["model"],
        "window": f"{row['window']:,}",
        "max input": f"{row['max_input']:,}" if row["max_input"] else "",
        "max output": f"{row['max_output']:,}" if row["max_output"] else "",
        "from": "a guess" if row["guessed"] else row["source"],
        "count": row["count"],
        "margin": f"{margin['base']}{share}",
        "can": ", ".join(row["can"] or ()),
    }
