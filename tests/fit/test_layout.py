"""Whether a cut is chosen anew for every question, or stays."""

from __future__ import annotations

import pytest

from proxy.fit.layout import layout_of
from proxy.model.structs import replace
from tests.makers import draft, tool_round, user


@pytest.mark.parametrize(
    ("wanted", "tools", "can", "layout"),
    [
        ("", False, None, "stable"),  # most providers cache
        ("", False, frozenset({"prompt_caching"}), "stable"),
        ("", False, frozenset({"vision"}), "best"),
        ("", True, frozenset({"vision"}), ""),
        ("stable", False, frozenset({"vision"}), "stable"),
        ("stable", True, None, ""),
        ("best", True, None, "best"),
    ],
)
def test_the_layout(wanted: str, tools: bool, can: frozenset[str] | None, layout: str) -> None:
    told = [user("q"), *(tool_round("c", "found") if tools else [])]
    before = draft(told, 1000)
    assert layout_of(replace(before, window=replace(before.window, can=can)), wanted) == layout
