"""The report of a replay as one HTML file. It loads nothing, runs no script, and escapes every text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from proxy.replay import charts
from proxy.replay.charts import Bar, figure
from proxy.replay.notes import dollars, evidence, money, notes, shows_group, unpriced_reason
from proxy.replay.style import STYLE

MOST_SHOWN, MOST_BARS = 50, 12  # rows of a table, and bars below one another
STATES = ("kept", "shortened", "excerpted", "joined", "recalled", "summarised", "dropped", "added")
BAR, HEIGHT = 1000, 14  # the width of a bar in its own units, and its height
POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def page(report: dict[str, Any]) -> str:
    """The file."""
    policy = POLICY.format(base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode())
    first = report["columns"][0]
    planned = first["total"]["planned"]
    body = (
        _head(report),
        _said(report),
        _tiles(first) if planned else "",
        _section("At a glance", _charts(first)) if planned else "",
        _section("By caller", _groups("caller", first["callers"])) if planned else "",
        _budgets(first["budgets"]),
        _unpriced(first),
        _recorded(report["figures_only"]),
        _section("By model", _groups("model", first["models"])) if planned else "",
        _section("By app", _groups("app", first["apps"])) if planned and shows_group(first, "apps") else "",
        _section("What steps did", _steps(report["columns"])) if planned else "",
        _section("The worst cut of each conversation", _cuts(first)) if planned else "",
        _section("All figures", _compared(report["columns"])) if planned else "",
        _details("How far this agrees with what was reported", _agreement(first)) if planned else "",
        _details("How much of the input was understood", _input(report)),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Plimsoll replay</title><style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _name(text: str) -> str:
    """A name: in one line, and chosen whole by a click."""
    return f"<code>{escape(text)}</code>"


def _said(report: dict[str, Any]) -> str:
    """What limits what the report says."""
    return "".join(f'<p class="say">{escape(said)}</p>' for said in notes(report))


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[int] = ()) -> str:
    """A table of cells that are HTML already. The first column, and those of `texts`, are no numbers."""
    kinds = [' class="text"' if place in texts else "" for place in range(len(head))]
    titles = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, head, strict=True))
    cells = (zip(kinds, row, strict=True) for row in rows)
    lines = "".join("<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in row) + "</tr>" for row in cells)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>'


def number(value: float) -> str:
    """A whole number with separators."""
    return f"{value:,.0f}"


def _when(at: float | None) -> str:
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def _head(report: dict[str, Any]) -> str:
    given = report["input"]
    times = " to ".join(filter(None, (_when(given["since"]), _when(given["until"]))))
    said = f"{given['requests']:,} recorded requests{f', {times}' if times else ''}. Plimsoll {report['plimsoll']}; "
    said += f"list prices of {report['prices_at'] or 'an unknown date'}. Nothing was sent."
    return f"<h1>What Plimsoll would have done</h1>{_note(said)}"


def _tiles(column: dict[str, Any]) -> str:
    total, money = column["total"], column["total"]["money"]
    tiles = (
        ("requests", number(total["planned"]), ""),
        ("near the line", number(total["near"]), "near"),
        ("over the line", number(total["over"]), "over"),
        ("refusals that would be answers", f"{total['answered']:,} of {total['too_long']:,}", "good"),
        ("tokens removed", number(total["tokens"]["removed"]), ""),
        ("saved, net of the prompt cache", dollars(money["saved_net"]), "good" if money["saved_net"] >= 0 else "over"),
    )
    shown = (
        f'<div class="tile">{escape(name)}<b class="{kind}">{escape(said)}</b></div>' for name, said, kind in tiles
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def _charts(column: dict[str, Any]) -> str:
    drawn = (_loads(column), *_over_time(column), _whose(column), _by_step(column))
    return f'<div class="charts">{"".join(drawn)}</div>'


def _loads(column: dict[str, Any]) -> str:
    """Requests by their load, before and after."""
    loads = column["loads"]
    bars = []
    for at, (asked, sent) in enumerate(zip(loads["as_sent"], loads["fitted"], strict=True)):
        low, high = (round(100 * loads["step"] * edge) for edge in (at, at + 1))
        name = f"{low} to {high} %" if at < len(loads["as_sent"]) - 1 else f"over {low} %"
        parts = (("refused" if low >= 100 else "was", asked), ("", 0), ("kept", sent))
        bars += [Bar(f"{name}, as sent", parts[:1], number(asked)), Bar(f"{name}, fitted", parts[2:], number(sent))]
    most = max(max(loads["as_sent"]), max(loads["fitted"]))
    drawn = charts.columns(
        bars, ("0 %", "40 %", "80 %", "120 %", "more"), f"{most:,} requests", 2 * round(1 / loads["step"])
    )
    legend = (("was", "as sent"), ("refused", "as sent, over the line"), ("kept", "fitted"))
    return figure("Load of the window: prompt and reply", drawn, legend)


def _over_time(column: dict[str, Any]) -> Iterator[str]:
    """Tokens, and money, over time; nothing where no request has a time."""
    found = column["over_time"]["bars"]
    if not found:
        return
    ends = [_when(found[0]["at"]), _when(found[-1]["at"] + column["over_time"]["seconds"])]
    legend = (("kept", "sent"), ("cut", "removed"))
    bars = []
    for one in found:
        removed = max(0, one["prompt"] - one["prompt_sent"])
        said = f"{one['prompt_sent']:,} tokens sent, {removed:,} removed, {one['requests']:,} requests"
        bars.append(Bar(_when(one["at"]), (("kept", one["prompt_sent"]), ("cut", removed)), said))
    most = max(max(one["prompt"], one["prompt_sent"]) for one in found)
    every = _duration(column["over_time"]["seconds"])
    yield figure(f"Prompt tokens, {every}", charts.columns(bars, ends, f"{most:,} tokens"), legend)
    if any(one["fitted_net"] for one in found):
        paid = [
            Bar(_when(one["at"]), (("kept", one["fitted_net"]),), f"{dollars(one['fitted_net'])} net") for one in found
        ]
        most_paid = dollars(max(one["fitted_net"] for one in found))
        yield figure(f"Cost of what would be sent, net, {every}", charts.columns(paid, ends, most_paid))


def _duration(seconds: int) -> str:
    hours = seconds // 3600
    return f"each bar {hours // 24} days" if hours > 24 else f"each bar {hours} hours" if hours > 1 else "by the hour"


def _whose(column: dict[str, Any]) -> str:
    """Tokens of the callers that used most."""
    groups = sorted(column["callers"], key=lambda one: -one["tokens"]["prompt"])[:MOST_BARS]
    bars = []
    for group in groups:
        sent, removed = group["tokens"]["prompt_sent"], max(0, group["tokens"]["removed"])
        said = f"{sent:,} tokens sent, {removed:,} removed, {money(group, 'fitted_net')}"
        bars.append(Bar(group["name"], (("kept", sent), ("cut", removed)), said))
    return figure("Who uses most", charts.rows(bars), (("kept", "sent"), ("cut", "removed")))


def _by_step(column: dict[str, Any]) -> str:
    made = [(one, f"{one['tokens']:,} tokens of {one['requests']:,} requests") for one in column["steps"][:MOST_BARS]]
    bars = [Bar(one["step"], (("cut", max(0, one["tokens"])),), said) for one, said in made]
    return figure("What steps removed", charts.rows(bars)) if bars else ""


def _compared(columns: Sequence[dict[str, Any]]) -> str:
    def figures(total: dict[str, Any]) -> list[tuple[str, str]]:
        money, cached = total["money"], total["cached_tokens"]
        return [
            ("requests", number(total["planned"])),
            ("near the line (load of 80 % and more)", number(total["near"])),
            ("over the line", number(total["over"])),
            ("would be refused as they were sent", number(total["too_long"])),
            ("– of these, would be answered", number(total["answered"])),
            (
                "recorded refusals, of these answered",
                f"{total['recorded_refusals_answered']:,} of {total['recorded_refusals']:,}",
            ),
            ("of models whose window is not known: taken to fit", number(total["window_unknown"])),
            ("cut", number(total["cut"])),
            ("cannot be made to fit", number(total["unfit"])),
            ("of which a caller's rule lets nothing be changed", number(total["held"])),
            ("refused, as their budget is used up", number(total["over_budget"])),
            ("prompt tokens as sent", number(total["tokens"]["prompt"])),
            ("prompt tokens fitted", number(total["tokens"]["prompt_sent"])),
            ("names that replies took from requests which were cut or not sent: still sent", evidence(total)),
            ("in the prompt cache, as sent", number(cached["as_sent"])),
            ("in the prompt cache, fitted", number(cached["fitted"])),
            ("of requests that were cut: in the cache, as sent", number(cached["of_cut"]["as_sent"])),
            ("of requests that were cut: in the cache, fitted", number(cached["of_cut"]["fitted"])),
            ("cost as sent, net", dollars(money["as_sent_net"])),
            ("cost fitted, net", dollars(money["fitted_net"])),
            ("saved, net of the prompt cache", dollars(money["saved_net"])),
            ("saved, without the prompt cache", dollars(money["saved"])),
            ("cost of answers in place of refusals", dollars(money["answered_net"])),
            ("requests without a price", number(money["unpriced"])),
        ]

    rows = zip(*(figures(column["total"]) for column in columns), strict=True)
    shown = ([escape(row[0][0]), *(escape(figure) for _, figure in row)] for row in rows)
    return _table(["", *(column["name"] for column in columns)], shown)


def _groups(title: str, groups: Sequence[dict[str, Any]]) -> str:
    counts, sums = ("requests", "cut", "near", "over", "refused", "answered"), ("tokens", "removed")
    head = (title, *counts, *sums, "cost net", "saved net")
    rows = (
        [
            _name(g["name"]),
            *(number(g[key]) for key in ("planned", "cut", "near", "over", "too_long", "answered")),
            number(g["tokens"]["prompt"]),
            number(g["tokens"]["removed"]),
            *(money(g, key) for key in ("fitted_net", "saved_net")),
        ]
        for g in groups[:MOST_SHOWN]
    )
    more = len(groups) - MOST_SHOWN
    return _table(head, rows) + (_note(f"and {more:,} more") if more > 0 else "")


def _recorded(only: dict[str, Any] | None) -> str:
    if only is None:
        return ""
    said = [_note("Their bodies are not recorded: these are the figures of the proxy that recorded them.")]
    for title, key in (("caller", "callers"), ("model", "models")):
        rows = [
            [
                _name(group["name"]),
                *(number(group[name]) for name in ("requests", "near", "over", "cut")),
                *(number(group["tokens"][name]) for name in ("prompt", "removed")),
                money(group, "sent_net"),
            ]
            for group in only[key][:MOST_SHOWN]
        ]
        said.append(_table((title, "requests", "near", "over", "cut", "tokens", "removed", "cost net"), rows))
    steps = [[_name(one["step"]), number(one["requests"]), number(one["tokens"])] for one in only["steps"]]
    said.append(_table(("step", "requests", "tokens removed"), steps) if steps else "")
    return _section("Requests with figures only", "".join(said))


def _steps(columns: Sequence[dict[str, Any]]) -> str:
    """One row for each step, with a figure for each column."""
    titles = [column["name"] for column in columns] if len(columns) > 1 else ["tokens removed"]
    rows = []
    for name in dict.fromkeys(step["step"] for column in columns for step in column["steps"]):
        found = [next((step for step in column["steps"] if step["step"] == name), None) for column in columns]
        rows.append([_name(name), *(f"{one['tokens']:,} ({one['requests']:,})" if one else "" for one in found)])
    said = _note("Tokens that were removed, and of how many requests.")
    return said + _table(["step", *titles], rows) if rows else _note("No step changed anything.")


def _budgets(found: Sequence[dict[str, Any]]) -> str:
    """What budgets did, and when their stages began."""
    if not found:
        return ""
    stages = (f"stage {i}" for i in range(4))
    head = ("budget", "caller", "over", "limit", "most used", "", *stages, "refused", "evidence kept")
    rows = [
        [
            _name(one["budget"]),
            _name(one["name"]),
            *(escape(one[key]) for key in ("over", "limit", "most")),
            f"{one['share']:.0%}",
            *(number(count) for count in (*one["stages"], one["refused"])),
            evidence(one),
        ]
        for one in found[:MOST_SHOWN]
    ]
    begun = [
        [_name(one["budget"]), _name(one["name"]), escape(_when(change["at"])), number(change["stage"])]
        for one in found
        for change in one["changes"]
    ][:MOST_SHOWN]
    table = _table(("budget", "caller", "time", "stage that began"), begun, texts=(1, 2)) if begun else ""
    said = _note(
        "Requests by the stage for which they were planned; the most that one period used, and its share. Evidence: "
        "the names that replies took from requests which would be cut or refused, and how many of them would be sent."
    )
    shown = _table(head, rows, texts=(1, 2))
    return _section("Budgets", said + shown + (_details("When stages began", table) if table else ""))


def _unpriced(column: dict[str, Any]) -> str:
    """Models without a price, and how to give one."""
    found = column["without_price"]
    if not found:
        return ""
    rows = (
        [_name(one["model"]), escape(one["where"]), escape(unpriced_reason(one)), number(one["requests"])]
        for one in found[:MOST_SHOWN]
    )
    row = f'[[price]]\nmodel = "{found[0]["model"]}"\ninput = 0.50   # US dollars for a million tokens\noutput = 1.50'
    said = _note("A row in windows.toml gives one; plimsoll replay --rules FOLDER reads the file in that folder:")
    table = _table(("model", "at", "", "requests"), rows, texts=(1, 2))
    return _section("Models without a price", f'{table}{said}<pre class="row">{escape(row)}</pre>')


def _cuts(column: dict[str, Any]) -> str:
    return "".join(map(_worst, column["worst"])) or _note("Nothing was cut.")


def _worst(cut: dict[str, Any]) -> str:
    sent = cut["prompt_sent"]
    steps = ", ".join(dict.fromkeys(step["step"] for step in cut["steps"]))
    title = f"{cut['share_removed']:.0%} removed: {cut['prompt']:,} to {sent:,} tokens of {cut['model']}, by {steps}"
    where = ", ".join(escape(said) for said in (f"entry {cut['entry']}", cut["app"], _when(cut["at"])) if said)
    left_out = cut["rows_left_out"]
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<p class="note">{_name(cut["file"])}, {where}</p>'
        + (_note("Redacted: the words are not those that were sent.") if cut["redacted"] else "")
        + _bar(cut["prompt"], cut["window"], max(cut["prompt"], cut["window"]), "before")
        + _bar(sent, cut["window"], max(cut["prompt"], cut["window"]), "sent")
        + _rows(cut["rows"])
        + (_note(f"{left_out:,} messages in the middle are left out") if left_out else "")
        + "</details>"
    )


def _bar(tokens: int, window: int, scale: int, kind: str) -> str:
    width, line = (round(BAR * value / max(1, scale)) for value in (tokens, window))
    return (
        f'<p class="note">{kind}: {tokens:,} of {window:,} tokens</p>'
        f'<svg viewBox="0 0 {BAR} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{tokens:,} tokens">'
        f'<rect class="{kind}" width="{width}" height="{HEIGHT}"/>'
        f'<rect class="line" x="{min(line, BAR - 2)}" width="2" height="{HEIGHT}"/></svg>'
    )


def _rows(rows: Sequence[dict[str, Any]]) -> str:
    texts = any("text" in row for row in rows)
    head = ("message", "role", "tokens", "sent", "", *(("before", "sent") if texts else ()))
    return _table(head, (_row(row, texts) for row in rows), texts=(1, 4, 5, 6))


def _row(row: dict[str, Any], texts: bool) -> list[str]:
    state = row["state"]
    kind = state if state in STATES else ""
    place = "added" if row["index"] is None else f"#{row['index']}"
    cells = [escape(place), escape(row["role"]), number(row["tokens"]), number(row["tokens_sent"])]
    cells.append(f'<b class="{kind}">{escape(state)}</b>{": " if row["why"] else ""}{escape(row["why"])}')
    if texts:
        before, sent = (row.get(key) or "" for key in ("text", "text_sent"))
        same = "as before" if sent == before and sent else sent
        cells += [f'<pre class="{kind}">{escape(before)}</pre>', f"<pre>{escape(same)}</pre>"]
    return cells


def _agreement(column: dict[str, Any]) -> str:
    found = []
    for title, key in (("count of the prompt", "counts"), ("model of the prompt cache", "prompt_cache")):
        head = (title, "requests", "ours", "reported", "error p50", "error p95", "mean", "within 1 %")
        rows = (
            [
                _name(row["model"]),
                *(number(row[name]) for name in ("requests", "estimated", "reported")),
                *(f"{row[name]:.1%}" for name in ("error_p50", "error_p95", "error_mean", "within_1_percent")),
            ]
            for row in column[key][:MOST_SHOWN]
        )
        found.append(_table(head, rows) if column[key] else _note(f"{title}: nothing is recorded to compare with"))
    return "".join(found) + _note("Errors are shares of the prompt tokens that providers reported.")


def _input(report: dict[str, Any]) -> str:
    given = report["input"]
    kinds = (("format", "formats"), ("not understood", "not_understood"), ("no request", "other_lines"))
    rows = [[f"{kind}: {escape(name)}", number(count)] for kind, key in kinds for name, count in given[key].items()]
    rows += [[f"not planned: {escape(why)}", number(n)] for why, n in report["columns"][0]["not_planned"].items()]
    rows += [[f"missing: {escape(what)}", number(count)] for what, count in given["missing"].items()]
    rows += [[f"cannot be read: {escape(problem)}", ""] for problem in given["unreadable"]]
    rows += [["requests with a time", number(given["with_time"])], ["out of order", number(given["out_of_order"])]]
    return _table(("", "entries"), rows)
