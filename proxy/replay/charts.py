"""Charts as inline SVG and HTML: bars, without a script, a style attribute or a reference. Every text is escaped.

What is drawn is SVG that is stretched to the width of the page; texts are HTML, so that they keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDE, HIGH = 1000, 100  # a drawing in its own units
GAP = 0.12  # of a bar's place


class Bar(NamedTuple):
    """One bar: what it is called, its parts from the bottom with the class of each, and what is said of it."""

    name: str
    parts: Sequence[tuple[str, float]]
    said: str


def figure(title: str, drawn: str, legend: Sequence[tuple[str, str]] = ()) -> str:
    """A chart with its title, and what its colours mean: classes and names."""
    keys = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in legend)
    shown = f'<p class="legend">{keys}</p>' if keys else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{shown}{drawn}</figure>"


def columns(bars: Sequence[Bar], labels: Sequence[str], top: str, mark: int | None = None) -> str:
    """Bars side by side, over their labels. `top`: what the highest is. `mark`: a line before the bar of this place."""
    if not bars:
        return ""
    most = max((sum(size for _, size in bar.parts) for bar in bars), default=0.0) or 1.0
    place = WIDE / len(bars)
    drawn = [_column(bar, place * at, place, most) for at, bar in enumerate(bars)]
    if mark is not None:
        drawn.append(f'<rect class="line" x="{place * mark - 1:.1f}" y="0" width="2" height="{HIGH}"/>')
    axis = "".join(f"<span>{escape(label)}</span>" for label in labels)
    svg = _svg("columns", HIGH, f"{len(bars)} bars, the highest {top}", "".join(drawn))
    return f'<p class="top">{escape(top)}</p>{svg}<p class="axis">{axis}</p>'


def _column(bar: Bar, x: float, place: float, most: float) -> str:
    drawn, below = [f"<title>{escape(bar.name)}: {escape(bar.said)}</title>"], 0.0
    for kind, size in bar.parts:
        high = HIGH * size / most
        drawn.append(
            f'<rect class="{kind}" x="{x + place * GAP / 2:.1f}" y="{HIGH - below - high:.2f}" '
            f'width="{place * (1 - GAP):.1f}" height="{high:.2f}"/>'
        )
        below += high
    return f"<g>{''.join(drawn)}</g>"


def rows(bars: Sequence[Bar]) -> str:
    """Bars below one another, each under its name and what is said of it."""
    most = max((sum(size for _, size in bar.parts) for bar in bars), default=0.0) or 1.0
    return "".join(f"<div>{_row(bar, most)}</div>" for bar in bars)


def _row(bar: Bar, most: float) -> str:
    drawn, x = [], 0.0
    for kind, size in bar.parts:
        wide = WIDE * size / most
        drawn.append(f'<rect class="{kind}" x="{x:.1f}" y="0" width="{wide:.1f}" height="{HIGH}"/>')
        x += wide
    head = f'<p class="bar"><code>{escape(bar.name)}</code><span>{escape(bar.said)}</span></p>'
    return head + _svg("row", HIGH, f"{bar.name}: {bar.said}", "".join(drawn))


def _svg(kind: str, height: int, label: str, drawn: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDE} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{drawn}</svg>'
    )
