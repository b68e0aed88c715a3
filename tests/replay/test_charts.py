"""Charts: bars to scale, and no text that is markup."""

from __future__ import annotations

import re

from proxy.replay.charts import HIGH, WIDE, Bar, columns, figure, rows

HOSTILE = '"><script>alert(1)</script>'


def sizes(drawn: str, name: str) -> list[float]:
    return [float(found) for found in re.findall(rf' {name}="([\d.]+)"', drawn)]


def test_columns_are_to_scale_and_parts_stand_on_one_another() -> None:
    drawn = columns([Bar("a", (("kept", 10), ("cut", 30)), "40"), Bar("b", (("kept", 20),), "20")], ("x", "y"), "40")
    heights, ys = sizes(drawn, "height"), sizes(drawn, "y")
    assert heights == [HIGH * 0.25, HIGH * 0.75, HIGH * 0.5] and ys == [HIGH * 0.75, 0.0, HIGH * 0.5]
    assert "<title>a: 40</title>" in drawn and "<span>x</span><span>y</span>" in drawn


def test_a_mark_stands_before_its_bar() -> None:
    drawn = columns([Bar("", (("kept", 1),), "")] * 4, (), "", mark=3)
    assert f'<rect class="line" x="{WIDE * 0.75 - 1:.1f}"' in drawn


def test_rows_are_to_scale_beside_one_another() -> None:
    drawn = rows([Bar("a", (("kept", 1), ("cut", 3)), "4"), Bar("b", (), "0")])
    assert sizes(drawn, "width") == [WIDE * 0.25, WIDE * 0.75] and "<code>b</code>" in drawn


def test_bars_of_nothing_are_drawn_as_nothing() -> None:
    assert columns([], (), "") == rows([]) == ""
    assert sizes(columns([Bar("a", (("kept", 0),), "0")], (), "0"), "height") == [0.0]


def test_no_text_of_a_chart_is_markup() -> None:
    bar = Bar(HOSTILE, (("kept", 1),), HOSTILE)
    drawn = figure(HOSTILE, columns([bar], (HOSTILE,), HOSTILE) + rows([bar]), (("kept", HOSTILE),))
    assert "<script" not in drawn and drawn.count("&lt;script") == 11
