"""What was cut from a text, and what was added."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.segments import MAX_LINES, segments


def told(before: str, after: str) -> list[tuple[str, str]]:
    return [(s["text"], "cut" if s["cut"] else "added" if s["added"] else "") for s in segments(before, after)]


def joined(found: list[dict[str, Any]], mark: str) -> str:
    return "".join(s["text"] for s in found if not s[mark])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("same", "same", [("same", "")]),
        ("", "", []),
        ("gone", "", [("gone", "cut")]),
        ("", "ours", [("ours", "added")]),
        ("a long text", "a text", [("a ", ""), ("long ", "cut"), ("text", "")]),
        ("1\n2\n3\n4\n5\n", "1\n[cut]\n5\n", [("1\n", ""), ("2\n3\n4", "cut"), ("[cut]", "added"), ("\n5\n", "")]),
        ("a\nb\nc\nd", "x\nb\ny", [("a\n", "cut"), ("x\n", "added"), ("b\n", ""), ("c\nd", "cut"), ("y", "added")]),
    ],
)  # fmt: skip
def test_what_was_cut_and_what_was_added_is_marked(before: str, after: str, found: list[tuple[str, str]]) -> None:
    assert told(before, after) == found


def test_a_text_of_too_many_lines_is_not_compared_by_lines() -> None:
    before = "".join(f"{i}\n" for i in range(MAX_LINES + 2))
    assert told(before, "x\n5") == [(before, "cut"), ("x\n5", "added")]


def test_lines_that_stand_everywhere_are_compared_in_linear_time() -> None:
    """A comparison that looks for the longest common run takes minutes here."""
    before, after = "a\nb\n" * (MAX_LINES // 2 - 1), "b\na\nc\n" * (MAX_LINES // 3)
    found = segments(before, after)
    assert (joined(found, "added"), joined(found, "cut")) == (before, after)


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_the_segments_are_both_texts(before: str, after: str) -> None:
    found = segments(before, after)
    assert (joined(found, "added"), joined(found, "cut")) == (before, after)
    assert all(s["text"] for s in found)
