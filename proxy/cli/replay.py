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
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from proxy.cli.picture import terminal, view
from proxy.cli.replay_view import drawn
from proxy.config.rules import load_rules
from proxy.config.settings import Settings
from proxy.config.windows import load_windows
from proxy.errors import ConfigError
from proxy.replay.engine import Options, Result, results
from proxy.replay.files import Source, files_of
from proxy.replay.html import page
from proxy.replay.order import in_order
from proxy.replay.plan_worker import Column
from proxy.replay.prices import RecordedPrices
from proxy.replay.report import FIGURES_ONLY, Replay, report

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
    prices = RecordedPrices(windows, settings, rules.upstreams)
    state = Replay(columns, prices, rules=[row.name for row in rules.callers.rows], unknown=prices.unknown)
    began = time.monotonic()
    with ExitStack() as files:  # opened before the work begins, which may take hours
        lines, html = _opened(files, arguments.lines, OUR_LINES), _opened(files, arguments.html, OUR_PAGE)
        with ExitStack() as stack:
            tick = _progress(stack, sources)
            for result in _results(sources, state, options):
                if not state.figures_only.total.requests and state.is_without_body(result):
                    print(f"plimsoll: {FIGURES_ONLY}", file=sys.stderr)  # at once: the rest may take hours
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
        console.print(drawn(found, view(console)), crop=False)
    if arguments.html is not None:
        print(f"plimsoll: wrote {arguments.html}", file=sys.stderr)
