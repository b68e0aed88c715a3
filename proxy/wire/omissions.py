"""Finds which lines of a text its shortened form leaves out. It compares lines, so it needs no knowledge of markers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

MIN_SHARE = 1 / 3  # of the shortened form's lines that the text has too: below, the form is written anew (a table)
MAX_LINES = 100_000  # of a text that is compared: of more, a text of line ends alone would fill the memory
MAX_PLACES = 64  # places of one line that are compared: empty lines stand everywhere
MAX_RUN = 8  # lines compared at one place: a run of eight is the same passage

Range = tuple[int, int]  # the first and the last line, counted from 1


def omitted(text: str, short: str) -> tuple[int, list[Range]]:
    """The number of lines of a text, and the ranges of lines that `short` does not have whole.

    Lines of `short` must be in the order of the text; others, such as markers, are ignored. No ranges if `short` is
    not an excerpt of lines, or if the text has one line or more than `MAX_LINES`.
    """
    count = text.count("\n") + 1
    if not 1 < count <= MAX_LINES:
        return count, []
    lines, kept = text.split("\n"), short.split("\n") if short else []
    found = [place for place, _ in matches(lines, kept)]
    if len(found) < MIN_SHARE * len(kept):
        return count, []
    ends = [-1, *found, len(lines)]
    return count, [(a + 2, b) for a, b in pairwise(ends) if b - a > 1]


def matches(lines: Sequence[str], kept: Sequence[str]) -> list[tuple[int, int]]:
    """The places of the lines that are kept, among `lines` and among `kept`, both ascending. In linear time."""
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(line, []).append(place)
    found: list[tuple[int, int]] = []
    follows = True  # the line before was kept, so the next one is expected at once
    for i, line in enumerate(kept):
        start = found[-1][0] + 1 if found else 0
        if follows and start < len(lines) and lines[start] == line:
            found.append((start, i))
            continue
        same = places.get(line, [])
        first = bisect_left(same, start)
        later = same[first : first + MAX_PLACES]
        follows = bool(later)
        if later:
            best = max(later, key=lambda place: _run(lines[place : place + MAX_RUN], kept[i : i + MAX_RUN]))
            found.append((best, i))
    return found


def _run(lines: Sequence[str], kept: Sequence[str]) -> int:
    """How many of the first lines are the same."""
    run = 0
    for one, other in zip(lines, kept, strict=False):
        if one != other:
            break
        run += 1
    return run
