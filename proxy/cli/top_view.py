"""Draws the figures and the last requests of a running proxy for a terminal. It asks nobody and reads no key."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.cli.picture import View

WIDE = 130  # columns from which tables have all their columns
MAX_MODELS, MAX_UPSTREAMS, MAX_BUDGETS = 8, 6, 3
BAR = 10  # columns of a load
STYLES = {
    "passed": "",
    "fitted": "yellow",
    "healed": "cyan",
    "rejected": "magenta",
    "cancelled": "dim",
    "stopped": "dim",
    "not_understood": "magenta",
}
FAILED = "bold red"  # every other result
UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))

Figures = Mapping[str, Any]  # JSON of the admin API, or a part of it


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the proxy answered last; None before its first answer. `problem`: why there is no newer answer."""

    overview: Figures | None = None
    requests: Sequence[Figures] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Screen:
    """How it is shown. `height`: in lines, 0 for all rows. `typing`: the filter is being typed. `keys`: are read."""

    url: str
    height: int = 0
    filter: str = ""
    typing: bool = False
    keys: bool = False


def draw(snapshot: Snapshot, screen: Screen, view: View) -> RenderableType:
    """The whole screen."""
    overview = snapshot.overview
    problem = [view.text(snapshot.problem, FAILED)] if snapshot.problem else []
    if overview is None:
        return Group(_head({}, screen, view), *(problem or [Text("no answer yet", "dim")]), _help(screen, view))
    shown = [request for request in snapshot.requests if matches(request, screen.filter)]
    lines = [_head(overview, screen, view), *problem, *_totals(overview, view)]
    models, upstreams = list(overview.get("models") or ())[:MAX_MODELS], _several(overview.get("upstreams") or ())
    tables = [_models(models, view)] if models else []
    tables += [_upstreams(upstreams, view)] if upstreams else []
    # Each table has a blank line and its head; so has that of the requests, and the last line is the help.
    used = len(lines) + sum(2 + table.row_count for table in tables) + 3
    rows = len(shown) if not screen.height else max(1, screen.height - used)
    requests = _requests(shown[:rows], view) if shown else _nothing(snapshot, screen, view)
    parts = (part for table in (*tables, requests) for part in (Text(), table))
    return Group(*lines, *parts, _help(screen, view))


def _several(upstreams: Sequence[Figures]) -> list[Figures]:
    """The upstreams if there is more than one, those that are down first."""
    return sorted(upstreams, key=lambda one: not _recent(one).get("down"))[:MAX_UPSTREAMS] if len(upstreams) > 1 else []


def matches(request: Figures, words: str) -> bool:
    """Whether a request has all these words in its model, path, result, ladder, upstream, caller or steps."""
    fields = ("model", "model_sent", "path", "endpoint", "result", "ladder", "upstream", "caller", "status")
    steps = [str(step.get("step", "")) for step in request.get("steps") or ()]
    text = " ".join([*(str(request.get(field) or "") for field in fields), *steps]).lower()
    return all(word in text for word in words.lower().split())


def _head(overview: Figures, screen: Screen, view: View) -> Text:
    version = (overview.get("version") or {}).get("plimsoll", "")
    head = view.text(f"plimsoll {version}".rstrip(), "bold").append_text(view.text(f"  {screen.url}", "dim"))
    if overview:
        workers, up = overview.get("workers") or {}, overview["at"] - overview["started_at"]
        count, reached = workers.get("count", 1), workers.get("reached", 1)
        some = f"{count} worker{'s' * (count != 1)}" + (f", {reached} of them answer" if reached != count else "")
        head.append_text(view.text(f"  {some}  up {_duration(up)}", "dim"))
    head.no_wrap, head.overflow = True, "ellipsis"
    return head


def _totals(overview: Figures, view: View) -> list[Text]:
    """The lines of figures since the start."""
    requests, tokens = overview["requests"], overview["tokens"]
    lines = [
        _line(
            view,
            ("requests", _short(requests["total"]), ""),
            ("in flight", _short(requests["in_flight"]), ""),
            (f"cut ({_share(requests['cut_share'])})", _short(requests["cut"]), "yellow"),
            ("failed", _short(requests["failed"]), FAILED),
            ("unfit", _short(requests["unfit"]), FAILED),
            ("healed", _short(requests["healed"]), "cyan"),
        ),
        _line(
            view,
            ("tokens in", _short(tokens["prompt"]), ""),
            ("sent", _short(tokens["prompt_sent"]), ""),
            ("saved", _short(tokens["saved"]), "green"),
            ("read from caches", _short(tokens["cached"]), ""),
            *_money(overview.get("money") or {}),
        ),
    ]
    times = [
        (f"{name} p50, p99", " ".join(_seconds(overview[key][part]) for part in ("p50", "p99")), "")
        for name, key in (("own", "own_seconds"), ("upstream", "upstream_seconds"))
        if overview.get(key) and overview[key].get("p50") is not None
    ]
    return [*lines, *([_line(view, *times)] if times else []), *_troubles(overview, view)]


def _money(money: Figures) -> list[tuple[str, str, str]]:
    saved = money.get("saved_net")
    return [] if saved is None else [("saved net", f"${saved:,.2f}", "green" if saved >= 0 else FAILED)]


def _troubles(overview: Figures, view: View) -> list[Text]:
    """A line for each thing that does not work."""
    redis, rules, memory = (overview.get(key) or {} for key in ("redis", "rules", "memory"))
    found = []
    if redis.get("configured") and not redis.get("healthy"):
        found.append("Redis does not answer")
    if rules.get("valid") is False:
        found.append("the rules have a problem: those from before stay")
    if memory.get("refused"):
        found.append(f"{memory['refused']:,} requests were refused for want of memory")
    found += _used_up(overview.get("budgets") or ())
    down = [one for one in overview.get("upstreams") or () if _recent(one).get("down")]
    found += [f"upstream {one.get('name')} is down: {_failing(one)}" for one in down[:MAX_UPSTREAMS]]
    return [view.text(f"! {text}", FAILED) for text in found]


def _used_up(budgets: Sequence[Figures]) -> list[str]:
    """The budgets whose callers get errors now, as far as there is room."""
    used = [one for one in budgets if one["over"] != "observe" and one["used"] >= one["limit"]]
    found = [f"the budget {one['budget']} of {_whose(one)} is used up" for one in used[:MAX_BUDGETS]]
    more = len(used) - len(found)
    return [*found, f"{more:,} more budget{'s are' if more > 1 else ' is'} used up"] if more else found


def _whose(budget: Figures) -> str:
    return "all callers together" if budget["caller"] == "all" else str(budget["caller"])


def _recent(upstream: Figures) -> Figures:
    """What became of the last requests to an upstream."""
    return upstream.get("recent") or {}


def _failing(upstream: Figures) -> str:
    count = _recent(upstream).get("failed_in_a_row", 0)
    return f"the last {f'{count} requests' if count > 1 else 'request'} to it failed"


def _line(view: View, *figures: tuple[str, str, str]) -> Text:
    """Figures with their names, as far as a line has room. A style is for a figure that is not 0."""
    made = Text(no_wrap=True, overflow="ellipsis")
    for name, figure, style in figures:
        text = view.text(("  " if made.plain else "") + figure, "bold" if style == "" or figure == "0" else style)
        rest = view.text(f" {name}", "dim")
        if made.plain and made.cell_len + text.cell_len + rest.cell_len > view.width:
            break
        made.append_text(text).append_text(rest)
    return made


def _models(models: Sequence[Figures], view: View) -> Table:
    wide = view.width >= WIDE
    table = _table("model", "window", "load p95", "requests", "cut", *(("unfit", "saved") if wide else ()))
    for one in models:
        load = one.get("load_p95")
        cells: list[str | Text] = [
            view.text(str(one.get("model", ""))),
            f"{_short(one.get('window'))}{'?' * (one.get('source') == 'guess')}",
            _bar(load, view, wide),
            _short(one.get("requests")),
            _short(one.get("cut")),
        ]
        table.add_row(*cells, *((_short(one.get("unfit")), _short(one.get("saved"))) if wide else ()))
    return table


def _upstreams(upstreams: Sequence[Figures], view: View) -> Table:
    wide = view.width >= WIDE
    table = _table("upstream", "state", "requests", "failed", *(("address",) if wide else ()))
    for one in upstreams:
        address = [view.text(str(one.get("url") or ""))] if wide else []
        counts = (_short(one.get("requests")), _short(one.get("failed")))
        table.add_row(view.text(str(one.get("name", ""))), _state(_recent(one), view), *counts, *address)
    return table


def _state(recent: Figures, view: View) -> Text:
    """Whether an upstream answers, by its last requests."""
    count, failed = recent.get("requests", 0), recent.get("failed", 0)
    if recent.get("down"):
        return view.text("down", FAILED)
    answers = f"answers; {failed} of the last {count} failed" if failed else "answers"
    return view.text(answers if count else "not asked lately", "yellow" if failed else "")


def _requests(requests: Sequence[Figures], view: View) -> Table:
    wide = view.width >= WIDE
    named = any(one.get("caller") for one in requests)
    more_columns = ("path", "steps", "ms") if wide else ()
    table = _table("time", "result", "model", *(["caller"] * named), "tokens", "sent", "load", *more_columns)
    for one in requests:
        prompt, sent, result = one.get("prompt"), one.get("prompt_sent"), str(one.get("result", ""))
        cells: list[str | Text] = [
            time.strftime("%H:%M:%S", time.localtime(one.get("at", 0))),
            view.text(result, STYLES.get(result, FAILED)),
            view.text(_model(one)),
            *([view.text(str(one.get("caller") or ""))] if named else []),
            _short(prompt),
            Text(_short(sent), "yellow" if sent is not None and sent != prompt else ""),
            _bar(one.get("load_before"), view, wide),
        ]
        steps = ", ".join(str(step.get("step", "")) for step in one.get("steps") or ())
        more = [view.text(str(one.get("path", ""))), view.text(steps), _milliseconds(one.get("upstream_ms"))]
        table.add_row(*cells, *(more if wide else ()))
    return table


def _model(request: Figures) -> str:
    model, sent = str(request.get("model") or request.get("path") or ""), str(request.get("model_sent") or "")
    return model if sent in ("", model) else f"{model} → {sent}"


def _nothing(snapshot: Snapshot, screen: Screen, view: View) -> Text:
    if snapshot.requests:
        return view.text(f"none of the last {len(snapshot.requests)} requests has “{screen.filter}”", "dim")
    return view.text("no requests yet: point a client's base URL at the proxy", "dim")


def _help(screen: Screen, view: View) -> Text:
    """The last line: the filter, and what keys do."""
    if screen.typing:
        return view.text(f"filter: {screen.filter}_   enter: keep, escape: none")
    shown = f"filter: {screen.filter}   " if screen.filter else ""
    return view.text(shown + ("q: quit   /: filter" if screen.keys else ""), "dim")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in columns:
        right = name in ("window", "requests", "cut", "unfit", "failed", "saved", "tokens", "sent", "ms")
        table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _bar(load: float | None, view: View, wide: bool) -> Text:
    """A load, with a bar where there is room."""
    if load is None:
        return Text("")
    style = FAILED if load > 1 else "yellow" if load >= 0.8 else "green"
    full = min(BAR, round(BAR * load))
    sign, over = ("#", ">") if view.ascii else ("█", "▶")
    bar = sign * full if load <= 1 else sign * (BAR - 1) + over  # a full one would not tell 100 % from 1,000 %
    drawn = view.text(bar, style).append(" " * (BAR - full + 1)) if wide else Text()
    return drawn.append(f"{load:.0%}".rjust(4), style if load >= 0.8 else "")


def _short(number: float | None) -> str:
    """A number in at most five characters: `999`, `12.3k`, `456M`."""
    if number is None:
        return ""
    for factor, unit in UNITS:
        if abs(number) >= factor:
            scaled = number / factor
            return f"{scaled:.1f}{unit}" if abs(scaled) < 100 else f"{scaled:.0f}{unit}"
    return f"{number:,.0f}"


def _share(share: float | None) -> str:
    return "0 %" if not share else f"{100 * share:.0f} %" if share >= 0.01 else "< 1 %"


def _seconds(seconds: float) -> str:
    return _milliseconds(1000 * seconds) or "0 ms"


def _milliseconds(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number / 1000:.1f} s" if number >= 1000 else f"{number:.0f} ms" if number >= 10 else f"{number:.2f} ms"


def _duration(seconds: float) -> str:
    """A duration in its two largest units: `3 d 4 h`."""
    left, parts = int(max(0, seconds)), list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
