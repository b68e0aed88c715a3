"""plimsoll replay: what the proxy would have done with recorded requests, as a report."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from proxy.cli.picture import View, terminal, view
from proxy.config.rules import load_rules
from proxy.config.settings import Settings
from proxy.config.windows import load_windows
from proxy.errors import ConfigError
from proxy.replay.engine import Options, Result, results
from proxy.replay.files import Source, files_of
from proxy.replay.html import page
from proxy.replay.order import in_order
from proxy.replay.plan_worker import Column
from proxy.replay.report import MOST_SHOWN, Replay, report

MAX_COLUMNS = 8
EVERY_S = 0.2  # between two updates of the progress
OUR_LINES, OUR_PAGE = b'{"file":', b"<!doctype html>"  # what the files that a replay writes begin with


def columns_of(ladders: Sequence[str], windows: Sequence[int], models: Sequence[str]) -> list[Column]:
    """Every combination of the options. Raises `ConfigError` if there are too many."""
    some: Sequence[int | None] = windows or [None]
    found = [Column(*options) for options in product(ladders or [""], some, models or [""])]
    if len(found) > MAX_COLUMNS:
        raise ConfigError(f"{len(found)} combinations of ladders, windows and models: at most {MAX_COLUMNS}")
    return found


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """`plimsoll replay`. Returns 1 if no request was understood."""
    rules = load_rules(settings.rules)
    windows = load_windows(rules.windows)
    columns = columns_of(arguments.ladders or (), arguments.window or (), arguments.model or ())
    for column in columns:
        if column.ladder and column.ladder not in rules.ladders:
            raise ConfigError(f"--ladder: there is no ladder {column.ladder}; there are {', '.join(rules.ladders)}")
    sources = [Source(path) for path in files_of(arguments.file)]
    if not sources:
        raise ConfigError("no files: a folder is searched for .jsonl, .json, .csv, .har and .gz")
    jobs = os.cpu_count() or 1 if arguments.jobs is None else arguments.jobs
    options = Options(settings, columns, jobs, arguments.content, arguments.lines is not None)
    state = Replay(columns, windows.prices)
    began = time.monotonic()
    with ExitStack() as files:  # opened before the work begins, which may take hours
        lines, html = _opened(files, arguments.lines, OUR_LINES), _opened(files, arguments.html, OUR_PAGE)
        with ExitStack() as stack:
            tick = _progress(stack, sources)
            for result in _results(sources, state, options):
                state.add(result)
                tick(state)
                if lines is not None:
                    lines.write(_line(result, sources, columns))
        found = report(state, [one.name for one in sources], windows.newest, time.monotonic() - began, jobs)
        if html is not None:
            html.write(page(found).encode("utf-8", "replace"))
    _show(found, arguments)
    return 0 if state.coverage.requests else 1


def _results(sources: Sequence[Source], state: Replay, options: Options) -> Iterator[Result]:
    return results(in_order(sources, state.coverage), options)


def _opened(stack: ExitStack, path: Path | None, ours: bytes) -> BinaryIO | None:
    return None if path is None else stack.enter_context(_create(path, ours))


def _create(path: Path, ours: bytes) -> BinaryIO:
    """A new file that its owner alone may read. Raises `ConfigError`, also where a file stands that does not begin with
    `ours`: of `--lines *.jsonl`, the first file would be overwritten."""
    try:
        if path.is_file() and not _begins(path, ours):
            raise ConfigError(f"{path}: exists, and no replay wrote it; it is not overwritten")
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _begins(path: Path, ours: bytes) -> bool:
    """Whether a file begins so; an empty one does."""
    with path.open("rb") as file:
        return ours.startswith(file.read(len(ours)))


def _progress(stack: ExitStack, sources: Sequence[Source]) -> Callable[[Replay], None]:
    """Shows the progress on a terminal; does nothing else."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return lambda state: None
    shown = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Progress(*shown, console=console, transient=True))
    task = bar.add_task("reading", total=sum(map(_size, sources)) or None)
    last = 0.0

    def tick(state: Replay) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > EVERY_S:
            last = now
            read, done = sum(one.position for one in sources), state.done
            bar.update(
                task, completed=read * done // max(done, state.coverage.requests), description=f"{done:,} requests"
            )

    return tick


def _size(source: Source) -> int:
    try:
        return source.path.stat().st_size
    except OSError:
        return 0


def _line(result: Result, sources: Sequence[Source], columns: Sequence[Column]) -> bytes:
    placed = result.placed
    plans = [
        {"column": column.name, **({"not_planned": p.unplanned} if p.unplanned else p.report)}
        for column, p in zip(columns, result.planned, strict=False)
    ]
    line = {"file": sources[placed.file].name, "entry": placed.entry, "at": placed.recorded.at, "plans": plans}
    return msgspec.json.encode(line) + b"\n"


def _show(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        console = terminal()
        console.print(drawn(found, view(console)))
    if arguments.html is not None:
        print(f"plimsoll: wrote {arguments.html}", file=sys.stderr)


def drawn(found: dict[str, Any], view: View) -> RenderableType:
    """The report for a terminal."""
    columns = found["columns"]
    first = columns[0]
    parts: list[RenderableType] = [_input(found, view)]
    if (only := found["figures_only"]) is not None:
        parts += [Text(), _recorded(only, view)]
    if not first["total"]["planned"]:
        return Group(*parts)
    parts += [Text(), _compared(columns, view)]
    for title, key in (("model", "models"), ("app", "apps")):
        parts += [Text(), _groups(title, first[key], view)]
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
    lines += notes(found)
    return Text("\n").join(map(view.text, lines))


def notes(found: dict[str, Any]) -> list[str]:
    """What limits what the report says."""
    given, only = found["input"], found["figures_only"]
    said = [f"not in the recording: {what} ({count:,} requests)" for what, count in given["missing"].items()]
    if given["requests"] and given["with_time"] < given["requests"]:
        said.append(f"{given['requests'] - given['with_time']:,} requests have no time: taken to follow one another")
    if unknown := found["columns"][0]["total"]["window_unknown"]:
        said.append(f"{unknown:,} requests are for models whose window is not known: taken to fit")
    if given["out_of_order"]:
        said.append(f"{given['out_of_order']:,} requests came out of order: their cache figures may be too low")
    if given["redacted"]:
        said.append(f"{given['redacted']:,} requests are redacted: counts hold, but which texts a cut keeps does not")
    if only is not None:
        said.append(
            f"{only['requests']:,} requests have figures only, of the proxy that recorded them: {only['over']:,} over "
            f"the line, {only['near']:,} near it, {only['cut']:,} cut, {only['tokens']['removed']:,} tokens removed"
        )
    return said


ROWS: Sequence[tuple[str, Callable[[dict[str, Any]], str]]] = (
    ("requests", lambda t: f"{t['planned']:,}"),
    ("near the line (80 %)", lambda t: f"{t['near']:,}"),
    ("over the line", lambda t: f"{t['over']:,}"),
    ("would be refused as sent", lambda t: f"{t['too_long']:,}"),
    ("  of these answered", lambda t: f"{t['answered']:,}"),
    ("cut", lambda t: f"{t['cut']:,}"),
    ("cannot be made to fit", lambda t: f"{t['unfit']:,}"),
    ("prompt tokens", lambda t: f"{t['tokens']['prompt']:,}"),
    ("  removed", lambda t: f"{t['tokens']['removed']:,}"),
    ("cached tokens, as sent", lambda t: f"{t['cached_tokens']['as_sent']:,}"),
    ("cached tokens, fitted", lambda t: f"{t['cached_tokens']['fitted']:,}"),
    ("cost as sent, net", lambda t: dollars(t["money"]["as_sent_net"])),
    ("cost fitted, net", lambda t: dollars(t["money"]["fitted_net"])),
    ("saved, net", lambda t: dollars(t["money"]["saved_net"])),
    ("saved, without the cache", lambda t: dollars(t["money"]["saved"])),
    ("cost of what was refused", lambda t: dollars(t["money"]["answered_net"])),
    ("without a price", lambda t: f"{t['money']['unpriced']:,}"),
)


def dollars(amount: float) -> str:
    """US dollars, with cents, and with more figures for small amounts."""
    return f"${amount:,.2f}" if abs(amount) >= 1 or not amount else f"${amount:.4f}"


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


def _groups(title: str, groups: Sequence[dict[str, Any]], view: View) -> Table:
    table = _plain(title, "requests", "near", "over", "refused", "answered", "removed", "saved net")
    for group in groups[:MOST_SHOWN]:
        table.add_row(
            view.text(group["name"]),
            *(f"{group[key]:,}" for key in ("planned", "near", "over", "too_long", "answered")),
            f"{group['tokens']['removed']:,}",
            dollars(group["money"]["saved_net"]) if group["money"]["priced"] else "no price",
        )
    return table


def _recorded(only: dict[str, Any], view: View) -> RenderableType:
    """What requests say of themselves of which only the figures are recorded."""
    table = _plain("recorded figures", "requests", "near", "over", "cut", "tokens", "removed")
    for group in only["models"][:MOST_SHOWN]:
        tokens = (group["tokens"]["prompt"], group["tokens"]["removed"])
        figures = (*(group[key] for key in ("requests", "near", "over", "cut")), *tokens)
        table.add_row(view.text(group["name"]), *(f"{figure:,}" for figure in figures))
    for step in only["steps"]:
        table.add_row(view.text(f"by {step['step']}"), f"{step['requests']:,}", "", "", "", "", f"{step['tokens']:,}")
    return table


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
    head = (
        f"{cut['file']}, entry {cut['entry']}: {cut['model']}, {cut['prompt']:,} to {cut['prompt_sent']:,} tokens "
        f"({cut['share_removed']:.0%} removed) by {', '.join(step['step'] for step in cut['steps'])}"
    )
    table = _plain("  role", "tokens", "sent", "")
    table.columns[3].justify = "left"
    for state, rows in _by_state(cut["rows"]).items():
        sums = (sum(row[key] for row in rows) for key in ("tokens", "tokens_sent"))
        table.add_row(f"  {len(rows):,} messages", *(f"{tokens:,}" for tokens in sums), view.text(state))
    return Group(view.text(head, "bold"), table)


def _by_state(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["state"], []).append(row)
    return found


def _agreement(column: dict[str, Any], view: View) -> Iterator[RenderableType]:
    """How far counts and the model of the cache agree with recorded usage."""
    for title, key in (("count against usage", "counts"), ("cache model against usage", "prompt_cache")):
        table = _plain(title, "requests", "ours", "reported", "error p50", "p95", "within 1 %")
        for row in column[key][:MOST_SHOWN]:
            errors = (f"{row[name]:.1%}" for name in ("error_p50", "error_p95", "within_1_percent"))
            figures = (f"{row[name]:,}" for name in ("requests", "estimated", "reported"))
            table.add_row(view.text(row["model"]), *figures, *errors)
        yield table if column[key] else Text(f"{title}: nothing is recorded to compare with", "dim")


def _speed(found: dict[str, Any], view: View) -> Text:
    speed = found["speed"]
    text = f"{speed['tokens']:,} tokens in {speed['seconds']:,.1f} s; list prices of {found['prices_at'] or 'no date'}"
    return view.text(text, "dim")
