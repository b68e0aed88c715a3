"""The style of the report."""

from __future__ import annotations

import re

from proxy.replay.style import STYLE


def test_U26_the_page_has_both_themes() -> None:
    light, dark = (set(re.findall(r"(--[a-z]+):", part)) for part in STYLE.split("@media (prefers-color-scheme: dark)"))
    assert "color-scheme: light dark" in STYLE and light == dark
    assert set(re.findall(r"var\((--[a-z]+)\)", STYLE)) <= light


def test_U26_names_are_in_one_line_and_chosen_whole() -> None:
    assert re.search(r"code \{[^}]*white-space: nowrap; user-select: all", STYLE)
