"""The report of a replay as one HTML file. It loads nothing, runs no script, and escapes every text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

MOST_SHOWN = 50  # rows of a table
STATES = ("kept", "shortened", "excerpted", "joined", "recalled", "summarised", "dropped", "added")
BAR, HEIGHT = 1000, 14  # the width of a bar in its own units, and its height
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --over: #c0392b; --near: #b8860b; --good: #1e8449 }
@media (prefers-color-scheme: dark) { :root { --over: #ff7b6b; --near: #e0b84c; --good: #58d68d } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; min-width: 8rem }
th { font-weight: 600; font-size: .85rem }
.note { color: GrayText; font-size: .9rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem }
.tile { background: var(--soft); border-radius: .4rem; padding: .6rem }
.tile b { display: block; font-size: 1.3rem }
td b { font-weight: 600 }
.over { color: var(--over) } .near { color: var(--near) } .good { color: var(--good) }
svg { display: block; width: 100%; height: 14px; background: var(--soft) }
details { margin: .6rem 0; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem }
summary { cursor: pointer; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: .2rem 0; text-align: left }
pre.dropped, pre.summarised, pre.recalled { text-decoration: line-through }
th.text, td.text { text-align: left }
.shortened, .excerpted { color: var(--near) } .added { color: var(--good) } b.dropped { color: var(--over) }
rect.before { fill: #8886 } rect.sent { fill: #2e86c1 } rect.line { fill: var(--over) }
"""
POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def page(report: dict[str, Any]) -> str:
    """The file."""
    policy = POLICY.format(base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode())
    first = report["columns"][0]
    body = (
        _head(report),
        _tiles(first),
        _section("Settings side by side", _compared(report["columns"])),
        _recorded(report["figures_only"]),
        _section("By model", _groups("model", first["models"])),
        _section("By app", _groups("app", first["apps"])),
        _section("By step", _steps(report["columns"])),
        _section("The worst cuts", "".join(map(_worst, first["worst"])) or _note("Nothing was cut.")),
        _section("How far this agrees with what was reported", _agreement(first)),
        _section("How much of the input was understood", _input(report)),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Plimsoll replay</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


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


def dollars(amount: float) -> str:
    """US dollars."""
    return f"${amount:,.2f}" if abs(amount) >= 1 or not amount else f"${amount:.4f}"


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
            ("prompt tokens as sent", number(total["tokens"]["prompt"])),
            ("prompt tokens fitted", number(total["tokens"]["prompt_sent"])),
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
    head = (title, "requests", "near", "over", "refused", "answered", "tokens", "removed", "saved net")
    rows = (
        [
            escape(g["name"]),
            *(number(g[key]) for key in ("planned", "near", "over", "too_long", "answered")),
            number(g["tokens"]["prompt"]),
            number(g["tokens"]["removed"]),
            dollars(g["money"]["saved_net"]) if g["money"]["priced"] else "no price",
        ]
        for g in groups[:MOST_SHOWN]
    )
    more = len(groups) - MOST_SHOWN
    return _table(head, rows) + (_note(f"and {more:,} more") if more > 0 else "")


def _recorded(only: dict[str, Any] | None) -> str:
    if only is None:
        return ""
    head = ("model or step", "requests", "near", "over", "cut", "tokens", "removed")
    rows = [
        [
            escape(group["name"]),
            *(number(group[key]) for key in ("requests", "near", "over", "cut")),
            *(number(group["tokens"][key]) for key in ("prompt", "removed")),
        ]
        for group in only["models"][:MOST_SHOWN]
    ]
    rows += [[escape(one["step"]), number(one["requests"]), *[""] * 4, number(one["tokens"])] for one in only["steps"]]
    said = "Their bodies are not recorded: these are the figures of the proxy that recorded them."
    return _section("Requests with figures only", _note(said) + _table(head, rows))


def _steps(columns: Sequence[dict[str, Any]]) -> str:
    rows = (
        [escape(step["step"]), number(step["requests"]), number(step["tokens"]), escape(column["name"])]
        for column in columns
        for step in column["steps"]
    )
    return _table(("step", "requests", "tokens removed", "settings"), rows, texts=(3,))


def _worst(cut: dict[str, Any]) -> str:
    sent = cut["prompt_sent"]
    steps = ", ".join(step["step"] for step in cut["steps"])
    title = f"{cut['share_removed']:.0%} removed: {cut['prompt']:,} to {sent:,} tokens of {cut['model']}, by {steps}"
    where = ", ".join(filter(None, (f"{cut['file']}, entry {cut['entry']}", cut["app"], _when(cut["at"]))))
    left_out = cut["rows_left_out"]
    return (
        f"<details><summary>{escape(title)}</summary>{_note(where)}"
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
                escape(row["model"]),
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
