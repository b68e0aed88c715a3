"""The output of `plimsoll models`: a model's limits, their source, how it is counted, and what a proxy learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proxy.config.windows import Windows
from proxy.model.conversation import Prompt
from proxy.tokens.families import Families
from proxy.tokens.meter import meter_for

COLUMNS = ("model", "window", "max input", "max output", "from", "count", "margin", "can")
LAST = "can"  # this column wraps
MIN_WIDTH_OF_ALL = 110  # terminal columns; the last column is left out below
MAX_WIDTH = 10_000  # terminal columns of a table that is only measured
NUMERIC = ("window", "max input", "max output")
GUESSED = "a guess"
LEGEND = {  # of the columns whose words say little, by their values
    "from": {
        "litellm": "litellm's table of models, as shipped or as installed",
        "rules": "a row of your windows.toml",
        "gap": "a built-in row for a model that the table lacks",
        GUESSED: "the model is unknown: by default its requests go out as they came until a refusal teaches its limit",
    },
    "count": {"exact": "as the provider counts", "estimated": "by the kind of model; the usage of answers corrects it"},
}
MARGIN = "margin: tokens kept free for the error of a count: so many, and a share of the prompt"
Row = dict[str, Any]


class NoMemory:
    """Implements `Memory` and keeps nothing."""

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """Always a miss."""
        return None

    def put(self, key: bytes, value: tuple[int, ...]) -> None:
        """Keeps nothing."""


def describe(model: str, windows: Windows, families: Families) -> Row:
    """One model's limits, source and count, as JSON values; figures are in tokens."""
    window = windows.find(model)
    empty = Prompt(model, ())
    meter = meter_for(empty, model, NoMemory(), tokenizer=windows.tokenizer(model), families=families)
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
    """Prints a table of models. Empty columns are left out, and the last one in a narrow terminal. Where the table is
    wider than the terminal, each model is a line with its name and one with the rest."""
    console = console or Console()
    cells_of_rows = [_cells(row) for row in rows]
    columns = COLUMNS if console.width >= MIN_WIDTH_OF_ALL else COLUMNS[:-1]
    shown = [name for name in columns if any(cells[name] for cells in cells_of_rows)]
    least = _grid(cells_of_rows, [name for name in shown if name != LAST])
    if Measurement.get(console, console.options.update(max_width=MAX_WIDTH), least).maximum <= console.width:
        console.print(_grid(cells_of_rows, shown))
    else:
        for cells in cells_of_rows:
            figures = "   ".join(f"{name} {cells[name]}" for name in shown[1:] if cells[name])
            console.print(cells["model"], markup=False, highlight=False)
            console.print(Padding(Text(figures), (0, 0, 0, 2)))
    console.print(Text("\n" + "\n".join(legend(cells_of_rows)), style="dim"))


def legend(cells_of_rows: Sequence[dict[str, str]]) -> list[str]:
    """What the words that a table shows mean, a line each."""
    shown = ((column, word, said) for column, words in LEGEND.items() for word, said in words.items())
    found = [f"{column} {word}: {said}" for column, word, said in shown if word in {c[column] for c in cells_of_rows}]
    return [*found, MARGIN]


def _grid(cells_of_rows: Sequence[dict[str, str]], columns: Sequence[str]) -> Table:
    grid = Table(box=None, header_style="dim", padding=(0, 1))
    for name in columns:
        grid.add_column(name, justify="right" if name in NUMERIC else "left", no_wrap=name != LAST, overflow="fold")
    for cells in cells_of_rows:
        grid.add_row(*(Text(cells[name]) for name in columns))
    return grid


def learned(rows: Sequence[Row], console: Console | None = None) -> None:
    """Prints what a running proxy learned about models."""
    console = console or Console()
    for row in rows:
        limits, counts = row["limits"], row["counts"]
        agreed = [one for one in row["agreed"] if one["offset"] is not None]
        if not limits and not counts and not agreed:
            console.print(f"\n{row['model']}: nothing learned", markup=False, highlight=False)
            continue
        console.print(f"\n{row['model']}: learned", markup=False, highlight=False)
        for limit in limits:
            console.print(f"  {_limit(limit)}", markup=False, highlight=False)
        for count in counts:
            margin = "" if count["margin"] is None else f" with a margin of {count['margin']:.0%}"
            line = f"{_counts(count)}{margin}, from {count['answers']} answers to tenant {count['caller']}"
            console.print(f"  {line}", markup=False, highlight=False)
        for one in agreed:
            line = f"{_counts(one)} for new tenants, agreed on by {one['callers']}"
            console.print(f"  {line}", markup=False, highlight=False)


def _counts(line: Row) -> str:
    """How prompts of a shape are counted."""
    ratio = "" if line["ratio"] is None else f" x {line['ratio']:g}"
    offset = f" {line['offset']:+,} tokens" if line["offset"] or not ratio else ""
    return f"counts of {line['shape']}{ratio}{offset}"


def _limit(limit: Row) -> str:
    value = f"{limit['value']:,}" if isinstance(limit["value"], int) else f"{limit['value']:g}"
    named = f", the upstream {limit['named']:,}" if limit["named"] else ""
    probed = f", probed from {limit['probe_due']}" if limit["probe_due"] else ""
    return (
        f"{limit['kind']} {value} for tenant {limit['caller']}, until {limit['until']}{probed}; by {limit['rule']} at "
        f"{limit['taught_at']}: we counted {limit['counted']:,} ({limit['quality']}){named}"
    )


def _cells(row: Row) -> dict[str, str]:
    margin = row["margin"]
    share = f" + {margin['share']:.0%}" if margin["share"] else ""
    return {
        "model": row["model"],
        "window": f"{row['window']:,}",
        "max input": f"{row['max_input']:,}" if row["max_input"] else "",
        "max output": f"{row['max_output']:,}" if row["max_output"] else "",
        "from": GUESSED if row["guessed"] else row["source"],
        "count": row["count"],
        "margin": f"{margin['base']}{share}",
        "can": ", ".join(row["can"] or ()),
    }
