"""Marks what was cut from a text and what was added to it, by lines and, in a line that changed, by its ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from proxy.wire.omissions import matches

MAX_LINES = 3_000  # of a text that is compared line by line: a browser shows a segment for each


def segments(before: str, after: str) -> list[dict[str, Any]]:
    """The text in order, as segments: kept ones, `cut` ones that are not sent, and `added` ones of the proxy's own."""
    if before == after:
        return _merged([(before, "")])
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    middle, other = before[head : len(before) - tail], after[head : len(after) - tail]
    found = [(before[:head], ""), *_compared(middle, other), (before[len(before) - tail :], "")]
    return _merged(found)


def _common(one: str, other: str) -> int:
    """How many of the first characters are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        half = (low + high + 1) // 2
        if one[:half] == other[:half]:
            low = half
        else:
            high = half - 1
    return low


def _compared(before: str, after: str) -> list[tuple[str, str]]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if not old or not new or max(len(old), len(new)) > MAX_LINES:
        return [(before, "cut"), (after, "added")]
    found: list[tuple[str, str]] = []
    places = [(-1, -1), *matches(old, new), (len(old), len(new))]
    for (a, c), (b, d) in pairwise(places):
        found += [("".join(old[a + 1 : b]), "cut"), ("".join(new[c + 1 : d]), "added"), ("".join(old[b : b + 1]), "")]
    return found


def _merged(found: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The segments as JSON, without empty ones and with neighbours of one kind as one."""
    joined: list[tuple[str, str]] = []
    for text, mark in found:
        if joined and joined[-1][1] == mark:
            joined[-1] = (joined[-1][0] + text, mark)
        elif text:
            joined.append((text, mark))
    return [{"text": text, "cut": mark == "cut", "added": mark == "added"} for text, mark in joined]
